"""A corpus and a preset of Table 2 that a test can run in a second."""

from experiments.parts.text_jobs import Preset
from tests.support.text_problems import corpus

OF = corpus(40, unlabelled=20)
TINY = Preset(
    *("tiny", "toy", None, 4, 50, 0.2, 6, None, 1.0),
    *(6, 4, 5, 1e-2, 0.9, 5),
    *(5, 8, (1e-2,), 0.8, ("all", "embeddings"), 1, 1, 2),
    about="toys",
)

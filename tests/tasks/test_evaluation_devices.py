"""A run's weights are on the host; an evaluation takes them where it is told to."""

from typing import Any

import pytest

from minadv.regularizers import Plain
from minadv.tasks.fit import fit
from tests.support import language_runs as languages
from tests.support import text_problems

TEXTS, WORDS = text_problems.corpus(), languages.corpus()
SHORT: dict[str, Any] = {"workers": 1, "progress": False}

RUNS = {
    "texts": lambda: fit(text_problems.classifier(TEXTS), TEXTS, regularizer=Plain(), steps=1, batch_size=6, **SHORT),
    "language model of texts": lambda: fit(
        text_problems.language_model(TEXTS), TEXTS, steps=1, batch_size=4, T=5, held_out=40, **SHORT
    ),
    "language model": lambda: fit(languages.model(WORDS), WORDS, epochs=0.2, batch_size=4, bptt=7, **SHORT),
}


@pytest.mark.parametrize("kind", RUNS)
def test_the_same_on_every_device(kind: str, device: Any) -> None:
    run = RUNS[kind]()
    here, there = run.evaluate("valid"), run.evaluate("valid", device=device.name)
    assert there == pytest.approx(here, rel=1e-5)
    assert run.evaluate("valid", device=device) == there

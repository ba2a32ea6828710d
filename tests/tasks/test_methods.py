"""The regularizer that options stand for: a budget that nobody asked for has room in every layer."""

from typing import Any

import pytest

from minadv.regularizers import Sum
from minadv.tasks import methods
from minadv.tasks.images import family as images
from minadv.tasks.language import family as language
from minadv.tasks.text import family as text
from tests.support.commands import parsed

MODELS: dict[str, Any] = {
    "digits": lambda args: images.model_of(args, 8, 10),
    "docstrings": lambda args: text.model_of(args, 50, 2),
    "lm": lambda args: language.model_of(args, 50),
}


@pytest.mark.parametrize(
    ("line", "flips"),
    [
        ("digits", {"layer0": 3}),
        ("digits --hidden 12", {"layer0": 3}),
        ("digits --hidden 2", {"layer0": 2}),
        ("digits --hidden 67", {"layer0": 2}),  # the share that is the default
        ("digits --hidden 12 --delta 0.1", {"layer0": 1}),
        ("docstrings", {"layer0": 2}),
        ("docstrings --hidden 12", {"layer0": 3}),
        ("docstrings --hidden 12 --method add+vat", {"layer0": 3}),
        ("docstrings --hidden 12 --method last", {"readout": 3}),
        ("lm", {"layer0": 6, "layer1": 6}),
        ("lm --hidden 12 --layers 2", {"layer0": 3, "layer1": 3}),
        ("lm --hidden 12 --budget 1", {"layer0": 1}),
    ],
)
def test_budgets(line: str, flips: dict[str, int]) -> None:
    args = parsed("train", *line.split())
    args.family.check(args)
    model = MODELS[line.split()[0]](args)
    made = methods.regularizer(args, model)
    part: Any = made.parts[0] if isinstance(made, Sum) else made
    assert part.expect_budgets(model) == flips

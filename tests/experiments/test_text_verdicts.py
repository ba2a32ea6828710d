"""What Table 2 says of its rows: the table, the order, how far training is."""

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("safetensors")
pytest.importorskip("matplotlib", reason="figures need matplotlib")
pytest.importorskip("threadpoolctl", reason="experiments set BLAS threads")

from experiments.parts import text_verdicts
from experiments.parts.text_methods import Setting
from tests.support.text_tiny import TINY


def result(method: str, wrong: list[int], seed: int = 0, **more: Any) -> dict[str, Any]:
    base = {"method": method, "seed": seed, "setting": vars(Setting()), "valid": {"error": 10.0}, "wrong": wrong}
    curve = [(1, 0.7, 0.0, 50.0, 0.69), (2, 0.6, 0.0, 20.0, 0.65)]
    return {
        **base,
        "curve": curve,
        "epochs": 8.25,
        "classes": 2,
        "zero_maps": 0,
        "test": {"error": float(len(wrong))},
        **more,
    }


BAYES = {"binary": True, "alpha": 1.0, "valid": {"error": 16.0}, "test": {"error": 16.0}, "wrong": list(range(16))}
ROWS = [
    result("none", list(range(20, 40))),
    result("FD", list(range(20, 32))),
    result("AdD K=1", list(range(20, 31))),
    result("AdD K=2", list(range(20, 31))),
]


def gathered(rows: list[dict[str, Any]], lr: float = 0.2, tried: tuple[float, ...] = ()) -> dict[str, Any]:
    bases = [{"base": {"lr": one, "take": "all"}} for one in tried]
    return {"results": rows, "bayes": BAYES, "base": {"lr": lr, "take": "all"}, "tried": bases}


def test_how_far_training_is() -> None:
    """A run whose best evaluation is not its last is at its end; a learning rate at the end of its grid is told."""
    over = [(1, 0.7, 0.0, 20.0, 0.6), (2, 0.1, 0.0, 30.0, 0.9)]
    rows = [result("none", [1], curve=over), result("FD", [1])]
    assert text_verdicts.how_far(gathered(rows)) == "In 1 of 2 runs the best evaluation was the last."
    for lr, says in ((0.1, "is the least of those"), (0.2, None), (0.3, "is the largest of those")):
        told = text_verdicts.how_far(gathered(rows, lr, (0.1, 0.2, 0.3)))
        assert ("learning rate" in told) == (says is not None)
        assert says is None or says in told


def test_table() -> None:
    imdb = replace(TINY, corpus="imdb")
    head, _, *rows = text_verdicts.table(imdb, ROWS, BAYES).splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert head.split("|")[-2].strip() == "paper"
    assert [row[0] for row in cells] == ["none", "FD", "AdD K=1", "AdD K=2", "naive Bayes"]
    assert cells[0] == ["none", "20.00", "10.00", "1", "", "", "7.164"]
    assert cells[2] == ["AdD K=1", "11.00", "10.00", "1", "δ = 0.04", "0.0039", "6.155"]
    assert cells[4][1:6] == ["16.00", "16.00", "", "presence of words, α = 1", "0.62"]
    assert "paper" not in text_verdicts.table(TINY, ROWS, BAYES)
    assert text_verdicts.told("VAT", {**vars(Setting()), "weight": 3.0}) == "norm 5, weight 3"
    assert text_verdicts.told("AdD K=2 + VAT", vars(Setting())) == "δ = 0.04, norm 5"
    assert text_verdicts.told("FD", vars(Setting())) == "p = 0.1"
    heavy = {**vars(Setting()), "weight": 3.0}
    assert text_verdicts.told("AdD K=2 + VAT", heavy) == "δ = 0.04 with weight 3, norm 5"
    assert text_verdicts.told("AdD K=2", heavy) == "δ = 0.04, weight 3"


def test_verdict() -> None:
    lines = text_verdicts.verdict(replace(TINY, corpus="imdb"), gathered(ROWS)).splitlines()
    assert lines[0] == "- From low test error to high: AdD K=1 11.00, AdD K=2 11.00, FD 12.00, none 20.00."
    assert lines[1] == (
        "- The LSTM without a regularizer does not beat naive Bayes on the same words: 20.00 % against 16.00 %. "
        "After 8.2 epochs its training loss is 0.60 and its validation loss 0.65, where a guess among 2 classes has "
        "0.69: it is still learning, and more steps may help."
    )
    assert lines[2] == "- Lower than none: FD, AdD K=1, AdD K=2; not lower: no method."
    assert lines[3] == (
        "- In 4 of 4 runs the best evaluation was the last: most were still learning, so that the order is one of how "
        "fast they learn as much as of how well."
    )
    assert lines[4] == (
        "- AdD K=1 against FD: 1.00 points lower (McNemar P = 1, not to be told from chance); the paper: -0.19."
    )
    assert (
        lines[5]
        == "- AdD K=2 against AdD K=1: no difference (McNemar P = 1, not to be told from chance); the paper: -0.15."
    )
    assert lines[6].startswith("- Rank correlation with the paper's column over 4 rows: +0.9")
    assert lines[7] == "- Batches with an influence map that was zero in every text: none in any row."
    some = [*ROWS[:2], result("AdD K=1", [1], zero_maps=2), result("AdD K=1", [1], seed=1, zero_maps=1)]
    assert "zero in every text: 3 in the runs of AdD K=1." in text_verdicts.verdict(TINY, gathered(some))
    better = text_verdicts.verdict(TINY, gathered([result("none", [1, 2])]))
    assert "influence map" not in better
    assert "The LSTM without a regularizer beats naive Bayes on the same words: 2.00 % against 16.00 %." in better


@pytest.mark.parametrize(
    ("train", "valid", "classes", "says"),
    [
        (0.36, 0.9, 2, "it is still learning"),
        (0.34, 0.9, 2, "it fits its labelled texts and not others"),
        (0.34, 0.34, 2, "neither short training nor overfitting shows"),
        (0.6, 1.0, 6, "it fits its labelled texts and not others"),
        (1.0, 1.0, 6, "it is still learning"),
    ],
)
def test_where_training_is(train: float, valid: float, classes: int, says: str) -> None:
    """The last losses against log(classes), wherever training began."""
    for first in (0.1, 5.0):
        curve = [(1, first, 0.0, 50.0, first), (2, train, 0.0, 20.0, valid)]
        told = text_verdicts.where_it_is([result("none", [1], curve=curve, classes=classes)])
        assert f"its training loss is {train:.2f} and its validation loss {valid:.2f}" in told
        assert says in told

"""What `minadv show` says of classes, and how its figures are labelled: names, separators, titles, scales."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minadv import plots
from minadv.adversary import Passes, Trace
from minadv.commands import show
from minadv.searches import Reselect
from minadv.tasks import confusion
from minadv.tasks.family import FAMILIES, of_kind
from minadv.tasks.reports import heading, method
from minadv.tasks.run import open_run


def test_counts_and_errors() -> None:
    counts = confusion.confusion(np.array([0, 0, 0, 1, 1, 1, 1]), np.array([0, 1, 0, 1, 1, 0, 1]), 3)
    assert counts.tolist() == [[2, 1, 0], [1, 3, 0], [0, 0, 0]]
    np.testing.assert_allclose(confusion.errors(counts), [100 / 3, 25, np.nan])


def test_the_table_of_few_classes() -> None:
    lines = confusion.table(np.array([[2, 1, 0], [1, 30, 0], [0, 0, 0]]), ("sun", "rain", "fog"))
    assert lines == [
        "class  as sun  as rain  as fog  wrong  error %",
        "sun         2        1       0      1    33.33",
        "rain        1       30       0      1     3.23",
        "fog         0        0       0      0        -",
    ]


def test_the_table_of_many_classes_has_the_worst_first() -> None:
    counts = 10 * np.eye(30, dtype=np.int64)
    counts[7, 3], counts[9, 8], counts[4] = 5, 10, 0
    lines = confusion.table(counts, [f"c{n}" for n in range(30)])
    assert lines[0].split("  ")[0] == "class"
    assert lines[1].split() == ["c9", "20", "10", "50.00", "c8", "(10)"]
    assert lines[2].split() == ["c7", "15", "5", "33.33", "c3", "(5)"]
    assert lines[3].split() == ["c0", "10", "0", "0.00", "-"]
    assert lines[-1] == "(10 more classes, none with a larger error)"
    assert len(lines) == confusion.WORST + 2
    assert not any(line.startswith("c4 ") for line in lines)  # without examples it has no error


def test_no_single_value_sets_a_scale() -> None:
    values = np.array([[1.0, 2.0, 3.0, 1000.0], [0.0, 0.0, 0.0, 4.0], [0.0, 0.0, 0.0, 0.0]])
    assert plots.without_outliers(values).tolist() == [3, 4, 1]


def test_labels_that_would_touch_are_left_out() -> None:
    assert plots.readable([0, 1, 2, 3], 4) == [0, 1, 2, 3]
    assert plots.readable(list(range(100)), 100) == list(range(0, 100, 4))
    assert plots.readable([0, 0.1, 50, 50.1], 100) == [0, 2]


@pytest.mark.parametrize("n_classes", [2, 3, 80])
def test_the_confusion_figure(n_classes: int) -> None:
    pytest.importorskip("matplotlib")
    counts = np.arange(n_classes**2).reshape(n_classes, n_classes)
    names = [f"class {n} that costs 5 $ or $ 6" for n in range(n_classes)]
    figure = plots.confusion(counts, confusion.errors(counts), names)
    left, right, bar = figure.axes
    for axis in (left.xaxis, left.yaxis, right.yaxis):
        said = [label.get_text() for label in axis.get_ticklabels()]
        assert len(said) == (n_classes if n_classes < 25 else 20)
        assert said[0] == r"class 0 that costs …"
    assert ("99th percentile" in bar.get_ylabel()) == (n_classes > 2)
    assert len(left.texts) == (n_classes**2 if n_classes < 16 else 0)  # the zero of the diagonal is written too
    figure.canvas.draw()


def trace(im: Any) -> Trace:
    ones = np.ones_like(im)
    masks = {"eps": {"layer0": ones}, "eps0": {"layer0": ones}, "im": {"layer0": im}}
    return Trace(**masks, d=None, passes=Passes(0, 0), budgets={}, visits=(), search=Reselect(), base=None, flips={})


def test_the_influence_figure_names_classes_and_separates_them() -> None:
    pytest.importorskip("matplotlib")
    im = np.ones((5, 8))
    im[0, 0] = 1000
    figure = plots.influence(trace(im), np.array([2, 0, 2, 0, 2]), "layer0", ("sun", "rain", "$now"))
    top, bottom, bar, _ = figure.axes
    for axis in (top, bottom):
        assert [label.get_text() for label in axis.get_yticklabels()] == ["sun", r"\$now"]
        assert axis.get_yticks().tolist() == [0.5, 3]
        examples, classes = ([path[0, 1] for path in lines.get_segments()] for lines in axis.collections)
        assert examples == [0.5, 1.5, 2.5, 3.5]
        assert classes == [1.5]
    drawn = top.images[0].get_array()
    assert drawn[2, 1:].tolist() == [1] * 7  # the example with the outlier is the first of the second class
    assert "99th percentile" in bar.get_ylabel()
    figure.canvas.draw()


def test_epochs_are_whole_numbers_and_perplexities_have_no_exponents() -> None:
    losses = {"train_loss": 5.0, "valid_loss": 4.9, "regularizer": 0.1}
    records = [{"epoch": float(n), **losses, "valid_perplexity": 300 / n} for n in range(1, 8)]
    figure = plots.curves(records, "perplexity")
    figure.canvas.draw()
    right = figure.axes[1]
    assert [label.get_text() for label in right.get_xticklabels()] == [str(round(x)) for x in right.get_xticks()]
    assert "100" in [label.get_text() for label in right.get_yticklabels()]
    assert {"60", "200"} <= {label.get_text() for label in right.get_yticklabels(minor=True)}


def test_methods_in_words() -> None:
    assert method({"kind": "Plain"}) == method({}) == "Plain"
    assert method({"kind": "AdD", "delta": 0.03, "budgets": None, "p": None}) == "AdD delta 0.03"
    assert method({"kind": "AdD", "budgets": {"layer0": 3, "layer1": 2}}) == "AdD budgets layer0 3, layer1 2"
    both = {"kind": "Sum", "parts": [{"kind": "VD", "p": 0.25}, {"kind": "VAT", "norm": 5.0}]}
    assert method(both) == "VD p 0.25 + VAT norm 5"


def test_titles_say_which_run_it_is(says: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    options = ["--rows", "--hidden", 6, "--batch", 100, "--train-steps", 4, "--eval-every", 2, "--device", "cpu"]
    says("train", "digits", *options, "--method", "vd", "--p", 0.25, "--seed", 3, "--out", tmp_path / "mine")
    run = open_run(tmp_path / "mine")
    best = min(run.records, key=lambda record: record["valid_error"])["step"]
    title = f"mine: VD p 0.25, seed 3, weights of step {best}, the best of 4"
    assert heading(run) == title
    titles = []
    monkeypatch.setattr(plots, "save", lambda figure, path: titles.append(figure.get_suptitle()) or path)
    drawn = [line for line in says("show", tmp_path / "mine", "--examples", 5) if line.endswith(".png")]
    assert titles == [title] * len(drawn) == [title] * 4


def test_every_kind_of_figure_is_known() -> None:
    for kind in FAMILIES:
        assert set(of_kind(kind).figures) <= set(show.FIGURES)

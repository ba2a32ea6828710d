"""The numbers of the walk's last chapter, and that its sentences follow from them."""

import numpy as np
import pytest
from _site import found
from scipy import stats


def test_the_papers_numbers_are_those_of_the_experiments() -> None:
    from experiments.parts import comparison_report, text_verdicts
    from experiments.table3 import PRESETS

    for method, numbers in comparison_report.PAPER.items():
        for task, text in zip("sp", numbers, strict=True):
            if text:
                assert found.PAPER[f"images {task}"][method] == float(text.split()[0])
    assert found.PAPER["texts"] == {method: imdb for method, (imdb, _) in text_verdicts.PAPER.items()}
    published = dict(PRESETS["ptb"].paper)
    assert found.PAPER["words"] == {method: float(text.split("/")[1]) for method, text in published.items()}


def test_rows_are_those_of_the_published_tables() -> None:
    written = (found.RESULTS / "table1-digits.md").read_text()
    for method, scanline, permuted, *_ in found.images("table1-digits"):
        row = next(line for line in written.splitlines() if line.startswith(f"| {method} "))
        assert scanline in row and permuted in row
    written = (found.RESULTS / "stronger.md").read_text().split("## ")[1]
    for method, error, attacked, passes in found.stronger("digits"):
        row = next(line for line in written.splitlines() if line.startswith(f"| {method} "))
        assert f" {error} ± " in row and f" {attacked} ± " in row and f" {passes} " in row
    for name, paper in (("table2-imdb-small", "texts"), ("table3-ptb-small", "words")):
        assert found.one_column(name, paper)[0][0] == "none"


def test_sign_flip_is_exact() -> None:
    d = np.random.default_rng(0).normal(0.4, 1, 8)
    exact = stats.permutation_test((d,), np.sum, permutation_type="samples", n_resamples=np.inf).pvalue
    assert found.sign_flip(d) == pytest.approx(exact)
    assert found.sign_flip(np.ones(5)) == 2 / 32


def test_sentences_about_differences() -> None:
    assert "more than chance" in found.against("table1-digits", "AdD K=2", "none", task="s")
    assert "chance alone" in found.against("table1-digits", "AdD K=2", "AdD K=1", task="s")
    assert "one seed" in found.against("table3-ptb-small", "AdD K=1", "none")


def test_what_the_chapter_says_of_a_stronger_adversary() -> None:
    """Chosen masks: fewer errors than none, far fewer under attack; the greedy search does as well as stronger ones."""
    rows = {method: (float(error), float(attacked)) for method, error, attacked, _ in found.stronger("digits")}
    chosen = [rows[method] for method in ("greedy K=1", "greedy K=2", "reselect", "Relax", "Memory")]
    assert all(error < rows["none"][0] and attacked < rows["none"][1] / 2 for error, attacked in chosen)
    assert rows["greedy K=2"][0] <= min(error for error, _ in chosen) + 0.2


def test_what_the_chapter_says_of_random_masks_under_attack() -> None:
    """Pairs of random masks: nearly as few errors under attack as chosen masks, and fewer than one of the searches."""
    attacked = {method: float(error) for method, _, error, _ in found.stronger("digits")}
    chosen = [attacked[method] for method in ("greedy K=1", "greedy K=2", "reselect", "Relax", "Memory")]
    pairs = [attacked["FD"], attacked["RDrop"]]
    assert max(pairs) - max(chosen) < (attacked["none"] - max(chosen)) / 20
    assert min(pairs) < max(chosen)

"""The numbers of the walk's last chapter, and that its sentences follow from them."""

from _site import found


def test_the_papers_numbers_are_those_of_the_experiments() -> None:
    from experiments.parts import comparison_report, text_verdicts
    from experiments.table3 import PRESETS

    for method, numbers in comparison_report.PAPER.items():
        if numbers[0]:
            assert found.PAPER["images"][method] == float(numbers[0].split()[0])
    assert found.PAPER["texts"] == {method: imdb for method, (imdb, _) in text_verdicts.PAPER.items()}
    published = dict(PRESETS["ptb"].paper)
    assert found.PAPER["words"] == {method: float(text.split("/")[1]) for method, text in published.items()}


def test_rows_are_those_of_the_published_tables() -> None:
    for task in ("digits", "mnist-2000"):
        written = (found.RESULTS / f"compare-{task}.md").read_text()
        for method, *cells, _ in found.compared(task):
            row = next(line for line in written.splitlines() if line.startswith(f"| {method} "))
            assert all(f" {cell} " in row for cell in cells)
    written = (found.RESULTS / "stronger.md").read_text().split("## ")[1]
    for method, error, attacked, passes in found.stronger("digits"):
        row = next(line for line in written.splitlines() if line.startswith(f"| {method} "))
        assert f" {error} ± " in row and f" {attacked} ± " in row and f" {passes} " in row
    for name, paper in (("table2-imdb-small", "texts"), ("table3-ptb-small", "words")):
        assert found.one_column(name, paper)[0][0] == "none"


def test_sentences_about_differences() -> None:
    assert found.said("mnist-2000", ("AdD K=2", "none")).startswith("AdD K=2 is better than none (-1.58 [")
    assert found.said("mnist-2000", ("Relax", "AdD K=2")).startswith("Relax cannot be told from AdD K=2 (")
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


def test_what_the_chapter_says_of_longer_training() -> None:
    rows = found.rows.reported(found.read("compare-digits"))
    told = ("best_epoch", "valid_loss", "test")
    same = [all(rows["none"][seed][name] == r[name] for name in told) for seed, r in rows["none, 4 x longer"].items()]
    assert 2 * sum(same) == len(same) == 10


def test_what_the_chapter_says_of_flips() -> None:
    rows = found.rows.reported(found.read("compare-mnist-2000"))
    strength = {row: by_seed[0]["strength"] for row, by_seed in rows.items()}
    assert all(strength["AdD K=2"] == 2 * strength[row] for row in ("AdD K=1", "reselect", "Memory"))


def test_what_the_chapter_says_of_cost() -> None:
    for task in ("digits", "mnist-2000"):
        rows = found.rows.reported(found.read(f"compare-{task}"))
        seconds = {row: sum(r["seconds"] for r in by_seed.values()) for row, by_seed in rows.items()}
        assert seconds["FD, 2 networks"] > seconds["AdD K=2"]


def test_what_the_chapter_says_of_images() -> None:
    for task in ("digits", "mnist-2000"):
        pairs = found.questions.differences(found.read(f"compare-{task}"))
        beyond = {pair: difference.mean for pair, (difference, p) in pairs.items() if p < 0.05}
        assert all(beyond[row, "none"] < 0 for row in ("AdD K=1", "AdD K=2", "reselect", "Relax", "Memory", "FD"))
        assert ("none, 4 x longer", "none") not in beyond
        rows = {row: float(error.split()[0]) for row, error, *_ in found.compared(task)}
        assert min(rows, key=lambda row: rows[row]) == "FD, 2 networks"
        assert ("Relax", "AdD K=2") not in beyond
        told_apart = {("AdD K=2", "FD"), ("AdD K=2", "AdD K=1"), ("reselect", "AdD K=2"), ("Memory", "AdD K=2")}
        assert told_apart & beyond.keys() == (told_apart if task == "mnist-2000" else set())
    assert beyond["AdD K=2", "FD, 2 networks"] > 0
    assert beyond["AdD K=2", "FD"] < 0 and beyond["AdD K=2", "AdD K=1"] < 0
    assert beyond["reselect", "AdD K=2"] > 0 and beyond["Memory", "AdD K=2"] > 0

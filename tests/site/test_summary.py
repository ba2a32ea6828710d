"""The summary of all comparisons: its sentences are no stronger than the tests, its figure has every row."""

import copy

from _site import results, summary

from experiments.parts.compared.rows import reported


def test_sentences_count_tasks_by_their_tests():
    found = {"mnist-2000": results.load("compare-mnist-2000")}
    first, second, third, *_ = said = summary.sentences(found)
    assert len(said) == 5
    assert first == (
        "**The adversary against no regularizer**: AdD K=1 is better than none in 1 of 1 tasks; "
        "AdD K=2 is better than none in 1 of 1 tasks."
    )
    assert "AdD K=1 is not to be told from FD in 1 of 1 tasks; AdD K=2 is better than FD in 1 of 1 tasks" in second
    other = copy.deepcopy(found["mnist-2000"])
    for r in other["results"]:
        if r["method"] == "AdD K=2":
            r["test"] += 5
    both = summary.sentences({**found, "other": other})
    assert third.endswith("AdD K=2 is better than AdD K=1 in 1 of 1 tasks.")
    assert both[2].endswith("AdD K=2 is better than AdD K=1 in 1 of 2 tasks, worse than it in 1.")


def test_runs_that_two_tasks_share_are_counted_once():
    """Where unlabelled examples are added, VD and none do not read them: their runs are those of the task without."""
    data = results.load("compare-mnist-2000")
    task = data["facts"]["task"]
    unlabelled = {**task, "name": "mnist-2000-unlabelled", "sizes": [*task["sizes"], ["unlabelled", True]]}
    alone = {"mnist-2000-unlabelled": {**data, "facts": {**data["facts"], "task": unlabelled}}}
    found = {"mnist-2000": data, **alone}
    assert summary.tally(found, "VD", "none").endswith("in 1 of 1 tasks")
    assert summary.tally(alone, "VD", "none").endswith("in 1 of 1 tasks")
    assert summary.tally(found, "AdD K=1", "none").endswith("in 2 of 2 tasks")


def test_ensembles_are_told_whatever_their_number():
    data = copy.deepcopy(results.load("compare-mnist-2000"))
    data["facts"]["task"]["sizes"].append(["unlabelled", True])
    for r in data["results"]:
        if r["method"] == "none" and "networks" in r:
            r["networks"] = 8
    told = summary.tally({"mnist-2000": results.load("compare-mnist-2000"), "x": data}, "AdD K=2", "none, N networks")
    assert told.endswith("none, N networks in 2 of 2 tasks")


def test_a_pair_that_no_task_compares_is_left_out():
    data = copy.deepcopy(results.load("compare-mnist-2000"))
    data["results"] = [r for r in data["results"] if r["method"] in ("none", "AdD K=1")]
    said = summary.sentences({"one": data})
    assert [line.split("**")[1] for line in said] == ["The adversary against no regularizer"]


def test_the_figure_has_every_row_with_its_interval():
    found = summary.comparisons()
    drawn = summary.figure(found)
    for name, data in found.items():
        assert name in drawn.text
        for row in reported(data):
            assert row == "none" or f"{row} " in drawn.text
    assert drawn.html.count("<circle") == sum(len(reported(data)) - 1 for data in found.values())


def test_every_comparison_is_of_the_plan():
    files = {path.stem.removeprefix("compare-") for path in results.RESULTS.glob("compare-*.json")}
    assert set(summary.comparisons()) == files

"""What a comparison says of given numbers."""

from typing import Any

import pytest

pytest.importorskip("safetensors")
pytest.importorskip("tqdm", reason="experiments show progress")

from experiments.parts import reporting
from experiments.parts.compared import makers, report
from experiments.parts.compared.choice import best_setting
from experiments.parts.compared.questions import differences
from experiments.parts.compared.verdict import verdict
from experiments.parts.statistics import coverage, detectable
from tests.support.comparisons import made_up


@pytest.fixture(autouse=True)
def once(device: Any) -> None:
    if device.name == "gpu":
        pytest.skip("the same on every backend")


def test_the_verdict_is_no_stronger_than_its_test() -> None:
    data = made_up({"none": 8.0, "FD": 6.0, "AdD K=2": 6.0}, noise=0.3)
    text = verdict(data)
    assert "AdD K=2 is better than none" in text
    assert "AdD K=2 cannot be told from FD" in text
    assert "AdD K=2 is worse than none" in verdict(made_up({"none": 6.0, "FD": 6.0, "AdD K=2": 8.0}))


def test_whether_none_converged_is_said() -> None:
    data = made_up({"none": 8.0, "FD": 6.0})
    none = [r for r in data["results"] if r["method"] == "none"]
    data["results"] += [{**r, "longer": 4, "test": r["test"] + 0.1 * (-1) ** r["seed"]} for r in none]
    assert "Converged: " in report.page(data) and "its least: epoch 1.2" in report.page(data)
    assert "more training" not in report.page(data)
    for r in data["results"]:
        r["valid_losses"] = [3.0, 2.0, 1.5, 1.4, 1.3]
    assert "Not converged: " in report.page(data)
    assert "(its least: epoch 2, 7.1 % below the least before that)" in report.page(data)
    assert "What more training does: none, 4 x longer cannot be told from none" in report.page(data)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("digest", "e", "different settings"),
        ("data", "y", "different data"),
        ("began", "y", "different language models"),
        ("weight", 9.0, "FD have 2 different"),
    ],
)
def test_runs_that_differ_do_not_make_a_table(name: str, value: Any, said: str) -> None:
    data = made_up({"none": 8.0, "FD": 6.0})
    data["results"][-1][name] = value
    with pytest.raises(ValueError, match=said):
        report.page(data)


def test_rows_made_by_different_code_are_said_to_be() -> None:
    data = made_up({"none": 8.0, "FD": 6.0})
    data["results"][-1]["made"] = {**data["results"][-1]["made"], "commit": "1234567890", "dirty": False}
    assert "commit 1234567" in report.page(data)


def test_settings_are_chosen_by_the_mean_of_validation_then_by_loss() -> None:
    def tried(strength: float, valid: float, loss: float, seed: int) -> dict[str, Any]:
        return {"method": "FD", "strength": strength, "weight": 1.0, "valid": valid, "valid_loss": loss, "seed": seed}

    results = [tried(0.1, 5, 1, 1000), tried(0.1, 7, 1, 1001), tried(0.2, 6, 0.5, 1000), tried(0.2, 6, 0.5, 1001)]
    assert best_setting(results, "FD") == (0.2, 1.0)
    results[1]["valid"] = 6
    assert best_setting(results, "FD") == (0.1, 1.0)


def test_rows_at_equal_cost_have_the_numbers_of_their_task() -> None:
    data = made_up({"none": 8.0, "FD": 7.0, "AdD K=2": 6.0}, noise=0.3)
    data["facts"]["task"]["sizes"].append(["unlabelled", True])
    for method, n in (("none", 8), ("FD", 2)):
        own = [r for r in data["results"] if r["method"] == method]
        data["results"] += [{**r, "longer": n} for r in own] + [{**r, "networks": n} for r in own]
    text = report.page(data)
    cells = [line.split("|") for line in report.table(data).splitlines()]
    passes = {row[1].strip(): row[-3].strip() for row in cells}
    assert passes["none"] == "1 + 1" and passes["FD"] == "4 + 4"
    for row in ("none, 8 x longer", "none, 8 networks", "FD, 2 x longer", "FD, 2 networks", "AdD K=2"):
        assert passes[row] == "8 + 8"
    assert "AdD K=2 is better than none, 8 x longer" in text and "| AdD K=2 - none, 8 networks" in text


def test_networks_of_an_ensemble_are_counted_once() -> None:
    data = made_up({"none": 8.0, "FD": 6.0})
    none = [r for r in data["results"] if r["method"] == "none"]
    before = report.page(data)
    data["results"] += [{**r, "networks": 4, "seconds": 7200.0} for r in none]
    for text in (before, report.page(data)):
        assert "core time 0.00 h in 12 runs" in text


def test_a_longer_training_that_reports_the_short_ones_network_is_said_to() -> None:
    data = made_up({"none": 8.0, "FD": 6.0})
    for r in data["results"]:
        r |= {"best_epoch": 1.2, "valid_loss": 1.0}
    none = [r for r in data["results"] if r["method"] == "none"]
    assert "very network" not in report.page(data)
    data["results"] += [{**r, "longer": 4, "best_epoch": 1.2 if r["seed"] < 2 else 5.0} for r in none]
    assert "For 2 of 6 seeds none, 4 x longer reports the very network of none" in report.page(data)


def test_makers_are_written_once_and_read_back() -> None:
    here = reporting.machine()
    made = [{**here, "engine": "fast-3"}, {**here, "engine": "fast-3"}, {**here, "numpy": "9.9", "before": [here]}]
    results: list[dict[str, Any]] = [{"seed": n, "made": one} for n, one in enumerate(made)]
    table, numbered = makers.written([*results, {"seed": 3}])
    assert [r.get("made") for r in numbered] == [0, 0, 1, None] and len(table) == 2
    read = makers.read({"facts": {"makers": table}, "results": numbered})
    assert read[1]["made"] == makers.maker(made[1])
    assert read[2]["made"]["before"] == [makers.maker(here)] and read[2]["made"]["numpy"] == "9.9"
    assert read[3] == {"seed": 3}


def test_the_page_names_all_that_made_its_runs() -> None:
    data = made_up({"none": 8.0, "FD": 6.0})
    first = data["results"][0]["made"]
    data["results"][0]["made"] = {**first, "before": [{**first, "commit": "abcdef123", "dirty": False}]}
    last = {**first, "numpy": "9.9", "date": "2026-11-19"}
    data["results"].append({**data["results"][0], "part": "settings", "made": last})
    data["facts"]["numpy"] = "7.7"
    for page in (report.page(data), report.page(data | {"results": makers.read(data)})):
        assert "commit abcdef1" in page and f"NumPy {first['numpy']}, 9.9; 2026-11-19." in page
    for r in data["results"]:
        r["made"] = {name: first[name] for name in ("cpu", "minadv", "commit", "dirty")}
    del data["results"][-1]["made"]
    assert "not known of 1 of 13" in report.page(data) and "NumPy not noted of the runs" in report.page(data)


def test_a_page_tells_what_its_tests_could_tell() -> None:
    text = report.page(made_up({"none": 8.0, "FD": 6.0, "AdD K=2": 6.0}))
    first, last = (f"{limit:.1f}" for limit in detectable(6, 3))
    assert first != last
    assert f"With 6 seeds and 3 comparisons\nthe test tells a mean difference from {first} of its" in text
    assert f"and from {last} on if" in text
    assert f"in it {100 * coverage(6):.0f} times\nof 100, not 95" in text
    assert "times of 100" not in report.page(made_up({"none": 8.0, "FD": 6.0}, seeds=1))


def test_a_learning_rate_at_the_edge_of_those_tried_is_named() -> None:
    data = made_up({"none": 8.0, "FD": 6.0})
    assert "The learning rate chosen, 0.01, is the largest of the 2 that were tried." in report.page(data)
    data["facts"]["task"]["lrs"] = [1e-2, 1e-1]
    assert "is the least of the 2 that were tried." in report.page(data)
    for rates in ([1e-3, 1e-2, 1e-1], [1e-2]):
        data["facts"]["task"]["lrs"] = rates
        assert "that were tried." not in report.page(data).replace("strongest that was tried", "")


def test_digits_that_are_tested_on_have_been_seen_in_choosing() -> None:
    data = made_up({"none": 8.0, "FD": 6.0})
    assert "most test images of a reported seed were training" in report.page(data)
    data["facts"]["task"]["sizes"][0] = ["images", "mnist"]
    assert "most test images" not in report.page(data)


def test_ensembles_are_compared_where_that_was_planned_before_the_runs() -> None:
    data = made_up({"none": 8.0, "FD": 7.0})
    for method, n in (("none", 4), ("FD", 2)):
        data["results"] += [{**r, "networks": n} for r in data["results"] if r["method"] == method]
    pair = ("FD, 2 networks", "none, 4 networks")
    assert pair in differences(data) and "FD, 2 networks is better than none, 4 networks" in report.page(data)
    for name in ("digits", "mnist-2000", "mnist-20000"):
        data["facts"]["task"]["name"] = name
        assert pair not in differences(data)

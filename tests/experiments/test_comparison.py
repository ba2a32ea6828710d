"""The comparison of methods in miniature: searched, run, resumed, told."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

pytest.importorskip("safetensors")
pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
pytest.importorskip("matplotlib", reason="figures need matplotlib")
pytest.importorskip("threadpoolctl", reason="experiments set BLAS threads")

from experiments import digits, table1
from experiments.bench import images as bench_images
from experiments.parts import comparison, cost, reporting
from experiments.parts.comparison import Job, Preset, best_setting, compare
from experiments.parts.comparison_report import errors, figure, p_value, table, verdict, wilcoxon
from minadv.backend import Device
from minadv.cli import main
from minadv.regularizers import RDrop
from minadv.tasks.images import task
from minadv.training.runs import checkpoints
from minadv.training.runs.folder import RunError
from tests.support.idxfiles import write_four

METHODS = ("VD", "AdD K=1")
TINY = ["--preset", "tiny"]
"""The options of a preset that a test puts into its place."""
SMALL = Preset("small", "digits", "row", 2, 8, 0.5, 1, batch=200, tasks=("s",))


@pytest.fixture(autouse=True)
def in_this_process(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of their own take longer than the work."""
    if device.name == "gpu":
        pytest.skip("the comparison runs on the host")
    monkeypatch.setattr(comparison.reporting, "run_all", lambda work, tasks, **how: [work(task) for task in tasks])


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("comparison")


def small(root: Path, preset: Preset = SMALL, methods: Any = METHODS, seeds: int = 1) -> Any:
    return compare(preset, methods=methods, seeds=seeds, workers=1, root=root, data_dir=None)


def test_searched_then_run(root: Path) -> None:
    searched, results = small(root)
    assert [(r["method"], r["strength"], r["weight"]) for r in searched] == [
        (method, *setting) for method in METHODS for setting in comparison.settings(method, 8)
    ]
    assert all(len(comparison.settings(method, 8)) == 4 for method in METHODS)  # the same chance for each
    assert [(r["method"], r["seed"]) for r in results] == [("VD", 0), ("AdD K=1", 0)]
    for r in results:
        best = min((s["valid"]["error"], s["valid"]["loss"]) for s in searched if s["method"] == r["method"])
        chosen = next(s for s in searched if (s["valid"]["error"], s["valid"]["loss"]) == best)
        assert (r["strength"], r["weight"]) == (chosen["strength"], chosen["weight"])
    assert all(s["seed"] == comparison.SEARCH_SEED for s in searched)


def test_a_second_call_does_no_work(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = small(root)
    monkeypatch.setattr(comparison, "fit", None)
    assert json.dumps(small(root)) == json.dumps(first)


def test_a_killed_run_goes_on(root: Path) -> None:
    """Without its result, and back at an older checkpoint, it ends where it ended."""
    small(root)
    [run] = (root / "small" / "final").glob("s-VD-*")
    result, log = json.loads((run / "result.json").read_text()), (run / "log.jsonl").read_text()
    (run / "result.json").unlink()
    (run / "log.jsonl").write_text(log[:-10])
    for path in (run / "checkpoints").iterdir():
        path.unlink()
    small(root)
    again = json.loads((run / "result.json").read_text())
    assert {**again, "seconds": 0} == {**result, "seconds": 0}
    assert min(again["seconds"], result["seconds"]) >= 0
    assert checkpoints.latest(run) is not None


def test_the_command_line_opens_its_runs(root: Path, capsys: Any) -> None:
    small(root)
    for run in (root / "small" / "final").iterdir():
        result = json.loads((run / "result.json").read_text())
        assert main(["eval", str(run), "--last"]) == 0
        assert capsys.readouterr().out.startswith(f"test error {result['test']['error']:.2f} %")


def test_without_a_search(tmp_path: Path) -> None:
    preset = Preset("plain", "digits", "row", 2, 8, 0.5, 1, batch=400, search=False, optimizer="rmsprop")
    methods = ("none", "FD", "AdD K=2", "AdD reselect")
    searched, results = small(tmp_path, preset, methods)
    assert searched == []
    assert [(r["method"], r["task"]) for r in results] == [(m, task) for m in methods for task in ("s", "p")]
    settings = {r["method"]: (r["strength"], r["weight"]) for r in results}
    assert settings == {m: comparison.settings(m, 8)[0] for m in methods}


def result(method: str, seed: int, error: float, valid: float = 0.0, **more: Any) -> dict[str, Any]:
    base = {
        "method": method,
        "task": "s",
        "seed": seed,
        "strength": 0.1,
        "weight": 1.0,
        "curve": [(1, 9.0), (2, error)],
    }
    return {**base, "test": {"error": error}, "valid": {"error": valid, "loss": 1.0}, **more}


RESULTS = [
    result(method, seed, base + seed % 3 / 10 + seed / 100)
    for method, base in (("none", 3.0), ("FD", 2.0), ("AdD K=1", 1.0), ("AdD K=2", 1.0))
    for seed in range(6)
]
ALL = ("none", "FD", "AdD K=1", "AdD K=2")


def test_r_drop_is_run_where_it_is_named(tmp_path: Path) -> None:
    assert set(comparison.AVAILABLE) - set(comparison.METHODS) == {"RDrop"}
    job = Job(SMALL, "RDrop", "s", 0, *comparison.settings("RDrop", 8)[1], "final", tmp_path, None)
    assert comparison.regularizer(job) == RDrop(p=0.2)
    results = compare(
        replace(SMALL, search=False), methods=["none", "RDrop"], seeds=1, root=tmp_path, data_dir=None, workers=1
    )[1]
    assert [r["method"] for r in results] == ["none", "RDrop"]
    assert "\n| RDrop " in table(SMALL, results, ["none", "RDrop"])


def test_settings_are_chosen_by_validation() -> None:
    """Never by the test error; by the loss between equals."""
    trials = [
        result("FD", 0, 1.0, valid=5.0, strength=0.1),
        result("FD", 0, 9.0, valid=4.0, strength=0.2),
        {**result("FD", 0, 9.0, strength=0.3), "valid": {"error": 4.0, "loss": 0.9}},
        result("VD", 0, 0.0, valid=0.0, strength=0.4),
        result("FD", 0, 0.0, valid=0.0, strength=0.5, task="p"),
    ]
    assert best_setting(trials, "FD", "s") == (0.3, 1.0)
    assert best_setting(trials, "FD", "p") == (0.5, 1.0)
    assert best_setting(trials, "EL", "s") is None


def test_table() -> None:
    head, rule, *rows = table(SMALL, RESULTS, ALL).splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert len(head.split("|")) == len(rule.split("|"))
    assert [row[0] for row in cells] == list(ALL)
    assert cells[0][1:5] == ["3.12 ± 0.10", "", "", "0.031"]
    assert cells[2][1:5] == ["1.12 ± 0.10", "0.1, 1", "0.031", "0.031"]
    assert cells[2][5:] == [], "the paper's figures are for MNIST"
    mnist = table(replace(SMALL, images="mnist"), RESULTS, ALL).splitlines()[4]
    assert mnist.endswith("| .705 ± .047  | 5.046 ± .067 |")


def test_verdict() -> None:
    assert verdict(SMALL, RESULTS, ALL).splitlines() == [
        "- scanline, from low error to high: AdD K=1 1.12, AdD K=2 1.12, FD 2.12, none 3.12.",
        "  - AdD K=1 against none: 2.00 points lower (Wilcoxon P = 0.031)",
        "  - AdD K=1 against FD: 1.00 points lower (Wilcoxon P = 0.031)",
        "  - AdD K=2 against none: 2.00 points lower (Wilcoxon P = 0.031)",
        "  - AdD K=2 against FD: 1.00 points lower (Wilcoxon P = 0.031)",
        "  - AdD K=2 against AdD K=1: no difference",
    ]
    nearly = [result(m, seed, 1 + seed / 10 + (m == "FD") * 0.001) for m in ("FD", "AdD K=1") for seed in range(6)]
    assert verdict(SMALL, nearly, ("FD", "AdD K=1")).endswith("against FD: no difference (Wilcoxon P = 0.031)")


def test_tests_need_seeds() -> None:
    assert errors(RESULTS, "FD", "s") == [2.0, 2.11, 2.22, 2.03, 2.14, 2.25]
    assert p_value([1, 2, 3, 4], [2, 3, 4, 5]) == ""
    assert p_value([1, 2, 3, 4, 5], [2, 3, 4, 5, 7]) == "0.062"
    assert p_value([1, 2, 3, 4, 5], [1, 2, 3, 4]) == ""
    assert p_value([1.0] * 6, [1.0] * 6) == ""


def test_equal_gaps_are_ties(rng: np.random.Generator) -> None:
    """Errors are per cents of whole images: gaps that are equal differ in their last bits."""
    wrong = np.array(
        [[19, 12], [17, 17], [13, 12], [29, 14], [17, 13], [14, 17], [22, 11], [21, 15], [20, 15], [19, 17]]
    )
    mine, other = (100 * wrong / 360).T
    gaps = [a - b for a, b in wrong.tolist() if a != b]
    ranks = stats.rankdata(np.abs(gaps))
    sums = [sum(r for r, s in zip(ranks, signs, strict=True) if s) for signs in np.ndindex(*(2,) * len(gaps))]
    found = sum(r for r, gap in zip(ranks, gaps, strict=True) if gap > 0)
    assert p_value(mine, other) == f"{2 * np.mean([s >= found for s in sums]):.3f}"
    for n in (5, 8, 12):
        free = rng.standard_normal(n)  # without ties, as SciPy has it
        assert wilcoxon(free) == pytest.approx(stats.wilcoxon(free, method="exact").pvalue)
    many = rng.standard_normal(30)
    assert p_value(many, 0 * many) == f"{stats.wilcoxon(np.round(many, 6)).pvalue:.3f}"


def test_figure(tmp_path: Path) -> None:
    path = reporting.save_figure(figure(SMALL, RESULTS, ALL), tmp_path / "small.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size > 10_000


def test_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """The README's command, in miniature."""
    monkeypatch.setattr(digits, "PRESET", Preset("few", "digits", "row", 2, 8, 0.5, 1, batch=600, search=False))
    digits.main(["--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out")])
    *_, json_path, table_path, figure_path = capsys.readouterr().out.split()
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"digits.json", "digits.md", "digits.png"}
    assert all(f"\n| {method} " in Path(table_path).read_text() for method in comparison.METHODS)
    assert len(json.loads(Path(json_path).read_text())["results"]) == 2 * len(comparison.METHODS)
    assert Path(figure_path).stat().st_size > 10_000


def test_table1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setitem(table1.PRESETS, "tiny", Preset("tiny", "digits", "row", 2, 8, 0.5, 1, batch=600))
    options = [
        *TINY,
        "--methods",
        "none",
        "VD",
        "--seeds",
        "2",
        "--runs",
        str(tmp_path / "runs"),
        "--out",
        str(tmp_path),
    ]
    table1.main(options)
    data = json.loads((tmp_path / "table1-tiny.json").read_text())
    assert (len(data["search"]), len(data["results"]), data["facts"]["seeds"]) == (8, 8, 2)
    text = (tmp_path / "table1-tiny.md").read_text()
    assert "mean ± standard deviation over 2 seeds" in text
    assert f"{reporting.core_time(data['search'] + data['results'])} in 16 runs" in text
    assert text.endswith(verdict(table1.PRESETS["tiny"], data["results"], ["none", "VD"]) + "\n")
    assert f"Made on: {data['facts']['cpu']}, {reporting.at_commit(data['facts'])}." in text
    (tmp_path / "table1-tiny.md").unlink()
    with monkeypatch.context() as later:  # the text is of the preset that the numbers are of
        later.setitem(table1.PRESETS, "tiny", replace(table1.PRESETS["tiny"], epochs=7, lr=0.5))
        table1.main([*TINY, "--report-only", "--out", str(tmp_path)])
    assert (tmp_path / "table1-tiny.md").read_text() == text
    table1.main([*TINY, "--methods", "none", "--runs", str(tmp_path / "runs")])  # a part is not written over the whole
    assert (tmp_path / "runs" / "table1-tiny.md").exists()


def test_estimate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """The steps and evaluations that it counts are those that the comparison then makes."""
    preset = Preset("tiny", "digits", "row", 2, 8, 2, 2, batch=200, search_epochs=1.5, tasks=("s",))
    monkeypatch.setitem(table1.PRESETS, "tiny", preset)
    monkeypatch.setattr(cost, "SECONDS", 0.1)
    options = [
        *TINY,
        "--methods",
        "none",
        "VD",
        "--device",
        "cpu",
        "--runs",
        str(tmp_path / "runs"),
        "--out",
        str(tmp_path),
    ]
    table1.main([*options, "--estimate"])
    rows = json.loads((tmp_path / "table1-tiny-cost.json").read_text())["rows"]
    assert not (tmp_path / "runs").exists()
    seen = {"runs": 0, "steps": 0, "images": 0}
    fit, evaluate = comparison.fit, task.evaluate

    def fit_(*args: Any, recipe: Any, **how: Any) -> Any:
        seen["runs"] += 1
        seen["steps"] += recipe.steps
        return fit(*args, recipe=recipe, **how)

    def evaluate_(model: Any, params: Any, split: Any, **how: Any) -> Any:
        seen["images"] += len(split)
        return evaluate(model, params, split, **how)

    monkeypatch.setattr(comparison, "fit", fit_)
    for module in (comparison, task):
        monkeypatch.setattr(module, "evaluate", evaluate_)
    table1.main(options)
    assert {name: sum(row[name] for row in rows) for name in seen} == seen
    for row in rows:
        parts = row["runs"] * row["begin"] + row["steps"] * row["step"] + row["images"] * row["image"]
        assert row["seconds"] == pytest.approx(parts)
    with pytest.raises(SystemExit):
        table1.main([*options, "--estimate", "--report-only"])


def test_what_an_estimate_says() -> None:
    row = {"method": "VD", "runs": 3, "steps": 4000, "step": 0.25, "seconds": 7200.0}
    about = {**reporting.machine(), "command": "it", "cores": 2, "preset": asdict(SMALL)}
    for facts, workers, hours in (({**about, "workers": 1}, 1, "4.0"), (about, 2, "2.0")):
        text = cost.page({"facts": facts, "rows": [row, row]})
        assert f"About {hours} hours with {workers} process{'es' * (workers > 1)}.\n" in text
        assert "| VD     | 3    | 4000  | 250.0     | 2.00            |" in text
        assert "| all    | 6    | 8000  |           | 4.00            |" in text


def test_runs_of_another_preset_are_not_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    preset = Preset("tiny", "digits", "row", 2, 8, 0.5, 1, batch=600, search=False, tasks=("s",))
    options = [*TINY, "--methods", "none", "--device", "cpu", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path)]
    monkeypatch.setitem(table1.PRESETS, "tiny", preset)
    table1.main(options)
    monkeypatch.setitem(table1.PRESETS, "tiny", replace(preset, lr=0.02))
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        table1.main(options)
    assert stopped.value.code == 2
    *_, line = capsys.readouterr().err.splitlines()
    assert "was made with another recipe" in line
    assert line.endswith("or delete its folder, or give another one with --runs")


def test_runs_on_other_images_are_not_taken_over(tmp_path: Path, capsys: Any) -> None:
    preset = Preset("idx", "mnist", "row", 7, 6, 1, 1, batch=10, search=False, tasks=("s",))
    for name, n in (("a", 24), ("b", 36)):
        write_four(tmp_path / name, n_train=n, n_test=8)

    def call(name: str) -> Any:
        given = {"methods": ("none",), "seeds": 1, "workers": 1, "root": tmp_path / "runs"}
        return compare(preset, data_dir=str(tmp_path / name), **given)

    _, [first] = call("a")
    assert "used as they are" not in capsys.readouterr().err
    assert json.dumps(call("a")[1]) == json.dumps([first])
    assert "used as they are" in capsys.readouterr().err
    with pytest.raises(RunError, match="was made with other data"):
        call("b")


@pytest.mark.parametrize(("experiment", "which"), [(table1, TINY), (digits, [])])
def test_the_device_reaches_the_training(
    experiment: Any, which: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """On a GPU, one process; none is there, so that the first training ends the experiment."""

    class Trained(Exception):
        pass

    def fit(*args: Any, device: str, **how: Any) -> None:
        raise Trained(device)

    def run_all(work: Any, tasks: Any, *, workers: int, title: str) -> Any:
        assert workers == 1
        return [work(task) for task in tasks]

    monkeypatch.setitem(table1.PRESETS, "tiny", replace(SMALL, name="tiny", search=True))
    monkeypatch.setattr(comparison, "fit", fit)
    monkeypatch.setattr(comparison.reporting, "run_all", run_all)
    monkeypatch.setattr(reporting, "choose_device", lambda device: Device(device, None, "a GPU, it is said"))
    with pytest.raises(Trained, match="gpu"):
        experiment.main([*which, "--device", "gpu", "--workers", "7", "--runs", str(tmp_path), "--out", str(tmp_path)])
    assert capsys.readouterr().err == "device: a GPU, it is said\n"


def test_only_the_search_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {}

    def fit(*args: Any, recipe: Any, out: Path, **how: Any) -> None:
        seen[out.parent.name] = recipe.steps
        raise NotImplementedError

    monkeypatch.setattr(comparison, "fit", fit)
    preset = replace(SMALL, epochs=4, search_epochs=1, batch=100)
    for part in ("search", "final"):
        with pytest.raises(NotImplementedError):
            comparison.work(Job(preset, "VD", "s", 0, 0.1, 0.0, part, tmp_path, None))
    per_epoch = 1257 // 100
    assert seen == {"search": per_epoch, "final": 4 * per_epoch}


def test_bench_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """The benchmark of the paper's size in miniature, in this process."""
    tiny = replace(SMALL, optimizer="rmsprop", lr=1e-3)
    monkeypatch.setattr(bench_images, "PRESET", tiny)
    monkeypatch.setattr(bench_images, "call", lambda name, threads, **given: bench_images.measure(**given))
    bench_images.main(["--rounds", "2", "--methods", "none", "AdD K=1", "--out", str(tmp_path)])
    results = json.loads((tmp_path / "bench_images.json").read_text())
    assert list(results["rows"]) == ["none", "AdD K=1"]
    for row in results["rows"].values():
        assert len(row["seconds"]) == len(row["losses"]) == 2
        assert row["T"] == 4
        assert row["peak"] > 0
    assert "--out DIR" in results["facts"]["command"]
    assert f"batches of {tiny.batch}" in capsys.readouterr().out

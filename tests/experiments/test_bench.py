"""The benchmark in miniature: it races, measures, merges what is run apart, and its verdicts follow the numbers."""

import json
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="figures need matplotlib")
pytest.importorskip("threadpoolctl", reason="experiments set BLAS threads")
pytest.importorskip("tqdm", reason="experiments show their progress")

from experiments.bench import __main__ as bench
from experiments.bench import measures as bench_measures
from experiments.bench import report as bench_report
from experiments.bench import speed as bench_speed
from experiments.bench import verdicts as bench_verdicts
from experiments.bench.contenders.problem import Outcome, Size
from experiments.bench.contenders.processes import ContenderError
from experiments.bench.contenders.registry import ACCURATE, FAMILIES, JAX, LIMIT, OURS, SHARED, TORCH, TWO
from minadv.fast import elementwise

TINY = Size("S", T=5, B=4, I=2, H=10, delta=0.3)


@pytest.fixture(autouse=True)
def host_only(request):
    if request.config.getoption("backend") == "cupy":
        pytest.skip("the benchmark runs on the host")


def first_settings(*names):
    """Families in their first setting only."""
    return {name: replace(FAMILIES[name], settings=FAMILIES[name].settings[:1]) for name in names}


def test_the_whole_in_parts(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(bench, "SIZES", {"S": TINY, "text400": replace(TINY, name="text400")})
    monkeypatch.setattr(bench, "FAMILIES", first_settings(OURS, "textbook NumPy", LIMIT))
    monkeypatch.setattr(bench_speed, "PAUSE", 0)
    monkeypatch.setattr(bench, "call", lambda name, *, threads=None, **given: _here(name, given))
    common = ["--rounds", "2", "--out", str(tmp_path)]
    bench.main(["--parts", "speed", "memory", *common])
    first = json.loads((tmp_path / "bench.json").read_text())
    bench.main(["--parts", "accuracy", "searches", "subnormals", "remat", "--seeds", "1", *common])
    results = json.loads((tmp_path / "bench.json").read_text())
    assert results["speed"] == first["speed"], "what was not run again stays"
    assert set(results["facts"]) == {
        *(f"{part} {size}" for part in ("speed", "memory", "remat") for size in ("S", "text400")),
        *(f"{part} S" for part in ("accuracy", "searches", "subnormals")),
    }

    race = results["speed"]["S"]
    assert [c["family"] for c in race["contenders"].values()] == [OURS, "textbook NumPy", LIMIT]
    for contender in race["contenders"].values():
        assert [len(contender["seconds"][K]) for K in ("1", "2")] == [2, 2]
        if contender["family"] != LIMIT:
            assert all(errors["grads"] < 1e-5 for errors in contender["errors"].values())
    assert set(results["speed"]["text400"]["contenders"]) == {f"{OURS} (as minadv train)"}
    assert not race["failed"]
    assert results["memory"]["S"][OURS]["peak"] > 0
    searches = results["searches"]["S"]["searches"]
    assert [searches[name]["forward"] for name in bench_measures.SEARCHES] == [1, 2, 5, 4]
    assert [searches[name]["backward"] for name in bench_measures.SEARCHES] == [1, 2, 2, 0]
    for found in results["remat"].values():
        assert found["float64"] < 1e-12
        assert found["kept"]["remat"] > 0
    text = (tmp_path / "bench.md").read_text()
    for heading in ("Against the targets", "Peak memory", "Accuracy", "searches", "Subnormal", "Machine"):
        assert heading in text
    assert bench_report.UNCHECKED in text and bench_report.ERRORS in text
    assert (tmp_path / "bench.png").stat().st_size > 1000
    assert "written" in capsys.readouterr().out


def _here(name, given):
    module, _, function = name.partition(":")
    assert module == bench_measures.__name__
    if function == "accuracy":  # the libraries that compete are tested in test_bench_contenders.py
        given["contenders"] = {name: ACCURATE[name] for name in ("minadv", "textbook NumPy")}
    return getattr(bench_measures, function)(**given)


def test_scaling_fits_exponents(monkeypatch):
    small = replace(TINY, delta=0.6)
    scales = {"T": (small, (4, 8)), "K": (small, (1, 2))}
    monkeypatch.setattr(
        bench_measures, "interleaved", lambda jobs, rounds: {name: [_told(name, jobs[name])] for name in jobs}
    )
    found = bench_measures.scaling(1, scales)
    assert found["T"]["exponent"] == pytest.approx(2)
    assert found["K"]["exponent"] == pytest.approx(2)
    assert found["K, search only"]["exponent"] == pytest.approx(1)


def _told(name, job):
    """Seconds that follow a law, for a job that runs."""
    job()
    what, value = name.split()
    return 0.1 * int(value) ** (1 if what == "search" else 2)


def test_subnormals_are_there_unless_flushed():
    kept = elementwise.vanished
    found = bench_measures.subnormals(replace(TINY, T=400, I=1), rounds=1)
    assert found["flushed"]["subnormal"] == 0
    assert found["not flushed"]["subnormal"] > 0
    assert elementwise.vanished is kept, "it is put back"


def race_of(seconds):
    """A race with these seconds, by family, the same in both rounds but for the machine's own pace."""
    pace = np.array([1.0, 3.0, 1.1])
    contenders = {
        f"{family} (x)": {
            "family": family,
            "setting": "x",
            "errors": {"1": None, "2": None},
            "seconds": {K: list(s * pace) for K in ("1", "2")},
        }
        for family, s in seconds.items()
    }
    return {"size": vars(TINY), "rounds": 3, "contenders": contenders, "tuned": {}, "failed": {"JAX (y)": "no JAX"}}


GOOD = {
    "speed": {
        "S": race_of(
            {OURS: 1.0, TORCH[0]: 3.0, TORCH[1]: 2.1, JAX[0]: 2.6, LIMIT: 0.8, SHARED: 0.5, TWO[0]: 1.2, TWO[1]: 0.9}
        ),
        "text": race_of({OURS: 1.0, TORCH[0]: 1.2, JAX[0]: 1.2, LIMIT: 0.9}),
    },
    "memory": {"S": {OURS: {"peak": 390.0}, TORCH[0]: {"peak": 1000.0}, TORCH[2]: {"peak": 2000.0}}},
    "accuracy": {"S": {"minadv": [{"grads": 1e-7, "map": 1e-6}], "PyTorch": [{"grads": 2e-7, "map": 2e-6}]}},
    "scaling": {name: {"values": [1, 2], "seconds": [1, 2], "exponent": 1.05} for name in ("T", "H", "K, search only")},
    "searches": {"S": {"searches": {}, "map": [0.6, 1.2], "backward": [1.0, 2.0]}},
    "remat": {
        "S": {"seconds": {"remat": [1.5], "plain": [1]}, "kept": {"remat": 20.0, "plain": 420.0}, "float64": 1e-14},
    },
}  # fmt: skip


def test_verdicts_follow_the_numbers():
    good = bench_verdicts.judge(GOOD)
    assert [v.reached for v in good if v.reached is not None] == [True] * (3 + 3 + 1 + 2 + 2 + 1 + 1)
    informed = [v for v in good if v.reached is None]
    assert len(informed) == 3 + 1, "the limit shared, two like for like, the exponent in H"
    assert "0.90 (0.90–0.90) against JAX, 2 processes" in informed[2].numbers
    first = str(good[0])
    assert "2.0× faster than PyTorch's best: **reached**" in first
    assert "K = 1: 2.10 (2.10–2.10) against PyTorch scripted" in first, "the best of them, round by round"
    assert "within 1.3× of the limit on the same cores: **reached**. K = 1: 1.25" in str(good[2])


@pytest.mark.parametrize(
    ("path", "value", "target"),
    [
        (("speed", "S", "contenders", f"{TORCH[1]} (x)", "seconds", "2"), [1.9, 5.7, 2.0], "S: at least 2.0× faster"),
        (("speed", "S", "contenders", f"{JAX[0]} (x)", "seconds", "1"), [2.4] * 3, "S: at least 2.5× faster"),
        (("speed", "S", "contenders", f"{LIMIT} (x)", "seconds", "1"), [0.7, 2.1, 0.8], "S: within 1.3×"),
        (("speed", "text", "contenders", f"{LIMIT} (x)", "seconds", "2"), [0.85, 2.5, 0.9], "text: within 1.15×"),
        (("memory", "S", OURS, "peak"), 410.0, "S: peak memory"),
        (("accuracy", "S", "minadv", 0, "map"), 3e-6, "S: influence map"),
        (("scaling", "T", "exponent"), 1.11, "the cost in T"),
        (("searches", "S", "map"), [0.8, 1.6], "S: an influence map"),
        (("remat", "S", "kept", "remat"), 31.0, "S: recomputation"),
        (("remat", "S", "seconds", "remat"), [1.7], "S: recomputation"),
        (("remat", "S", "float64"), 1e-11, "S: recomputation"),
    ],
)  # fmt: skip
def test_a_target_that_is_missed_is_said_to_be(path, value, target):
    results = deepcopy(GOOD)
    at = results
    for key in path[:-1]:
        at = at[key]
    assert path[-1] in at if isinstance(at, dict) else True
    at[path[-1]] = value
    missed = [v for v in bench_verdicts.judge(results) if v.reached is False]
    assert len(missed) == 1
    assert missed[0].target.startswith(target)
    assert "**not reached**" in str(missed[0])


def test_who_did_not_run_is_told():
    results = {"speed": {"S": race_of({OURS: 1.0, TORCH[0]: 3.0, LIMIT: 0.9})}}
    verdicts = bench_verdicts.judge(results)
    assert [v.reached for v in verdicts] == [True, None, True]
    assert "did not run" in verdicts[1].numbers
    text = bench_report.text(results)
    assert "JAX (y) did not run: no JAX" in text


def test_the_best_setting_is_remembered():
    race = race_of({OURS: 1.0})
    slow, fast = ({**race["contenders"][f"{OURS} (x)"], "setting": s, "family": "JAX"} for s in ("slow", "fast"))
    fast["seconds"] = {"1": [0.1], "2": [9.0]}
    results = {"speed": {"S": {"contenders": {"fast": fast, "slow": slow}}}}
    assert bench.best_settings(results, "S") == {"JAX": "fast"}
    assert bench.best_settings({}, "S") == {}


def test_a_round_begins_with_another():
    order = []

    def step(name):
        return lambda K: order.append(name) or float(K)

    steps = [(name, step(name)) for name in "abc"]
    bench_speed.PAUSE, pause = 0, bench_speed.PAUSE
    try:
        for n in range(3):
            assert bench_speed.one_round(steps, 2, n) == (dict.fromkeys("abc", 2.0), {})
    finally:
        bench_speed.PAUSE = pause
    assert "".join(order) == "abcbcacab"


class Falls:
    """A contender that does all but one of its steps."""

    def __init__(self, family, setting, size):
        self.family, self.left = family, 9 if family.name == "JAX" else 999

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def close(self):
        pass

    def step(self, K):
        self.left -= 1
        if self.left == 0:
            raise ContenderError("gone")
        return 1.0


def test_a_contender_that_falls_is_out(monkeypatch):
    """What there is of the others is handed over after every round; without minadv there is no race."""
    monkeypatch.setattr(bench_speed, "Runner", Falls)
    monkeypatch.setattr(bench_speed, "PAUSE", 0)
    saved = []
    families = list(first_settings(OURS, "JAX").values())
    found = bench_speed.race(families, TINY, 3, checked=False, save=lambda race: saved.append(deepcopy(race)))
    assert [race["rounds"] for race in saved] == [1, 2, 3]
    assert [len(race["contenders"]) for race in saved] == [2, 1, 1]
    assert found == saved[-1]
    assert found["failed"] == {"JAX (unroll 1)": "gone"}
    assert [len(s) for s in found["contenders"][f"{OURS} (as minadv train)"]["seconds"].values()] == [3, 3]
    monkeypatch.setattr(bench_speed, "OURS", "JAX")
    with pytest.raises(ContenderError, match="gone"):
        bench_speed.race(families, TINY, 3, checked=False)


def test_a_part_that_fails_is_told_and_the_rest_is_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(bench, "SIZES", {"S": TINY})
    monkeypatch.setattr(bench, "busy", lambda: 0.5)

    def call(name, *, threads=None, **given):
        if name.endswith("subnormals"):
            raise ContenderError("its process is gone")
        return _here(name, given)

    monkeypatch.setattr(bench, "call", call)
    with pytest.raises(SystemExit) as stopped:
        bench.main(["--parts", "searches", "subnormals", "--rounds", "1", "--out", str(tmp_path)])
    assert stopped.value.code == "python -m experiments.bench: not measured:\nsubnormals S: its process is gone"
    assert "50 % busy: that is no machine to measure on" in capsys.readouterr().err
    results = json.loads((tmp_path / "bench.json").read_text())
    assert set(results) == {"searches", "facts"}
    written = (tmp_path / "bench.md").read_text()
    (tmp_path / "bench.md").unlink()
    bench.main(["--report-only", "--out", str(tmp_path)])
    assert (tmp_path / "bench.md").read_text() == written
    assert "| 50 %" in written
    with pytest.raises(SystemExit):
        bench.main(["--report-only", "--out", str(tmp_path / "nowhere")])


def test_a_race_with_fewer_does_not_replace_the_whole(tmp_path, capsys):
    (tmp_path / "bench.json").write_text(json.dumps({"speed": {"S": race_of({OURS: 1.0, TORCH[0]: 3.0})}}))
    before = (tmp_path / "bench.json").read_text()
    with pytest.raises(SystemExit):
        bench.main(["--parts", "speed", "--sizes", "S", "--contenders", "JAX", "--out", str(tmp_path)])
    assert f"has a race at S with {TORCH[0]} too: give another --out" in capsys.readouterr().err
    assert (tmp_path / "bench.json").read_text() == before


def test_who_uses_the_cores():
    assert 0 <= bench.busy(0.05) <= 1


def test_a_contender_that_differs_is_not_timed(monkeypatch):
    """One that returns something else is left out with the reason, but for minadv, without which there is no race."""

    class Wrong:
        def __init__(self, family, setting, size):
            self.family = family

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def outcome(self, K, given):
            right = bench_speed.check.reference(TINY, 0, K, [np.ones((TINY.B, TINY.H))])
            return Outcome(right.loss, right.maps, right.flipped, right.used, tuple(2 * g for g in right.grads))

        def step(self, K):
            raise AssertionError("it must not be timed")

    monkeypatch.setattr(bench_speed, "Runner", Wrong)
    references = bench_speed.References(TINY, 0, bench_speed.check.reference)
    families = list(first_settings("JAX").values())
    chosen, seconds, failed = bench_speed.tune(families, TINY, references, (1, 2), ExitStack())
    assert not chosen and not seconds
    assert "its results differ at K = 1: grads is off by" in failed["JAX (unroll 1)"]
    with pytest.raises(ContenderError, match="grads is off by"):
        bench_speed.tune(list(first_settings(OURS).values()), TINY, references, (1, 2), ExitStack())


@pytest.mark.parametrize(("option", "value"), [("--rounds", "0"), ("--seeds", "0"), ("--sizes", "huge")])
def test_bad_options(option, value, capsys, tmp_path):
    with pytest.raises(SystemExit):
        bench.main([option, value, "--out", str(tmp_path)])
    assert option in capsys.readouterr().err
    assert not list(tmp_path.iterdir())

"""The generic mutants: what the mutator makes of a text, right verdicts, and explained survivors that still exist."""

import os
import textwrap
from pathlib import Path

import numpy as np
import pytest

from tests.support import mutation, mutation_targets
from tests.support.copies import ROOT
from tests.support.mutation import CAUGHT, CUT_OFF, SURVIVED, Bench, Planted, digest, kept_verdicts, planted, sample
from tests.support.mutation_targets import FURTHER, LEFT_OUT, TARGETS
from tests.support.mutator import Change, changes
from tests.support.survivors import SURVIVORS


@pytest.fixture(autouse=True)
def once(xp):
    if xp is not np:
        pytest.skip("the mutants are of text that both backends share: running them on NumPy is enough")


def made_of(text):
    text = textwrap.dedent(text)
    return [change.told(text)[1] for change in changes(text)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("y = a < b", {"y = a <= b"}),
        ("y = a + b * c", {"y = a - b * c", "y = a + b / c"}),
        ("y = a and b or c", {"y = a or b or c", "y = a and b and c"}),
        ("y = not a", {"y = a"}),
        ("y = -a", {"y = a"}),
        ("y = 3", {"y = 4", "y = 2"}),
        ("y = 0.5", {"y = 1.0"}),
        ("y = True", {"y = False"}),
        ("y = a if b else c", {"y = (a)", "y = (c)"}),
        ("f(a, b)", {"pass", "f(b, a)"}),
        ("y = f(a, k=b)", {"y = f(a)"}),
        ("a += b", {"pass", "a -= b", "a = b"}),
        ("a[b] = c", {"pass"}),
        ("warnings.warn(a + b)", {"pass"}),
        ("raise ValueError(a + b)", {"pass"}),
        ("y = (a) == (b)", {"y = (a) != (b)"}),
        ("y = a is not b", {"y = a is b"}),
        ('y = "ä" in a  # ö', {'y = "ä" not in a  # ö'}),
    ],
)
def test_the_changes_of_a_line(line, expected):
    assert set(made_of(line)) == expected


@pytest.mark.parametrize(
    "text",
    [
        '"""A docstring of 1 + 1."""',
        "def f(a: int | None) -> list[int] | None:\n    return a",
        "assert a + b",
        "import a",
        'y = f"{a + b}"',
        'expect = expect_shape("a", a + b, k=b)',
        "y = zip(a, strict=True)",
        "y = xp.sort(a, axis=n)",
        "namespace(a=a)",
        "@dataclass(frozen=True)\nclass A:\n    a: int",
        'A = TypeVar("A", covariant=True)',
        "with suppress(KeyError, ValueError):\n    a = b",
    ],
)
def test_what_is_left_as_it_is(text):
    assert made_of(text) == []


@pytest.mark.parametrize("file", TARGETS)
def test_a_change_leaves_the_rest_of_its_file_as_it_is(file):
    text = (ROOT / "minadv" / file).read_text()
    for mutant in planted(file):
        old, new = text.encode(), mutant.change.apply(text).encode()
        assert old != new
        assert new.startswith(old[: mutant.change.start])
        assert new.endswith(old[mutant.change.end :])
        assert mutant.old != mutant.new or "..." in mutant.old


def test_every_file_of_the_paper_and_of_the_training_core_has_its_tests():
    assert sorted([*TARGETS, *LEFT_OUT]) == mutation_targets.everything()
    named = {test.split("::")[0] for tests in (*TARGETS.values(), *FURTHER.values()) for test in tests}
    assert [test for test in sorted(named) if not (ROOT / "tests" / test).exists()] == []


@pytest.mark.parametrize("survivor", SURVIVORS, ids=lambda s: f"{s.file}: {s.new}")
def test_a_survivor_that_is_explained_is_still_a_mutant(survivor):
    found = {(mutant.change.where, mutant.old, mutant.new) for mutant in planted(survivor.file)}
    assert (survivor.where, survivor.old, survivor.new) in found, "its line has changed: look at it again, or remove it"
    assert len(survivor.why) > 20


def test_no_survivor_is_explained_twice():
    keys = [(s.file, s.where, s.old, s.new) for s in SURVIVORS]
    assert len(set(keys)) == len(keys)


def test_a_sample_is_the_same_each_time_and_another_by_seed():
    mutants = planted("flip.py")
    assert sample(mutants, 20, 0) == sample(list(reversed(mutants)), 20, 0)
    assert sample(mutants, 20, 0) != sample(mutants, 20, 1)
    without = [mutant for mutant in mutants if mutant.change.where != "_authors"]
    assert set(sample(mutants, 20, 0)) - {m for m in mutants if m.change.where == "_authors"} <= set(
        sample(without, 20, 0)
    )


@pytest.fixture
def bench(tmp_path):
    """A bench whose package and tests are one line each, so that a verdict takes no time."""

    class Small(Bench):
        def __init__(self, folder: Path, text: str) -> None:
            self.copy = folder
            for name, line in {
                "minadv/__init__.py": "",
                "minadv/one.py": text,
                "tests/test_one.py": "from minadv.one import one\n\n\ndef test_one():\n    assert one() == 1\n",
                "tests/test_none.py": "",
            }.items():
                (folder / name).parent.mkdir(exist_ok=True)
                (folder / name).write_text(line)

    return lambda text: Small(tmp_path, text)


def one(text, old, new):
    start = text.encode().index(old.encode())
    return Planted("one.py", Change(1, "one", start, start + len(old), new), old, new)


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="mutants are run in forks of one process")


@needs_fork
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ("1", "2", CAUGHT),
        ("1", "1.0", SURVIVED),
        ("return", "while True:\n        pass\n    return", CUT_OFF),
        ("return", "import threading\n    threading.Event().wait()\n    return", CUT_OFF),
        ("return", "yield", CAUGHT),
    ],
)
def test_a_verdict(old, new, verdict, bench, monkeypatch):
    monkeypatch.setattr(mutation, "CPU_SECONDS", 2)
    if "wait" in new:
        monkeypatch.setattr(mutation, "IDLE_SECONDS", 5)
    text = "def one():\n    return 1\n"
    small = bench(text)
    assert small.verdict(None, ("test_one.py",))[0] == SURVIVED
    assert small.verdict(one(text, old, new), ("test_one.py",))[0] == verdict
    assert (small.copy / "minadv" / "one.py").read_text() == text
    assert small.verdict(None, ("test_one.py",))[0] == SURVIVED


@needs_fork
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_file_without_tests_gives_no_verdict(bench):
    with pytest.raises(RuntimeError, match=r"no test was run of test_none\.py"):
        bench("").verdict(None, ("test_none.py",))


@needs_fork
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_the_tests_of_a_mutant_have_the_environment_of_the_run(bench, monkeypatch):
    monkeypatch.setenv("OF_THE_RUN", "1")
    small = bench("import os\n\n\ndef one():\n    return int(os.environ['OF_THE_RUN'])\n")
    assert small.verdict(None, ("test_one.py",))[0] == SURVIVED


def test_tests_are_run_once_before_the_first_mutant(monkeypatch, tmp_path):
    given = []

    class Told(Bench):
        def __init__(self, folder: Path) -> None: ...

        def verdict(self, mutant, tests):
            given.append(tests)
            return SURVIVED, ""

    monkeypatch.setattr(mutation, "Bench", Told)
    for jobs in (1, 2, 5):
        assert list(mutation._sound(("a", "b", "c"), jobs, tmp_path)) == [(SURVIVED, "")] * min(jobs, 3)
        assert sorted(test for tests in given for test in tests) == ["a", "b", "c"]
        assert () not in given
        given.clear()


def test_without_a_mutant_all_tests_must_pass_that_give_a_verdict(monkeypatch):
    monkeypatch.setattr(mutation, "TARGETS", {"one.py": ("a", "b"), "other.py": ("b",)})
    monkeypatch.setattr(mutation, "FURTHER", {"other.py": ("c", "a")})
    assert mutation.first_tests(["one.py", "other.py"], whole=True) == ("a", "b", "c")
    assert mutation.first_tests(["other.py"], whole=True) == ("b", "c", "a")
    assert mutation.first_tests(["one.py", "other.py"], whole=False) == ("a", "b")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["flip.py"], "tests fail without any mutant"), (["flip.py", "--sample", "3"], "SURVIVED")],
    ids=["all of a file", "a sample"],
)
def test_a_run_ends_where_a_further_test_fails_without_a_mutant(arguments, said, monkeypatch, capsys):
    class Told(Bench):
        def __init__(self, folder: Path) -> None: ...

        def verdict(self, mutant, tests):
            return (CAUGHT, "it fails") if mutant is None and "test_c.py" in tests else (SURVIVED, "")

    monkeypatch.setattr(mutation, "Bench", Told)
    monkeypatch.setattr(mutation, "FURTHER", {"flip.py": ("test_c.py",)})
    monkeypatch.setattr(mutation, "digest", lambda file, tests: "")
    monkeypatch.setattr(mutation, "_load_libraries", lambda: None)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")  # as it does itself
    assert mutation.main([*arguments, "--jobs", "1"]) == 1
    assert capsys.readouterr().out.startswith(said)


def test_kept_verdicts_survive_a_kill_and_not_a_change(tmp_path, monkeypatch):
    kept = tmp_path / "kept.jsonl"
    kept.write_text('{"key": "a", "digest": "1", "verdict": "caught"}\n{"key": "b", "dig')
    assert kept_verdicts(kept) == {("a", "1"): "caught"}
    assert kept_verdicts(tmp_path / "none") == kept_verdicts(None) == {}
    before = digest("flip.py", ("test_flip.py",))
    assert digest("flip.py", ("test_flip.py::test_a",)) == before
    assert digest("flip.py", ("test_masks.py",)) != before
    assert digest("masks.py", ("test_flip.py",)) != before


def test_the_run_fails_on_a_survivor_that_is_not_explained(capsys):
    mutants = planted("training/schedules.py")[:2]
    assert mutation._report(mutants, iter([(mutants[0], CAUGHT, False), (mutants[1], CUT_OFF, False)])) == 0
    assert "2 mutants: 1 caught, 1 cut off, 0 explained, 0 survived" in capsys.readouterr().out
    assert mutation._report(mutants, iter([(mutants[0], CAUGHT, False), (mutants[1], SURVIVED, False)])) == 1
    said = capsys.readouterr().out
    assert f"SURVIVED {mutants[1]}" in said
    assert "tests/support/survivors.py" in said

"""Every command that runs a network does so with one BLAS thread in each of its workers, and says the same for any."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minadv import load
from minadv.base import machine, notices
from minadv.cli import main
from minadv.commands import doctor
from minadv.fast import threads
from minadv.models import stack
from minadv.training.parallel import inference
from tests.support.corpora import write_corpus
from tests.support.language_runs import lines

pytest.importorskip("safetensors")
pytest.importorskip("sklearn")
pytest.importorskip("matplotlib")
threadpoolctl = pytest.importorskip("threadpoolctl")


@pytest.fixture(autouse=True)
def two_cores(device: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Two cores, BLAS with two threads to begin with, and every inference is worth a second worker."""
    if device.name != "cpu":
        pytest.skip("workers share inferences on the host")
    for name in (*machine.BLAS_VARIABLES, machine.CORES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(notices, "_said", set())
    monkeypatch.setattr("minadv.training.parallel.ranks.cores", lambda *_: 2)
    monkeypatch.setattr(inference, "WORTH", 0)
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        yield


class Watch:
    """The BLAS threads of every pass through a layer, and the Python threads that ran them."""

    def __init__(self) -> None:
        self.blas: set[int] = set()
        self.by: set[int] = set()

    def __call__(self, *args: Any, **given: Any) -> Any:
        self.blas |= {library["num_threads"] for library in threads.libraries()}
        self.by.add(threading.get_ident())
        return self.run(*args, **given)

    run: Callable[..., Any] = staticmethod(stack.run_layer)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    found = Watch()
    monkeypatch.setattr(stack, "run_layer", found)
    return found


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("digits") / "run"
    options = ["--rows", "--hidden", "8", "--delta", "0.25", "--epochs", "1", "--device", "cpu", "--track"]
    assert main(["train", "digits", *options, "--out", str(run)]) == 0
    return run


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, rng = tmp_path_factory.mktemp("texts"), np.random.default_rng(0)
    for part in ("train/good", "train/bad", "test/good", "test/bad"):
        (folder / "films" / part).mkdir(parents=True)
        for n in range(14):
            words = rng.choice(["the", "film", "is", part.split("/")[1]], size=rng.integers(3, 9))
            (folder / "films" / part / f"{n}.txt").write_text(" ".join(words))
    options = ["--embed", "6", "--hidden", "8", "--batch", "4", "--min-count", "1", "--train-steps", "2"]
    options += ["--delta", "0.25", "--data-dir", str(folder / "films"), "--device", "cpu"]
    assert main(["train", "text", *options, "--out", str(folder / "run")]) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def language(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lm")
    parts = {"train": lines(60), "valid": lines(9, 1), "test": lines(11, 2)}
    write_corpus(folder, **{name: "\n".join(text) + "\n" for name, text in parts.items()})
    options = ["--hidden", "6", "5", "--batch", "4", "--bptt", "7", "--device", "cpu", "--epochs", "1"]
    options += ["--init", "flip", "--delta", "0.5", "0.4", "--data-dir", str(folder)]
    assert main(["train", "lm", *options, "--out", str(folder / "run")]) == 0
    return folder / "run"


ASKED = ["eval", "attack --examples 300", "show --examples 40"]
COMMANDS = {
    "digits": [*ASKED, "predict --examples 300"],
    "texts": [*ASKED, "predict", "predict --explain"],
    "language": [*ASKED, "generate"],
}


@pytest.mark.parametrize(("kind", "command"), [(kind, command) for kind in COMMANDS for command in COMMANDS[kind]])
def test_one_blas_thread_in_every_command(
    command: str, kind: str, watch: Watch, request: pytest.FixtureRequest, capsys: Any, tmp_path: Path
) -> None:
    run = request.getfixturevalue(kind)
    verb, *options = command.split()
    capsys.readouterr()
    watch.blas.clear()  # training a run
    watch.by.clear()
    if verb == "show":
        options += ["--out", str(tmp_path)]
    if verb == "predict" and kind == "texts":
        (tmp_path / "lines").write_text("the film is good\nthe film is bad\n")
        options = [str(tmp_path / "lines"), *options]
    assert main([verb, str(run), *options]) == 0
    assert watch.blas == {1}
    assert len(watch.by) <= 2
    assert {library["num_threads"] for library in threads.libraries()} == {2}
    said = capsys.readouterr()
    assert said.err == "" or "one flip" in said.err
    if verb in ("eval", "predict", "attack"):
        for n in ("1", "2"):
            assert main([verb, str(run), *options, "--workers", n]) == 0
            assert capsys.readouterr().out == said.out


def test_who_reads(digits: Path, watch: Watch) -> None:
    """Compiled passes are shared by Python threads: the batches of an evaluation and the searches of an attack."""
    if not inference.by_threads_of(
        inference.Load(0, 0, 1, compiled=stack.fast.compiles_passes(8, np.float32, padded=False))
    ):
        pytest.skip("without Numba the passes are not compiled, and not shared by threads")
    both = threading.Barrier(2, timeout=600)  # a second reader comes to it, or the test fails

    def meet(*args: Any, **given: Any) -> Any:
        if len(watch.by) < 2 and threading.get_ident() not in watch.by:
            watch.by.add(threading.get_ident())
            both.wait()
        return Watch.run(*args, **given)

    stack.run_layer = meet  # type: ignore[assignment]  # the fixture puts it back
    for command in (["eval", str(digits)], ["attack", str(digits), "--examples", "50"]):
        watch.by.clear()
        both.reset()
        assert main(command) == 0
        assert len(watch.by) == 2


@pytest.mark.parametrize("setting", [None, "2"])
def test_training_and_its_report(
    setting: str | None, watch: Watch, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if setting is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", setting)
    options = ["--rows", "--hidden", "8", "--delta", "0.25", "--train-steps", "2", "--device", "cpu", "--workers", "2"]
    assert main(["train", "digits", *options, "--out", str(tmp_path / "run")]) == 0
    assert watch.blas == {1}
    said = [line for line in capsys.readouterr().err.splitlines() if "OMP_NUM_THREADS" in line]
    assert said == [
        "minadv: OMP_NUM_THREADS=2 and 2 workers would be 4 threads on 2 cores: each worker has 1 BLAS thread"
    ] * (setting is not None)


def test_the_python_door(digits: Path, watch: Watch) -> None:
    from minadv.tasks.run import open_run

    run = open_run(digits)
    assert run.test() == run.test(workers=1) == run.test(workers=2) == run.evaluate("test", workers=2)
    x = run.data.test.x[:250]
    for n in (1, 2):
        np.testing.assert_array_equal(run.predict(x, workers=n), run.predict(x))
    assert watch.blas == {1}
    with pytest.raises(ValueError, match="workers is 0, expected a whole number of at least 1"):
        run.test(workers=0)
    assert load(digits).predict(x[:3]).shape == (3, 10)


def test_words_that_are_handed_out_hold_no_limit(language: Path, watch: Watch) -> None:
    words = load(language).generate(3)
    next(iter(words))
    assert watch.blas == {1}
    assert {library["num_threads"] for library in threads.libraries()} == {2}


@pytest.mark.parametrize(
    ("cores", "setting", "said"),
    [
        (
            4,
            "abc",
            "1 worker x 4 = 4 for large ones, on 4 cores; OMP_NUM_THREADS=abc is not understood",
        ),
        (4, "0", "OMP_NUM_THREADS=0 is not understood, expected a whole number of at least 1"),
        (
            9,
            "1000000000",
            "1 worker x 4 = 4 for large ones, on 9 cores; at most as many BLAS threads",
        ),
        (1, None, "1 worker x 1 BLAS thread = 1 for small networks, 1 worker x 1 = 1 for large ones, on 1 core"),
        (4, None, "4 workers x 1 BLAS thread = 4 for small networks, 1 worker x 4 = 4 for large ones, on 4 cores"),
        (4, "3", "1 worker x 3 = 3 for large ones, on 4 cores; at most as many BLAS threads as OMP_NUM_THREADS=3 says"),
    ],
)
def test_doctor_says_the_product(
    cores: int, setting: str | None, said: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(machine, "cores", lambda *_: cores)
    about = replace(doctor.describe(), blas=[{"num_threads": 1}, {"num_threads": 4}])
    monkeypatch.setattr(doctor, "describe", lambda *_: about)
    if setting is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", setting)
    assert main(["doctor", "--device", "cpu"]) == 0
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("threads")]
    assert said in line

"""Ranks of mpiexec that share a batch: the trajectory of one process, one writer, and an end for all or for none.

What runs under mpiexec is in ranked.py; these tests are left out where mpi4py or its mpiexec is missing. The sum alone,
on the host and on CuPy, is tested with ranks that are threads.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minadv.base.trees import tree_map
from minadv.training.loop import TrainingError, train
from minadv.training.parallel.mpi import CUDA_AWARE, RankWorkers, checksum
from minadv.training.parallel.ranks import ProcessGroup
from minadv.training.parallel.workers import OneWorker
from minadv.training.runs import checkpoints, log
from tests.support import ranked
from tests.support.compare import assert_close, assert_same_bits
from tests.support.idxfiles import write_four
from tests.support.problems import task
from tests.support.threaded import run_ranks

ROOT = Path(__file__).parents[2]
SECONDS = 1800  # no test may hang, and on a busy machine none may be cut off
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}
SHORT = "smnist --pool 7 --rows --hidden 6 --delta 0.5 --batch 5 --eval-every 2 --checkpoint-every 1 --device cpu"


def mpiexec() -> str | None:
    """The mpiexec that came with this Python, or else one of the system."""
    own = Path(sys.executable).with_name("mpiexec")
    return str(own) if own.exists() else shutil.which("mpiexec")


def start(n: int, *arguments: Any) -> subprocess.Popen[str]:
    command = [str(mpiexec()), "-n", str(n), sys.executable, *map(str, arguments)]
    environment = {**os.environ, **OPEN_MPI, "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait(child: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        said, complained = child.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGTERM)  # mpiexec then ends its ranks
        said, complained = child.communicate()
        pytest.fail(f"the ranks were still running after {SECONDS} s: {said}{complained}")
    return child.returncode, said, complained


def ranks(n: int, *arguments: Any) -> tuple[int, str, str]:
    return wait(start(n, "-m", "tests.support.ranked", *arguments))


@pytest.fixture(scope="module")
def mpi(device: Any) -> None:
    if device.name != "cpu":
        pytest.skip("the sum of ranks on a GPU is tested with threads")
    pytest.importorskip("mpi4py")
    if mpiexec() is None:
        pytest.skip("there is no mpiexec: pip install mpich")
    code, said, complained = wait(start(2, "-c", "from mpi4py import MPI; print(MPI.COMM_WORLD.size)"))
    if (code, "".join(said.split())) != (0, "22"):  # their lines may come out entangled
        pytest.skip(f"{mpiexec()} does not work with mpi4py: {said}{complained}")


@pytest.mark.usefixtures("mpi")
@pytest.mark.parametrize("n", [2, 4])
def test_the_trajectory_of_one_process(n: int, tmp_path: Path) -> None:
    code, _, complained = ranks(n, "paths", tmp_path)
    assert code == 0, complained
    for name, make in ranked.PROBLEMS.items():
        toy = make()
        state, records = train(toy, ranked.RECIPE, workers=OneWorker(toy))
        tolerance = 1e-4 if name == "single" else 1e-10
        found = [dict(np.load(tmp_path / f"{name}-{rank}.npz")) for rank in range(n)]
        assert [int(one.pop("evaluations")) for one in found] == [2] + [0] * (n - 1)
        expected = {"error": np.asarray([r["valid_error"] for r in records]), **ranked.end(state)}
        assert_close(found[0], expected, tolerance)
        for other in found[1:]:
            assert_same_bits(other, found[0])


@pytest.mark.usefixtures("mpi")
def test_fit_in_a_script_of_ones_own(tmp_path: Path) -> None:
    """Every rank returns from fit when all is written; only the chief is told of evaluations."""
    pytest.importorskip("safetensors")
    code, _, complained = ranks(2, "fit", tmp_path)
    assert code == 0, complained
    reports = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(2)]
    newest = str(tmp_path / "run" / "checkpoints" / f"step-{ranked.STEPS:08d}.json")
    assert reports[0] == {"step": ranked.STEPS, "said": 2, "records": 2, "latest": newest}
    assert reports[1] == {**reports[0], "said": 0}
    header, *records = log.read(tmp_path / "run" / "log.jsonl")
    assert header["config"]["ranks"] == 2
    assert [record["step"] for record in records] == [4, 8]


@pytest.mark.usefixtures("mpi")
def test_independent_tasks(tmp_path: Path) -> None:
    code, _, complained = ranks(2, "share_out", tmp_path)
    assert code == 0, complained
    for rank in range(2):
        found = json.loads((tmp_path / f"rank-{rank}.json").read_text())
        assert found == [[0, 1, 0], [1, 1, 1], [4, 1, 0], [9, 1, 1], [16, 1, 0]]


@pytest.mark.usefixtures("mpi")
def test_a_rank_that_fails_alone_ends_all() -> None:
    code, _, complained = ranks(2, "fail", "1")
    assert code == 1
    assert "minadv: rank 1 of 2 failed and ends the others: no such luck" in complained.splitlines()


@pytest.mark.usefixtures("mpi")
def test_an_error_of_all_ranks_is_raised_on_each() -> None:
    code, _, complained = ranks(2, "fail", "0,1")
    assert code == 1
    assert "ends the others" not in complained
    assert complained.count("FloatingPointError: no such luck") == 2  # each rank's own traceback


def command(run: Path, idx: Path, steps: int) -> list[str]:
    """To begin a run, or to go on with it: what a user would type after ``mpiexec -n 2 minadv``."""
    if (run / "config.json").exists():
        return ["train", "--resume", str(run)]
    return ["train", *SHORT.split(), "--data-dir", str(idx), "--train-steps", str(steps), "--out", str(run)]


def ends(run: Path) -> tuple[dict[str, bytes], list[dict[str, Any]]]:
    """The last checkpoint, leaf by leaf, and the evaluations of the log but for their times."""
    path = checkpoints.latest(run)
    assert path is not None
    leaves, _ = checkpoints.load(path)
    bits = {name: np.asarray(leaf).tobytes() for name, leaf in leaves.items()}
    records = [record for record in log.read(run / "log.jsonl") if record["kind"] == "evaluation"]
    return bits, [{**record, "time": None} for record in records]


LONG = 30


@pytest.fixture(scope="module")
def idx(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("idx")
    write_four(folder, n_train=24, n_test=8)
    return folder


@pytest.fixture(scope="module")
def whole(mpi: None, idx: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """How a run of two ranks ends that nothing happens to, and what it says."""
    pytest.importorskip("safetensors")
    run = tmp_path_factory.mktemp("whole") / "run"
    code, said, complained = ranks(2, "cli", 0, -1, *command(run, idx, LONG))
    assert code == 0, complained
    return ends(run), said, complained


def test_one_rank_prints_and_writes(whole: Any) -> None:
    (_, records), said, complained = whole
    assert said.count("\n") == 1 and said.startswith("test error ")
    steps = [int(line.split()[1].rstrip(",")) for line in complained.splitlines() if line.startswith("step ")]
    assert steps == [record["step"] for record in records] == list(range(2, LONG + 1, 2))


def test_kill_9(whole: Any, idx: Path, tmp_path: Path) -> None:
    """A rank that is killed in a step, then rank 0 as well; the run goes on each time, and ends in the same bits."""
    run, steps = tmp_path / "run", []
    for rank, step in ((1, 7), (0, 20)):
        code, _, complained = ranks(2, "cli", rank, step, *command(run, idx, LONG))
        assert code != 0
        assert complained.strip()  # the launcher's own message: which process died, and of which signal
        found = checkpoints.latest(run)
        assert found is not None
        steps.append(int(found.stem.removeprefix("step-")))
    assert steps[0] in (6, 7)  # rank 0 was perhaps about to write the last of them
    assert steps[1] == 20
    code, _, complained = ranks(2, "cli", 0, -1, *command(run, idx, LONG))
    assert code == 0, complained
    assert ends(run) == whole[0]


def test_ctrl_c(whole: Any, idx: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    child = start(2, "-m", "tests.support.ranked", "cli", 0, -1, *command(run, idx, LONG))
    assert child.stderr is not None
    while (line := child.stderr.readline()) and not line.startswith("step 4"):
        pass
    child.send_signal(signal.SIGINT)
    code, _, complained = wait(child)
    assert code != 0
    [said] = [line for line in complained.splitlines() if line.startswith("minadv: stopped at step ")]
    step = int(said.split()[4])
    assert said.endswith(f"saved in {run}; go on with: mpiexec -n 2 minadv train --resume {run}")
    assert "Traceback" not in complained
    assert checkpoints.latest(run) == run / "checkpoints" / f"step-{step:08d}.json"
    code, _, complained = ranks(2, "cli", 0, -1, *command(run, idx, LONG))
    assert code == 0, complained
    assert ends(run) == whole[0]


@pytest.mark.usefixtures("mpi")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "nothing"], "is no task and no folder, expected a folder of your own or one of"),
        (["train", *SHORT.split(), "--batch", "1"], "2 ranks, expected at most 1, the examples of a batch"),
        (["doctor"], "mpiexec shares training only: start this command without it"),
    ],
)
def test_errors_are_said_once(arguments: list[str], message: str, idx: Path, tmp_path: Path) -> None:
    if len(arguments) > 2:
        arguments = [*arguments, "--data-dir", str(idx), "--train-steps", "2", "--out", str(tmp_path / "run")]
    code, said, complained = ranks(2, "cli", 0, -1, *arguments)
    assert code == 2
    assert said == ""
    assert complained.count(message) == 1
    assert "Traceback" not in complained


@pytest.mark.parametrize("cuda_aware", [None, False, True])
@pytest.mark.parametrize("n", [2, 3])
def test_the_sum_of_threads(n: int, cuda_aware: bool | None, put: Any, xp: Any, monkeypatch: Any) -> None:
    """Device buffers reach the communicator only where it is said to take them."""
    if cuda_aware is None:
        monkeypatch.setenv(CUDA_AWARE, "1")
    toy = task(put)
    params = toy.init()
    alone = OneWorker(toy).step(params, 3, weight=0.0, carry=None)
    kinds: set[type] = set()

    def share(comm: Any) -> Any:
        workers = RankWorkers(toy, ProcessGroup(comm), params, cuda_aware=cuda_aware)
        done = workers.step(params, 3, weight=0.0, carry=None)
        kinds.update(comm.kinds)
        return tree_map(lambda a: a.copy(), done.grads), done.nll

    for grads, nll in run_ranks(share, n):
        assert_close(grads, alone.grads, 1e-5)
        assert nll == pytest.approx(alone.nll, rel=1e-5)
    assert kinds == {np.ndarray if cuda_aware is False else xp.ndarray}


def test_the_carry_is_whole_on_every_thread(put: Any) -> None:
    toy = ranked.Carrying(task(put, dtype=np.float64))
    params, carry = toy.init(), toy.first_carry()
    alone = OneWorker(toy).step(params, 0, weight=0.0, carry=carry)

    def share(comm: Any) -> Any:
        return RankWorkers(toy, ProcessGroup(comm), params).step(params, 0, weight=0.0, carry=carry).carry

    for found in run_ranks(share, 3):
        assert type(found["a"]) is type(alone.carry["a"])
        assert_close(found, alone.carry, 1e-12)


def test_different_parameters_are_found(put: Any) -> None:
    toy = task(put)
    params = [toy.init(), tree_map(lambda a: a + 1e-3, toy.init())]

    def share(comm: Any) -> None:
        workers = RankWorkers(toy, ProcessGroup(comm), params[0], check_every=5)
        workers.step(params[0], 1, weight=0.0, carry=None)
        workers.step(params[comm.rank], 4, weight=0.0, carry=None)  # not one of those that are compared
        with pytest.raises(TrainingError, match="the parameters of the ranks differ at step 5"):
            workers.step(params[comm.rank], 5, weight=0.0, carry=None)
        resumed = RankWorkers(toy, ProcessGroup(comm), params[0], check_every=5)
        with pytest.raises(
            TrainingError, match="the parameters of the ranks differ at step 7"
        ):  # the first is compared
            resumed.step(params[comm.rank], 7, weight=0.0, carry=None)

    run_ranks(share, 2)


def test_the_checksum_sees_every_leaf(put: Any) -> None:
    params = task(put).init()
    assert checksum(params) == checksum(tree_map(lambda a: a.copy(), params))
    for n in range(len(params.cells[0].__dataclass_fields__)):
        names = iter(range(100))
        changed = tree_map(lambda a, n=n, names=names: 2 * a + 1 if next(names) == n else a, params)
        assert checksum(changed) != checksum(params)


def test_what_ranks_refuse(put: Any) -> None:
    toy = task(put)

    def share(comm: Any) -> None:
        params = toy.init()
        mixed = {"a": params.V, "b": params.V.astype(np.float64)}
        with pytest.raises(ValueError, match=r"dtypes \['float32', 'float64'\], expected one"):
            RankWorkers(toy, ProcessGroup(comm), mixed)

    run_ranks(share, 2)
    crowd = ProcessGroup()
    crowd.size = 11
    with pytest.raises(ValueError, match="11 ranks, expected at most 10, the examples of a batch"):
        RankWorkers(toy, crowd, toy.init())


def test_ctrl_c_on_one_rank_ends_the_step_on_all(put: Any) -> None:
    toy = task(put)
    params = toy.init()

    def share(comm: Any) -> None:
        workers = RankWorkers(toy, ProcessGroup(comm), params)
        workers.step(params, 0, weight=0.0, carry=None)
        if comm.rank == 1:
            workers._interrupt()
        with pytest.raises(KeyboardInterrupt):
            workers.step(params, 1, weight=0.0, carry=None)
        if comm.rank == 1:
            with pytest.raises(KeyboardInterrupt):  # the second one, at once
                workers._interrupt()

    run_ranks(share, 2)


def test_the_handler_of_ctrl_c_is_given_back(put: Any) -> None:
    toy, before = task(put), signal.getsignal(signal.SIGINT)
    assert threading.current_thread() is threading.main_thread()
    workers = RankWorkers(toy, ProcessGroup(), toy.init())
    assert signal.getsignal(signal.SIGINT) is not before
    workers.close()
    workers.close()
    assert signal.getsignal(signal.SIGINT) is before

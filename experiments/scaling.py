r"""How far data-parallel training carries: a step's compute against its Allreduce, at the paper's three sizes.

``python -m experiments.scaling`` times steps of AdD (K = 1, float32, one BLAS thread) on one process for several shares
of the batch, then the Allreduce and whole steps on 2 and 4 ranks that it starts with mpiexec on this machine, fits the
model of `experiments.parts.scaling_model`, and writes scaling.json and scaling.md under experiments/results.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments.parts import records, reporting, scaling_tables
from experiments.parts.scaling_model import Cluster, Gpu, Network, Size, fit_compute, fit_network, forecast
from minadv.base.streams import stream
from minadv.base.trees import tree_map
from minadv.commands.numbers import positive
from minadv.commands.parsing import Parser
from minadv.fast import limit_threads
from minadv.models.classifier import Batch, Classifier
from minadv.models.language.model import LanguageModel, TokenBatch
from minadv.models.text import TextBatch, TextClassifier
from minadv.regularizers import AdD, Term
from minadv.training import loop
from minadv.training.optimizers import SGD, Adam, RMSProp
from minadv.training.parallel.mpi import RankWorkers
from minadv.training.parallel.ranks import ProcessGroup, process_group
from minadv.training.parallel.workers import WHOLE, OneWorker, Part, Workers
from minadv.training.task import Load

SIZES = (
    Size("sMNIST", T=784, B=100, layers=((1, 100),), n_out=10),
    Size("text", T=400, B=64, layers=((256, 1024),), n_out=2, n_words=87_000, n_relu=30),
    Size(
        "PTB",
        T=70,
        B=20,
        layers=((400, 1150), (1150, 1150), (1150, 400)),
        n_out=10_000,
        n_words=10_000,
        every_step=True,
    ),
)
DELTA = {"sMNIST": 0.03, "text": 0.04, "PTB": 0.06}
OPTIMIZER: dict[str, Any] = {"sMNIST": RMSProp(1e-3), "text": Adam(5e-4), "PTB": SGD(30.0)}
LENGTHS = {"sMNIST": (784, 196), "text": (40, 10), "PTB": (70, 20)}
"""Time steps that are measured; the cost model is linear in them, and extends them to the paper's number."""

BUFFERS = (4_000, 40_000, 400_000, 4_000_000, 40_000_000)
"""Sizes in bytes of the buffers whose Allreduce is timed, beside the gradients of the three sizes."""

GPU = Gpu(flops=8e12, launch=6e-6, loop=2e-6, memory=1e12)
CLUSTERS = (
    Cluster("8 GPUs, sum on the GPUs (CUDA-aware)", 8, Network(10e-6, 100e9), GPU),
    Cluster("8 GPUs, sum on the host (default)", 8, Network(5e-6, 5e9, copies=12e9), GPU),
    Cluster("64 nodes of one core, 10 Gb/s", 64, Network(30e-6, 1.1e9)),
    Cluster("64 nodes of one core, 100 Gb/s", 64, Network(3e-6, 11e9)),
    Cluster("64 nodes of one GPU, 100 Gb/s, sum on the host", 64, Network(3e-6, 11e9, copies=12e9), GPU),
)


@dataclass(frozen=True)
class Drawn:
    """A task that trains on one random batch again and again: what a step costs does not depend on what is learnt."""

    model: Any
    batch: Any
    regularizer: AdD
    per_epoch: int = 1
    unit: str = "example"

    @property
    def units_per_step(self) -> int:
        return len(self.batch)

    @property
    def load(self) -> Load:
        return Load(0.0, 0, len(self.batch))

    def init(self) -> Any:
        return self.model.init(stream(0, "init"), dtype=np.float32)

    def first_carry(self) -> None:
        return None

    def rate(self, step: int) -> float:
        return 1.0

    def term(
        self, params: Any, step: int, *, weight: float, carry: Any, part: Part = WHOLE, model: Any = None
    ) -> tuple[Term, None]:
        B = len(self.batch)
        rows, share = part.rows(B), part.share(B)
        batch = tree_map(lambda a: a if np.ndim(a) == 0 else a[rows] if np.ndim(a) == 1 else a[:, rows], self.batch)
        rng = part.rng(stream(0, "masks", step), B)
        model = model or self.model
        return self.regularizer(model, params, batch, rng=rng, weight=share * weight, likelihood=share), None

    def evaluate(self, params: Any, part: str) -> dict[str, Any]:
        raise NotImplementedError("only steps are timed")


def make_task(size: Size, delta: float) -> Drawn:
    """A batch of random inputs for the model of a size."""
    rng = stream(0, "data")
    shape = (size.T, size.B)
    if size.every_step:
        tokens, targets = rng.integers(size.n_words, size=(2, *shape))
        words = LanguageModel(size.n_words, size.layers[0][0], tuple(H for _, H in size.layers))
        return Drawn(words, TokenBatch(tokens, targets), AdD(delta=delta))
    targets = rng.integers(size.n_out, size=size.B)
    [(I, H)] = size.layers
    if size.n_words:
        tokens = rng.integers(size.n_words, size=shape)
        text = TextClassifier(size.n_words, I, H, n_classes=size.n_out, n_relu=size.n_relu)
        return Drawn(text, TextBatch(tokens, targets), AdD(delta=delta))
    x = rng.random((*shape, I), dtype=np.float32)
    return Drawn(Classifier(I, H, size.n_out), Batch(x, targets), AdD(delta=delta))


def time_steps(size: Size, sharing: Any, repeats: int) -> list[float]:
    """Seconds of each of ``repeats`` whole steps, update included, after one step that is not counted."""
    task = make_task(size, DELTA[size.name])
    recipe = loop.Recipe(steps=1, optimizer=OPTIMIZER[size.name])
    state, members = loop.start(task, recipe), sharing(task)
    seconds = []
    try:
        for _ in range(1 + repeats):
            began = time.perf_counter()
            loop.advance(task, recipe, state, members)
            seconds.append(time.perf_counter() - began)
    finally:
        members.close()
    return seconds[1:]


def measure_alone(size: Size, repeats: int, shorter: int) -> dict[str, Any]:
    """Time one process on the whole batch, on smaller ones and on fewer time steps, and fit the cost model."""
    long, short = (max(2, T // shorter) for T in LENGTHS[size.name])
    few, points = max(1, size.B // 20), []
    for T, b in ((long, size.B), (long, size.B // 4), (long, few), (short, size.B), (short, few)):
        times = time_steps(replace(size, T=T, B=b), OneWorker, repeats)
        points.append((T, b, statistics.median(times)))
        print(f"{size.name}: T = {T}, {b} examples: {points[-1][2]:.3f} s", file=sys.stderr, flush=True)
    return {"points": points, "fit": asdict(fit_compute(points))}


class Timed:
    """A communicator that times each Allreduce: the wait until all ranks are there, and the sum after that."""

    def __init__(self, comm: Any) -> None:
        self._comm, self.sums, self.waits = comm, [0.0], [0.0]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._comm, name)

    def Allreduce(self, given: Any, total: Any) -> None:
        began = time.perf_counter()
        self._comm.Barrier()
        there = time.perf_counter()
        self._comm.Allreduce(given, total)
        self.waits.append(there - began)
        self.sums.append(time.perf_counter() - there)


def time_sum(comm: Any, nbytes: int, repeats: int) -> float:
    """Seconds of an Allreduce of ``nbytes`` bytes: the median, over repeats, of the slowest rank's time."""
    given = np.ones(nbytes // 4, np.float32)
    timed, total = Timed(comm), np.empty_like(given)
    for _ in range(2 + repeats):
        timed.Allreduce(given, total)
    return float(np.median(np.max(comm.allgather(timed.sums[3:]), axis=0)))


def measure_ranks(out: Path, args: argparse.Namespace) -> None:
    """What every rank runs under mpiexec: sums of several sizes, then whole steps; rank 0 writes the numbers."""
    ours = process_group()
    found: dict[str, Any] = {"sums": [], "steps": {}}
    for nbytes in sorted({*BUFFERS, *(size.nbytes for size in SIZES if size.name in args.sizes)}):
        found["sums"].append((nbytes, time_sum(ours.comm, nbytes, max(3, args.repeats * min(10, 10**8 // nbytes)))))
    steps = [size for size in SIZES if size.name in args.sizes] if ours.size <= (os.cpu_count() or 1) else []
    for size in steps:
        T = max(2, LENGTHS[size.name][0] // args.shorter)
        timed = Timed(ours.comm)

        def sharing(task: Any, timed: Timed = timed) -> Workers:
            return RankWorkers(task, ProcessGroup(timed), task.init(), check_every=10**9)

        times = time_steps(replace(size, T=T), sharing, args.repeats)
        row = {"T": T, "seconds": statistics.median(times), "sum": statistics.median(timed.sums[2:])}
        found["steps"][size.name] = {**row, "wait": statistics.median(timed.waits[2:])}
    if ours.chief:
        reporting.write_json(out, found)


def start_ranks(n: int, args: argparse.Namespace) -> dict[str, Any]:
    """Start n ranks of `measure_ranks` with mpiexec, and return what they measured."""
    own = Path(sys.executable).with_name("mpiexec")
    mpiexec = str(own) if own.exists() else shutil.which("mpiexec")
    if mpiexec is None:
        raise SystemExit("there is no mpiexec: pip install mpi4py mpich")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "ranks.json"
        options = ["--as-rank", str(out), "--repeats", str(args.repeats), "--shorter", str(args.shorter)]
        command = [mpiexec, "-n", str(n), sys.executable, "-m", "experiments.scaling", *options, "--sizes", *args.sizes]
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        subprocess.run(command, check=True, timeout=1800, env=environment, cwd=Path(__file__).parents[1])
        found: dict[str, Any] = json.loads(out.read_text())
    return found


def main(argv: Sequence[str] | None = None) -> None:
    """The command line."""
    names = [size.name for size in SIZES]
    parser = Parser(prog="python -m experiments.scaling", description=__doc__)
    parser.add_argument("--sizes", nargs="+", choices=names, default=names, help="which of the sizes (default: all)")
    parser.add_argument("--repeats", type=positive, default=5, help="steps timed at each point (default 5)")
    parser.add_argument(
        "--shorter", type=positive, default=1, help="factor by which measured sequences are shorter (default 1)"
    )
    parser.add_argument("--ranks", type=positive, nargs="+", default=[2, 4], help="numbers of ranks (default 2 4)")
    parser.add_argument("--out", type=Path, default=reporting.RESULTS, help="folder for the results")
    parser.add_argument("--as-rank", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.as_rank is not None:
        with process_group().fail_together():
            measure_ranks(args.as_rank, args)
        return

    started = time.time()
    sizes = [size for size in SIZES if size.name in args.sizes]
    with limit_threads(1):
        alone = {size.name: measure_alone(size, args.repeats, args.shorter) for size in sizes}
    ranks = {str(n): start_ranks(n, args) for n in args.ranks}
    links = {n: fit_network(int(n), found["sums"]) for n, found in ranks.items()}
    fits = {name: fit_compute(found["points"]) for name, found in alone.items()}
    forecasts = [asdict(forecast(size, cluster, fits[size.name])) for cluster in CLUSTERS for size in sizes]
    about = reporting.facts(started, repeats=args.repeats, shorter=args.shorter)
    about["command"] = reporting.command("scaling", argv)
    networks = {n: {"latency": link.latency, "bandwidth": link.bandwidth} for n, link in links.items()}
    data = {"facts": about, "alone": alone, "ranks": ranks, "networks": networks, "forecasts": forecasts}
    results = records.plain(data)
    paths = [
        reporting.write_results(args.out / "scaling.json", results),
        reporting.write(args.out / "scaling.md", page(results)),
    ]
    print(page(results))
    print("written:", *paths, sep="\n  ")


def page(results: dict[str, Any]) -> str:
    """The whole page of results, made from the numbers alone and from what is assumed of GPUs and networks."""
    sizes = [size for size in SIZES if size.name in results["alone"]]
    return scaling_tables.page(results, sizes, GPU, CLUSTERS)


if __name__ == "__main__":
    main()

r"""The beginning of training at the paper's full size: sequential MNIST, T = 784, 100 units, `none` beside AdD (K = 1).

``python -m experiments.anchor --data-dir DIR`` trains both networks with the paper's optimizer and its schedules of 250
epochs, and stops after ``--epochs`` of them, 15 unless told otherwise. The runs are those of ``minadv train``: killed,
they go on when the same command is given again; with more epochs they go on from where they stopped. Writes
anchor.json, .md and .png under experiments/results. ``--report-only`` trains nothing and tells how far the runs are.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import minadv
from experiments import launches
from experiments.parts import comparison, records, reporting
from experiments.parts.comparison import Job, Preset
from experiments.table1 import PRESETS
from minadv.commands.numbers import positive
from minadv.commands.parsing import Parser
from minadv.data.images import Images
from minadv.training.loop import LOG
from minadv.training.runs import checkpoints, log

PRESET = PRESETS["paper"]
METHODS = ("none", "AdD K=1")
STEP = "bench_images.json"
"""The file with the time of a step of each method on a quiet machine; the runs themselves may have had company."""


def train(job: Job, data: Images, epochs: int, workers: int | None) -> None:
    """Train to the end of an epoch, from where the run stopped the last time."""
    saved = checkpoints.latest(job.folder)
    if saved is not None and checkpoints.verify(saved).step >= epochs * (len(data.train) // job.preset.batch):
        return  # not by the log, which has an epoch a moment before its checkpoint is written

    def stop(record: dict[str, Any]) -> None:
        if record["epoch"] >= epochs:
            raise minadv.Stop

    comparison.train(job, data, workers=workers, on_evaluation=stop)


def curve(job: Job) -> list[dict[str, float]]:
    """What the log of a run says of each epoch; nothing for one that was not begun."""
    if not (job.folder / LOG).exists():
        return []
    evaluations = [r for r in log.read(job.folder / LOG) if r["kind"] == "evaluation"]
    return [{name: float(r[name]) for name in ("epoch", "valid_loss", "valid_error")} for r in evaluations]


def table(data: dict[str, Any]) -> str:
    """How far each network has come, and what the whole training would take."""
    rows, whole = [], data["facts"]["preset"]["epochs"] * data["facts"]["steps"]
    for r in data["results"]:
        best = min(r["curve"], key=lambda one: one["valid_error"])
        rows.append(
            [
                r["method"],
                f"{r['curve'][-1]['epoch']:g}",
                f"{best['valid_error']:.2f} (epoch {best['epoch']:g})",
                f"{r['test']:.2f}",
                f"{r['step']:.3f}",
                f"{whole * r['step'] / 3600:.1f}",
            ]
        )
    head = ["trained with", "epochs", "least validation error %", "its test error %", "seconds a step"]
    return reporting.markdown([*head, f"hours of {data['facts']['preset']['epochs']:g} epochs"], rows)


def page(data: dict[str, Any]) -> str:
    """The whole page of results, made from the numbers alone."""
    about = data["facts"]
    preset = Preset(**records.tuples(about["preset"]))
    delta, weight = comparison.settings("AdD K=1", preset.n_hidden)[0]
    least, most = about["gpu"]
    hours = " to ".join(f"{preset.epochs * about['steps'] * ms / 3.6e6:.2f}" for ms in (least, most))
    return f"""# Sequential MNIST at the paper's size, its first epochs

T = 784, LSTM of {preset.n_hidden} units, batches of {preset.batch}, RMSProp at {preset.lr:g}, the paper's schedules
over {preset.epochs:g} epochs. The weight of the regularizer grows over the first fifth of them, so that the two
networks are bound to differ little at first. AdD K=1 at δ = {delta:g}, weight {weight:g}; one seed, which is an
observation and no test.

{table(data)}

A step's seconds are those of `experiments.bench.images` on two cores of a quiet machine. On a GPU a step of AdD K=1 is
estimated to take {least:.1f} to {most:.1f} ms, the whole training {hours} hours beside its evaluations; nobody has
timed it there (`experiments.launches` says what is assumed).
`{about["command"]}`; made on: {reporting.made_by(data["results"])}, NumPy {about["numpy"]}.
"""


def figure(data: dict[str, Any]) -> Any:
    """Learning curves beside each other."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import MaxNLocator

    drawn, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for axis, (name, label) in zip(
        axes, (("valid_error", "validation error %"), ("valid_loss", "validation loss")), strict=True
    ):
        for r in data["results"]:
            axis.plot([one["epoch"] for one in r["curve"]], [one[name] for one in r["curve"]], "o-", label=r["method"])
        axis.set(xlabel="epoch", ylabel=label, yscale="log")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.legend()
    return drawn


def on_a_gpu() -> tuple[float, float]:
    """Milliseconds of a step of AdD K=1 on a GPU, the least and the most, by the estimate of `experiments.launches`."""
    row = reporting.read_results(reporting.RESULTS / "launches.json")["rows"]["LSTM, 100 units"]
    counts = list(row["counts"].values())[-1]
    return launches.between(launches.estimate("lstm", counts["kernel"] + counts["blas"], counts["sync"]))


@reporting.one_line_errors
def main(argv: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = Parser(prog="python -m experiments.anchor", description=__doc__)
    parser.add_argument("--epochs", type=positive, default=15, help="of the 250 (default 15)")
    parser.add_argument("--data-dir", help="folder of MNIST's idx files")
    reporting.add_device(parser)
    parser.add_argument("--runs", type=Path, default=Path("runs/anchor"), help="folder of the runs (runs/anchor)")
    parser.add_argument("--out", type=Path, default=reporting.RESULTS, help="folder for the results")
    parser.add_argument("--report-only", action="store_true", help="train nothing; write how far the runs have come")
    args = parser.parse_args(argv)
    started, where = time.time(), reporting.place(args)
    data = comparison.load(PRESET, "s", args.data_dir)
    jobs = []
    for method in METHODS:
        setting = comparison.settings(method, PRESET.n_hidden)[0]
        place = (args.runs, args.data_dir, where["device"])
        jobs.append(Job(PRESET, method, "s", 0, *setting, "anchor", *place))
        if not args.report_only:
            train(jobs[-1], data, args.epochs, None if where["device"] == "gpu" else where["workers"])
    seconds = reporting.read_results(reporting.RESULTS / STEP)["rows"]
    results = [
        {
            "method": job.method,
            "made": reporting.made(job.folder),
            "curve": curve(job),
            "test": float(minadv.load(job.folder).test(data)["error"]),
            "step": float(np.median(seconds[job.method]["seconds"])),
        }
        for job in jobs
        if curve(job)
    ]
    about = reporting.facts(started, preset=asdict(PRESET), steps=len(data.train) // PRESET.batch, gpu=on_a_gpu())
    about["command"] = reporting.command("anchor", argv)
    found = records.plain({"facts": about, "results": results})
    paths = [
        reporting.write_results(args.out / "anchor.json", found),
        reporting.write(args.out / "anchor.md", page(found)),
        reporting.save_figure(figure(found), args.out / "anchor.png"),
    ]
    print(f"{table(found)}\n")
    print("written:", *paths, sep="\n  ")


if __name__ == "__main__":
    main()

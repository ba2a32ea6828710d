r"""``minadv train`` and ``minadv eval``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from minadv.adversary import find_budgets
from minadv.backend import Device, choose_device, to_device
from minadv.base import launch
from minadv.commands import families, tasks
from minadv.commands.foreign import expect_used
from minadv.data.images.batches import Batches
from minadv.data.images.sequences import from_description
from minadv.regularizers import AdD
from minadv.searches import Greedy
from minadv.tasks.config import build
from minadv.tasks.images import runs
from minadv.tasks.images.task import evaluate
from minadv.training.parallel.choose import same_workers
from minadv.training.parallel.mpi import CUDA_AWARE


def train(args: argparse.Namespace) -> None:
    """A new run, or an old one to its end."""
    if args.resume is not None:
        _resume(Path(args.resume), args)
        return
    args.task = args.task or tasks.DEFAULT
    out = Path(args.out or f"runs/{args.task}-{args.method}-seed{args.seed}")
    runs.expect_free(out)
    expect_used(args, tasks.uses(args))
    about = tasks.about_data(args)
    regularizer = tasks.regularizer(args)
    device = choose_device(args.device)
    data = from_description(about)
    model = tasks.model(args, data)
    if isinstance(regularizer, AdD):
        find_budgets(model, delta=args.delta, search=regularizer.search)  # errors, before any step
    fits = min(args.batch, len(data.train)) if args.batch == args.defaults["batch"] else args.batch
    per_epoch = Batches(len(data.train), fits, args.seed).per_epoch
    _say(f"{args.task}: {len(data.train):,} training sequences of {data.train.x.shape[1]} steps; writing {out}")
    run = _fit(
        model,
        data,
        regularizer=regularizer,
        recipe=tasks.recipe(args, per_epoch),
        batch_size=fits,
        seed=args.seed,
        device=device,
        out=out,
        about=about,
        track=_track(args.hidden) if args.track else None,
        workers=args.workers,
        cuda_aware_mpi=args.cuda_aware_mpi or None,
    )
    _report(run)


def _resume(path: Path, args: argparse.Namespace) -> None:
    """Go on as the run was configured; only where its data is and where to compute may be said anew."""
    free = ("resume", "data_dir", "device", "workers", "cuda_aware_mpi")
    fixed = [name for name, value in args.defaults.items() if name not in free and getattr(args, name) != value]
    if fixed:
        given = ", ".join("TASK" if name == "task" else f"--{name.replace('_', '-')}" for name in fixed)
        raise ValueError(f"--resume goes on with the settings of the run: leave out {given}")
    config = runs.read_config(path)
    family = families.of_run(path)
    if family is not None:
        if args.cuda_aware_mpi:
            raise ValueError(f"--cuda-aware-mpi is for runs on images: for {path} set {CUDA_AWARE}=1 instead")
        family.resume(path, args)
        return
    if runs.is_finished(path):
        print(f"{path} is finished: nothing to resume")
        return
    about = tasks.moved(config["about"], args.data_dir)
    device = choose_device(config["device"] if args.device == "auto" else args.device)
    run = _fit(
        build(config["model"], "model"),
        from_description(about),
        regularizer=build(config["regularizer"], "regularizer"),
        recipe=runs.build_recipe(config["recipe"]),
        batch_size=config["batch_size"],
        seed=config["seed"],
        device=device,
        out=path,
        resume=True,
        about=about,
        track=config["track"],
        workers=args.workers or same_workers(config, device),
        cuda_aware_mpi=args.cuda_aware_mpi or None,
    )
    _report(run)


def _fit(model: Any, data: Any, *, device: Device, **options: Any) -> runs.Run:
    _say(f"device: {device.why}")
    with families.resumable(options["out"]):
        return runs.fit(model, data, device=device, on_evaluation=_show, **options)


def _show(record: dict[str, Any]) -> None:
    if not sys.stderr.isatty():
        _say(
            f"step {record['step']}, epoch {record['epoch']:.1f}: loss {record['train_loss']:.4f}, "
            f"regularizer {record['regularizer']:.4f}, validation error {record['valid_error']:.2f} %"
        )


def _track(hidden: int) -> dict[str, Any]:
    """How the mean adversarial mask is found at each evaluation: as Figure 3."""
    return {"budgets": tasks.some_flips(hidden), "search": Greedy(K=2, keep="last")}


def _report(run: runs.Run) -> None:
    if launch.place().rank > 0:
        return
    test = run.test()
    best = min(run.records, key=lambda r: r["valid_error"])
    print(
        f"test error {test['error']:.2f} % (loss {test['loss']:.4f}), best validation error "
        f"{best['valid_error']:.2f} % at step {best['step']} of {run.step}; run in {run.path}"
    )


def evaluation(args: argparse.Namespace) -> None:
    """The error of a run on its data."""
    run = runs.load(args.run)
    data = from_description(tasks.moved(run.config["about"], args.data_dir))
    device = families.told(args.device)
    params, part = to_device((run.last if args.last else run.params, getattr(data, args.part)), device)
    metrics = evaluate(run.model, params, part, batch_size=run.batch_size)
    n = len(getattr(data, args.part))
    print(f"{args.part} error {metrics['error']:.2f} %, loss {metrics['loss']:.4f} ({n:,} sequences)")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)

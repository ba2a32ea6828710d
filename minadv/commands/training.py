r"""What the commands that train have in common: progress on standard error, and at the end one line of results."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from minadv.backend import choose_device
from minadv.base import launch
from minadv.tasks.fit import Plan, is_finished, plan, plan_resumed
from minadv.tasks.methods import expect_used
from minadv.tasks.schema import read_config
from minadv.training.loop import Interrupted
from minadv.training.memory import Table
from minadv.training.parallel.members import WorkerError
from minadv.training.runs.folder import CONFIG, expect_free, how_to_resume


def say(text: str) -> None:
    """Print a line on standard error."""
    print(text, file=sys.stderr, flush=True)


def new_run(args: argparse.Namespace, out: Path) -> None:
    """Train the run that the options describe; an error in them is raised before anything is written."""
    expect_free(out)
    if args.family.methods:
        expect_used(args)
    args.family.check(args)
    device = choose_device(args.device)
    about = args.family.about(args)
    data = args.family.open_data(about)
    arguments = args.family.arguments(args, data)
    arguments["model"] = replace(arguments["model"], engine=args.engine)
    train(plan(data=data, seed=args.seed, device=device, out=out, about=about, **arguments), args)


def old_run(args: argparse.Namespace) -> None:
    """Resume a run as it was configured; only the folder of its data, the device and the workers may differ."""
    path = Path(args.resume)
    config = read_config(path)
    if is_finished(path):
        print(f"{path} is finished: nothing to resume")
        return
    device = choose_device(config["device"] if args.device == "auto" else args.device)
    train(plan_resumed(path, data_dir=args.data_dir, device=device), args)


def train(planned: Plan, args: argparse.Namespace) -> None:
    """Train a planned run and print a line with its results."""
    if not planned.resume:
        say(f"{planned.family.summary(planned)}; writing {planned.out}")
    remembered = planned.task.first_carry()
    if isinstance(remembered, Table):
        say(f"the search remembers {len(remembered.d):,} examples in {remembered.nbytes / 1e6:.3g} MB")
    say(f"device: {planned.device.why}")
    if planned.needs is not None:
        say(str(planned.needs))
    assert planned.out is not None
    with resumable(planned.out):
        aware = getattr(args, "cuda_aware_mpi", None) or None
        run = planned.train(workers=args.workers, cuda_aware_mpi=aware, on_evaluation=tell, on_step_time=tell_time)
    if launch.this_process().rank == 0:
        print(planned.family.report(run, planned.device))


def tell(record: dict[str, Any]) -> None:
    """Print the results of an evaluation, unless a progress bar shows them."""
    if sys.stderr.isatty():
        return
    parts = []
    if record["train_loss"] is not None:  # None in an evaluation before the first step
        parts = [f"loss {record['train_loss']:.4f}", f"regularizer {record['regularizer']:.4g}"]
    if "valid_error" in record:
        parts.append(f"validation error {record['valid_error']:.2f} %")
    else:
        parts.append(f"validation perplexity {record['valid_perplexity']:.2f}")
    if "adversary" in record:
        parts.append(f"adversary {record['adversary']['share']:.2f} of a stronger one")
    say(f"step {record['step']}, epoch {record['epoch']:.2f}: {', '.join(parts)}")


def tell_time(seconds: float, left: int) -> None:
    """Print how long a step takes, unless a progress bar shows it."""
    if not sys.stderr.isatty():
        say(f"{seconds:.2g} s a step: about {timedelta(seconds=round(seconds * left))} for the {left:,} that are left")


@contextmanager
def resumable(out: Path) -> Iterator[None]:
    """Within it, the errors of interrupted training and of a lost worker also say how to resume the run."""
    try:
        yield
    except (Interrupted, WorkerError) as error:
        raise type(error)(f"{error}; {_how_to_go_on(out)}") from None
    except KeyboardInterrupt:
        if not (out / CONFIG).exists():
            raise
        raise Interrupted(f"stopped before the first step of this call; {_how_to_go_on(out)}") from None


def _how_to_go_on(out: Path) -> str:
    return f"go on with: {launch.this_process().command}{how_to_resume(out)}"

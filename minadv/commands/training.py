r"""What the commands that train have in common: progress on standard error, and at the end one line of results."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from minadv.backend import choose_device
from minadv.base import launch
from minadv.base.pulse import doing, heard
from minadv.commands import configuration
from minadv.commands.options import OPTIONS
from minadv.commands.placing import place
from minadv.tasks.extend import extend, extended
from minadv.tasks.fit import Plan, plan
from minadv.tasks.methods import expect_used
from minadv.tasks.options import chosen
from minadv.tasks.resume import device_of, is_finished, plan_resumed
from minadv.tasks.run import Run
from minadv.tasks.schema import read_config
from minadv.training.loop import Interrupted
from minadv.training.memory import Table
from minadv.training.parallel.members import WorkerError
from minadv.training.parallel.ranks import process_group
from minadv.training.runs.folder import CONFIG, how_to_resume

SAMPLE: int = OPTIONS["sample"]["default"]  # words of a run whose configuration does not say


def say(text: str) -> None:
    """Print a line on standard error."""
    print(text, file=sys.stderr, flush=True)
    heard()


def new_runs(args: argparse.Namespace, name: str) -> None:
    """Train the run that the options describe, or one for each of several seeds; ``name`` is that of runs without one.

    An error in the options, or a folder that is taken, is raised before the first of them is trained. Of several runs
    the mean and the deviation are told as well.
    """
    if args.seeds is not None and (args.seed != args.defaults["seed"] or len(set(args.seeds)) != len(args.seeds)):
        raise ValueError(
            f"--seeds is {' '.join(map(str, args.seeds))}, expected different seeds, and no --seed besides"
        )
    if args.family.methods:
        expect_used(args)
    args.family.check(args)
    _expect_sharing(args, chosen(args, "batch"), getattr(args, "unlabelled", 0))
    about, places = args.family.about(args), []
    for number in [args.seed] if args.seeds is None else args.seeds:
        out = args.out if args.seeds is None or args.out is None else f"{args.out}-seed{number}"
        found = process_group().agree(partial(place, out, f"{name}-seed{number}", overwrite=args.overwrite))
        _expect_kept(args, found)
        places.append((number, found))
    values = []
    for number, out in places:
        one = argparse.Namespace(**{**vars(args), "seed": number, "seeds": None})
        values.append(new_run(one, out, about))
    known = [value for value in values if value is not None]
    if len(known) > 1:
        metric = args.family.metrics[0]
        spread = f"{np.mean(known):.2f} +- {np.std(known, ddof=1):.2f}{' %' if metric == 'error' else ''}"
        print(f"test {metric} over {len(known)} seeds: {spread} (mean and standard deviation)")


def new_run(args: argparse.Namespace, out: Path, about: dict[str, Any]) -> float | None:
    """Train the run that the options describe; an error in them is raised before anything is written."""
    device = choose_device(args.device, tf32=args.tf32)
    with doing("loading the data"):
        data = args.family.open_data(about)
    args.preset = replace(args.preset, values={**args.preset.values, **args.family.fitted(args, data)})
    arguments = args.family.arguments(args, data)
    arguments["model"] = replace(arguments["model"], engine=args.engine)
    if args.config is not None:
        say(configuration.effective(args, about, arguments))
    return train(plan(data=data, seed=args.seed, device=device, out=out, about=about, **arguments), args)


def _expect_sharing(args: argparse.Namespace, batch: int, unlabelled: int | None) -> None:
    """Raise ValueError for more workers than a batch has examples, before the data are read, or MPI without mpiexec."""
    most = batch + (batch if unlabelled is None else unlabelled)
    if args.workers is not None and args.workers > most:
        raise ValueError(f"--workers is {args.workers}, expected at most {most}, the examples of a batch")
    if args.cuda_aware_mpi and process_group().size == 1:
        raise ValueError("--cuda-aware-mpi is for mpiexec: put mpiexec -n N before the command, or leave it out")


def _expect_kept(args: argparse.Namespace, out: Path) -> None:
    """Raise ValueError for a run that would be overwritten although the new one begins with its weights."""
    first = getattr(args, "pretrained", None)
    if args.overwrite and first is not None and Path(first).resolve() == out.resolve():
        raise ValueError(f"--overwrite would remove {out}, whose weights --pretrained takes: choose another --out")


def old_run(args: argparse.Namespace) -> None:
    """Resume a run as it was configured; only the folder of its data, the device and the workers may differ.

    With --train-steps it goes on to that many steps in all, with --patience besides as long as that allows.
    """
    path = Path(args.resume)
    config = read_config(path)
    _expect_sharing(args, config["batch_size"], config.get("unlabelled_size", 0))
    if args.train_steps is not None:
        extended(path, args.train_steps, args.patience)  # raises before the data are read
    elif args.patience is not None:
        raise ValueError(f"--patience {args.patience} beside --resume needs --train-steps, the new length of the run")
    elif is_finished(path):
        print(f"{path} is finished: nothing to resume")
        return
    device = device_of(config, None if args.device == "auto" else args.device)
    with doing("loading the data"):
        planned = plan_resumed(path, data_dir=args.data_dir, device=device)
    if args.train_steps is not None:  # written only now, that the run could go on
        process_group().agree(lambda: extend(path, args.train_steps, args.patience))
        planned = plan_resumed(path, planned.data, data_dir=args.data_dir, device=device)
    train(planned, args)


def train(planned: Plan, args: argparse.Namespace) -> float | None:
    """Train a planned run and print a line with its results; the first number in it, if there is one."""
    if not planned.resume:
        first, *others = planned.family.summary(planned).split("\n")
        say("\n".join([f"{first}; writing {planned.out}", *others]))
    remembered = planned.task.first_carry()
    if isinstance(remembered, Table):
        say(f"the search remembers {len(remembered.d):,} examples in {remembered.nbytes / 1e6:.3g} MB")
    say(f"device: {planned.device.why}")
    if planned.needs is not None:
        say(str(planned.needs))
    assert planned.out is not None
    first_at = min(planned.recipe.steps, planned.recipe.eval_every or planned.task.per_epoch)
    if not planned.resume:
        say(f"first evaluation at step {first_at:,} of {planned.recipe.steps:,}")
    with resumable(planned.out):
        aware = getattr(args, "cuda_aware_mpi", None) or None
        how: dict[str, Any] = {
            "workers": args.workers,
            "cuda_aware_mpi": aware,
            "overwrite": getattr(args, "overwrite", False),
        }
        how |= {"on_evaluation": tell, "on_step_time": partial(tell_time, first_at=first_at)}
        words: int = planned.config["about"].get("sample", SAMPLE)
        if planned.family.generate is not None and words > 0:
            how["on_weights"] = partial(tell_sample, planned, words)
        run = planned.train(**how)
    if launch.this_process().rank != 0:
        return None
    with doing("testing"):
        report = planned.family.report(run, planned.device)
    print(report.line, flush=True)
    if planned.family.baseline is not None and report.value is not None:
        with doing("a simple method on the same data"):
            line = planned.family.baseline(run, report.value)
        say(line)
    return report.value


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
    if record.get("zero_maps"):
        parts.append(f"zero influence maps {record['zero_maps']:,}")
    if "adversary" in record:
        parts.append(f"adversary {record['adversary']['share']:.2f} of a stronger one")
    say(f"step {record['step']}, epoch {record['epoch']:.2f}: {', '.join(parts)}")


def tell_sample(planned: Plan, words: int, step: int, params: Any) -> None:
    """Print words that a language model writes with its weights of an evaluation, unless a progress bar is shown.

    Their random numbers are a stream of their own, the same at every evaluation: training does not notice.
    """
    if not sys.stderr.isatty():
        run = Run(planned.model, params, params, planned.config, [], step, planned.out, planned.data)
        say(f"it writes: {' '.join(run.generate(words, seed=planned.seed))}")


def tell_time(seconds: float, left: int, *, first_at: int = 0) -> None:
    """Print how long a step takes, and when the first evaluation is due, unless a progress bar shows it."""
    if not sys.stderr.isatty():
        due = timedelta(seconds=round(seconds * max(0, first_at - 2)))
        more = f"; the first evaluation is due in about {due}" if first_at > 2 else ""
        whole = timedelta(seconds=round(seconds * left))
        say(f"{seconds:.2g} s a step: about {whole} for the {left:,} that are left{more}")


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

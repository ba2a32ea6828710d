r"""The command line: options here, work in `minadv.commands`.

Errors a user can mend are one line on standard error and exit code 2; training that cannot go on, 1; Ctrl-C, 130.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from typing import TypeAlias

from minadv.backend import BackendError
from minadv.base import launch
from minadv.base.version import __version__
from minadv.commands import doctor, families, inspecting, tasks, training
from minadv.commands.numbers import amount, count, folder, positive, zero_or_more
from minadv.commands.parsing import Help, Parser, tell_defaults
from minadv.distances import DISTANCES
from minadv.gradcheck import GradientError
from minadv.masks import SCALES
from minadv.models.stack import CELLS
from minadv.searches import SEARCHES
from minadv.training.loop import Interrupted, TrainingError
from minadv.training.parallel.ranks import one_voice, world
from minadv.training.runs.checkpoints import CheckpointError

Commands: TypeAlias = "argparse._SubParsersAction[Parser]"


TRAINING = ("train", "pretrain", "finetune")
"""The commands that the processes of mpiexec share."""


@one_voice()
def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. Under mpiexec every rank does, and rank 0 alone prints."""
    parser = build_parser()
    args = _parse(parser, list(sys.argv[1:] if argv is None else argv))
    if getattr(args, "work", None) is None:
        parser.print_help()
        return 0
    with warnings.catch_warnings():
        warnings.filterwarnings("once", category=UserWarning)
        warnings.showwarning = _show_warning
        return _run(args)


def _parse(parser: argparse.ArgumentParser, argv: list[str]) -> argparse.Namespace:
    """The arguments; ``train TASK`` of a family has a parser of its own, wherever the task stands among the options."""
    place = _task_place(argv) if argv[:1] == ["train"] else None
    family = None if place is None else families.of_task(argv[place])
    if family is None or place is None:
        if place is not None and argv[place] not in tasks.PRESETS:
            known = [*tasks.PRESETS, *(name for f in families.all_families() for name in f.TASKS)]
            parser.error(f"train: {argv[place]!r} is not a task, expected one of {', '.join(known)}")
        return parser.parse_args(argv)
    task = argv[place]
    about = f"train on a task: {family.TASKS[task]}"
    own = Parser(prog=f"minadv train {task}", description=about, formatter_class=Help)
    family.options(own)
    tell_defaults(own, family.defaults(task))
    own.set_defaults(work=family.train, task=task, command="train")
    own.set_defaults(defaults=vars(own.parse_args([])))  # to see what was given
    if any(given.split("=")[0] == "--resume" for given in argv):
        own.error("a run goes on as it was configured: minadv train --resume RUN, without a task")
    return own.parse_args(argv[1:place] + argv[place + 1 :])


def _task_place(argv: list[str]) -> int | None:
    """Where the task of ``train`` stands: the first argument that is neither an option nor an option's value."""
    (flags, valued), place = _options(), 1
    while place < len(argv) and argv[place].startswith("-"):
        given = argv[place]  # perhaps the beginning of an option; --p is one, and that of --permuted too
        alone = "=" in given or (given not in valued and any(flag.startswith(given) for flag in flags))
        place += 1 if alone else 2
    return place if place < len(argv) else None


def _options() -> tuple[set[str], set[str]]:
    """The options of ``train``, whatever the task: those without a value, and those with one."""
    parser = Parser(conflict_handler="resolve")
    for add_options in (_train_options, *(family.options for family in families.all_families())):
        add_options(parser)
    flags = {option for action in parser._actions if action.nargs == 0 for option in action.option_strings}
    return flags, {option for action in parser._actions for option in action.option_strings} - flags


def _run(args: argparse.Namespace) -> int:
    """Do the work of a command; errors become a line and an exit code."""
    try:
        if launch.place().size > 1 and args.command not in TRAINING:
            raise ValueError("mpiexec shares training only: start this command without it")
        with world().together():
            args.work(args)
        sys.stdout.flush()
    except Interrupted as said:
        print(f"\nminadv: {said}", file=sys.stderr)
        return 130
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever read the output, such as head, has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (TrainingError, GradientError) as error:
        print(f"minadv: {error}", file=sys.stderr)
        return 1
    except MemoryError as error:
        print(f"minadv: out of memory ({error}): take smaller batches, or a smaller network", file=sys.stderr)
        return 1
    except OSError as error:
        named = error.filename is not None and error.strerror is not None  # as the system says it, without its number
        print(f"minadv: {f'{error.filename}: {error.strerror}' if named else error}", file=sys.stderr)
        return 2
    except (ValueError, TypeError, ImportError, BackendError, CheckpointError) as error:
        print(f"minadv: {error}", file=sys.stderr)
        return 2
    return 0


def _show_warning(message: Warning | str, *where: object, **how: object) -> None:
    print(f"minadv: warning: {message}", file=sys.stderr)


def build_parser() -> argparse.ArgumentParser:
    """All commands and options."""
    parser = Parser(prog="minadv", description="Adversarial dropout for recurrent neural networks, on NumPy and CuPy.")
    parser.add_argument("--version", action="version", version=f"minadv {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    _train(commands)
    _eval(commands)
    _attack(commands)
    _predict(commands)
    _show(commands)
    _data(commands)
    _doctor(commands)
    for family in families.all_families():
        family.add_commands(commands, _command)
    return parser


def _command(commands: Commands, name: str, about: str) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=about, description=about, formatter_class=Help)
    parser.set_defaults(command=name)
    return parser


def _train(commands: Commands) -> None:
    parser = _command(commands, "train", "train a network on a task, or resume a run")
    parser.usage = "minadv train [TASK] [--out RUN] [options]\n       minadv train --resume RUN"
    lines = "; ".join(f"{name}: {preset.about}" for name, preset in tasks.PRESETS.items())
    others = [
        f"{name}: {about} (see minadv train {name} --help)"
        for f in families.all_families()
        for name, about in f.TASKS.items()
    ]
    lines = "; ".join([lines, *others]) + f" (default: {tasks.DEFAULT})"
    parser.add_argument("task", nargs="?", choices=tasks.PRESETS, metavar="TASK", help=lines)
    parser.set_defaults(work=training.train)
    _train_options(parser)
    parser.set_defaults(defaults=vars(parser.parse_args([])))  # to see what was given beside --resume


def _train_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``train`` for images."""
    run = parser.add_argument_group("the run")
    run.add_argument("--out", metavar="RUN", help="folder to write (default: runs/TASK-METHOD-seedN)")
    run.add_argument("--resume", metavar="RUN", help="go on with a run that was stopped or killed")
    run.add_argument("--seed", type=count, default=0, metavar="N", help="decides weights, data order and masks")
    run.add_argument("--dtype", choices=("float32", "float64"), default="float32", help="type of all numbers")
    run.add_argument("--device", choices=("auto", "cpu", "gpu"), default="auto", help="auto: the GPU if it works")
    run.add_argument(
        "--workers",
        type=positive,
        metavar="N",
        help="workers that share a batch, threads or processes (default: all cores, if it pays)",
    )
    run.add_argument(
        "--cuda-aware-mpi", action="store_true", help="under mpiexec on GPUs: the MPI library takes their buffers"
    )
    run.add_argument("--eval-every", type=positive, metavar="N", help="steps between evaluations (default: an epoch)")
    run.add_argument(
        "--checkpoint-every", type=positive, metavar="N", help="steps between checkpoints (default: as evaluations)"
    )
    run.add_argument("--patience", type=positive, metavar="N", help="stop after N evaluations without a better one")
    run.add_argument(
        "--track", action=argparse.BooleanOptionalAction, default=True, help="log the mean adversarial mask (Figure 3b)"
    )

    data = parser.add_argument_group("data")
    data.add_argument(
        "--data-dir",
        type=folder,
        metavar="DIR",
        help="folder of the data, with --resume too (default: MINADV_DATA, then the cache)",
    )
    data.add_argument("--rows", action="store_true", help="read images row by row instead of pixel by pixel")
    data.add_argument("--pool", type=positive, default=1, metavar="N", help="average N x N pixels: shorter sequences")
    data.add_argument("--permuted", action="store_true", help="put the pixels in one fixed random order")

    model = parser.add_argument_group("model")
    model.add_argument("--cell", choices=CELLS, default="lstm", help="recurrent cell")
    model.add_argument("--hidden", type=positive, default=100, metavar="H", help="units a layer")
    model.add_argument("--layers", type=positive, default=1, metavar="N", help="recurrent layers")
    model.add_argument("--readout", choices=("clean", "masked"), default="clean", help="what the softmax reads")
    model.add_argument("--remat", action="store_true", help="less memory, one more forward pass a backward pass")

    method = parser.add_argument_group("method")
    method.add_argument("--method", choices=tasks.METHODS, default="add", help="regularizer: none, VD, EL, FD, Pi, AdD")
    method.add_argument(
        "--p", type=float, default=0.1, help="probability of dropping (vd, el, fd, pi; add with scale inverted)"
    )
    method.add_argument("--delta", type=float, default=0.03, help="share of units that may flip (add)")
    method.add_argument("--adv-steps", type=positive, default=1, metavar="K", help="influence maps (add)")
    method.add_argument("--distance", choices=DISTANCES, default="js", help="between the two predictions")
    method.add_argument(
        "--search", choices=SEARCHES, default="greedy", help="how masks are found (add); exact: for small networks"
    )
    method.add_argument(
        "--max-masks", type=positive, default=20_000, metavar="N", help="most that exact may run a batch (add)"
    )
    method.add_argument("--rule", choices=("strict", "paper", "authors"), default="strict", help="of flipping (add)")
    method.add_argument("--scale", choices=SCALES, default="none", help="of a binary mask (add); inverted: 1/(1 - p)")
    method.add_argument("--weight", type=zero_or_more, default=1.0, help="of the regularizer in the loss")
    method.add_argument(
        "--ramp-up", type=zero_or_more, metavar="EPOCHS", help="until that weight is reached (default: the task's)"
    )

    steps = parser.add_argument_group("optimisation")
    length = steps.add_mutually_exclusive_group()
    length.add_argument("--epochs", type=amount, help="passes over the data (default: the task's)")
    length.add_argument("--train-steps", type=positive, metavar="N", help="steps, instead of epochs")
    steps.add_argument("--batch", type=positive, default=100, metavar="B", help="sequences a step")
    steps.add_argument(
        "--optimizer", choices=("adam", "rmsprop", "sgd"), help="rule of the steps (default: the task's)"
    )
    steps.add_argument("--lr", type=amount, help="learning rate (default: the task's)")
    steps.add_argument("--clip", type=zero_or_more, default=1.0, help="limit of the gradient; 0: none")
    steps.add_argument("--clip-how", choices=("norm", "value"), default="norm", help="what the limit is of")


def _eval(commands: Commands) -> None:
    parser = _command(commands, "eval", "the error of a run on its data")
    parser.set_defaults(work=families.dispatched("evaluation", training.evaluation))
    _of_run(parser)
    parser.add_argument("--part", choices=("train", "valid", "test"), default="test", help="which part")
    parser.add_argument("--last", action="store_true", help="the last weights instead of the best on validation")
    parser.add_argument(
        "--device", choices=("auto", "cpu", "gpu"), default="cpu", help="where to compute; auto: the GPU if it works"
    )


def _attack(commands: Commands) -> None:
    parser = _command(
        commands,
        "attack",
        "accuracy of a run, or perplexity, under random, greedy, re-selected and (not of language models) exact masks",
    )
    parser.set_defaults(work=families.dispatched("attack", inspecting.attack))
    _of_run(parser)
    parser.add_argument(
        "--delta",
        type=float,
        nargs="+",
        help="share of units that may flip; of a language model also one a layer, 0 for none there (default: the run's "
        "own, else 0.03 but at least three units, 0.04 for texts and 0.06 for language models)",
    )
    parser.add_argument(
        "--budget", type=count, nargs="+", metavar="N", help="number of units that may flip, instead of delta"
    )
    parser.add_argument("--distance", choices=DISTANCES, default="js", help="what the adversary raises")
    parser.add_argument("--scale", choices=("none", "kept"), default="none", help="of the mask")
    parser.add_argument("--examples", type=positive, default=1000, metavar="N", help="test sequences")
    parser.add_argument("--max-masks", type=positive, default=20_000, metavar="N", help="most that exact may run")
    parser.add_argument("--seed", type=count, default=0, metavar="N", help="of the random starts")


def _predict(commands: Commands) -> None:
    parser = _command(commands, "predict", "class and probability of each image, tab-separated, a line each")
    parser.set_defaults(work=families.dispatched("predict", inspecting.predict))
    _of_run(parser)
    parser.add_argument(
        "images",
        nargs="?",
        metavar="IMAGES.npy",
        help="images (N, rows, columns); default: the test set. A run of texts reads texts, a line each, from a file "
        "of that name or from standard input",
    )
    parser.add_argument("--examples", type=positive, default=20, metavar="N", help="how many of the test set")


def _show(commands: Commands) -> None:
    parser = _command(commands, "show", "write figures: curves, influence map, mean adversarial mask by epoch")
    parser.set_defaults(work=families.dispatched("show", inspecting.show))
    _of_run(parser)
    parser.add_argument("--out", metavar="DIR", help="folder to write (default: the run's)")
    parser.add_argument("--examples", type=positive, default=100, metavar="N", help="test sequences in the map")


def _data(commands: Commands) -> None:
    parser = _command(commands, "data", "list, download or check data sets")
    parser.set_defaults(work=doctor.data)
    parser.add_argument("action", choices=("list", "get", "check"), help="what to do")
    parser.add_argument("name", nargs="?", metavar="NAME", help="which data set")
    parser.add_argument("--data-dir", metavar="DIR", help="folder (default: MINADV_DATA, then the cache)")


def _doctor(commands: Commands) -> None:
    parser = _command(commands, "doctor", "versions, device and why, BLAS, memory, and a gradient check")
    parser.set_defaults(work=doctor.doctor)
    parser.add_argument("--device", choices=("auto", "cpu", "gpu"), default="auto", help="which to try")


def _of_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="folder of the run")
    parser.add_argument("--data-dir", metavar="DIR", help="folder of the data, if it is no longer where it was")


if __name__ == "__main__":
    sys.exit(main())

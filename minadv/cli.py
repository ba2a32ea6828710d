r"""The command line: the list of commands is here, the options and the work of each in `minadv.commands`.

An error that the user can mend is one line on standard error, with exit code 2. Training that cannot go on exits with
code 1, Ctrl-C and SIGTERM with 130.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from minadv.backend import BackendError
from minadv.base import beginning, gpu, launch, pulse
from minadv.base.version import __version__
from minadv.commands.parsing import CommandParser, Help, Parser
from minadv.gradcheck import GradientError
from minadv.training.interrupts import sigterm_as_ctrl_c
from minadv.training.loop import Interrupted, TrainingError
from minadv.training.parallel.ranks import only_first_prints, process_group
from minadv.training.runs.checkpoints import CheckpointError

PATH = """\
Adversarial dropout for recurrent neural networks, on NumPy and CuPy.

From nothing to a trained model:
  minadv doctor                        check the installation
  minadv train digits                  train an LSTM and test it, no download
  minadv attack runs/digits-add-seed0  its accuracy under adversarial masks
  minadv export runs/digits-add-seed0  its best weights as one file
  minadv train FOLDER                  texts, arrays or images of your own"""
"""How to begin, before the list of the commands."""

COMMANDS = {
    "train": "train a network on a task or on your own data, or resume a run",
    "eval": "the error or perplexity of a run on its data",
    "attack": "accuracy or perplexity of a run under the masks of each search",
    "predict": "class and probability of each image or text, a line each",
    "show": "figures of a run: learning curves, influence map, mean mask",
    "runs": "list runs, compare them, draw them together, print their logs",
    "export": "the best weights of a run as safetensors, also for PyTorch",
    "data": "list, download or check data sets",
    "doctor": "check the installation, the device and a gradient",
    "pretrain": "train a language model whose weights a text classifier takes",
    "finetune": "go on from a language model's best weights, by averaged SGD",
    "generate": "text from a language model, word by word",
}
"""What each command does, for the help; the module of the command's name in `minadv.commands` has its work."""

TRAINING = ("train", "pretrain", "finetune")
"""The commands that may run under mpiexec, whose processes share the work."""


@only_first_prints()
def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. Under mpiexec every rank runs it, and rank 0 alone prints."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # whoever started this has closed it
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    parser = build_parser()
    args = parser.parse_args(argv)
    if getattr(args, "work", None) is None:
        parser.print_help()
        return 0
    with warnings.catch_warnings():
        warnings.filterwarnings("once", category=UserWarning)
        warnings.showwarning = _show_warning
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    """Do the work of a command; an error becomes one line on standard error and an exit code."""
    try:
        beginning.over()
        if launch.this_process().size > 1 and args.command not in TRAINING:
            raise ValueError("mpiexec shares training only: start this command without it")
        ended = sigterm_as_ctrl_c if launch.this_process().size == 1 else nullcontext  # mpiexec ends ranks by SIGTERM
        with ended(), process_group().fail_together(), pulse.shown(f"minadv {args.command}"):
            args.work(args)
        sys.stdout.flush()
    except Interrupted as said:
        print(f"\nminadv: {said}", file=sys.stderr)
        return 130
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of the output, such as head, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (TrainingError, GradientError) as error:
        print(f"minadv: {error}", file=sys.stderr)
        return 1
    except MemoryError as error:
        line = gpu.fault(error) or f"out of memory ({error}): take smaller batches, or a smaller network"
        print(f"minadv: {line}", file=sys.stderr)
        return 1
    except OSError as error:
        named = error.filename is not None and error.strerror is not None  # then the error's number is left out
        print(f"minadv: {f'{error.filename}: {error.strerror}' if named else error}", file=sys.stderr)
        return 2
    except (ValueError, TypeError, ImportError, BackendError, CheckpointError) as error:
        print(f"minadv: {error}", file=sys.stderr)
        return 2
    except Exception as error:
        fault = gpu.fault(error)  # of a GPU that fails in the middle of the work
        if fault is None:
            raise
        print(f"minadv: {fault}", file=sys.stderr)
        return 1
    return 0


def _show_warning(message: Warning | str, *where: object, **how: object) -> None:
    print(f"minadv: warning: {message}", file=sys.stderr)


class _Screen(argparse.RawDescriptionHelpFormatter):
    """The first screen: the description line by line, and a line a command, however long its name."""

    def __init__(self, prog: str, **how: Any) -> None:
        super().__init__(prog, **how)
        self._action_max_length = 4 + max(map(len, COMMANDS))  # with the indent, which argparse forgets


def build_parser() -> Parser:
    """The parser of all commands; the options of a command are added when it is used."""
    parser = Parser(
        prog="minadv",
        usage=argparse.SUPPRESS,
        description=PATH,
        formatter_class=_Screen,
        add_help=False,
    )
    parser.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)
    parser.add_argument("--version", action="version", version=f"minadv {__version__}", help=argparse.SUPPRESS)
    commands = parser.add_subparsers(
        title="commands",
        metavar="COMMAND",
        help="minadv COMMAND --help tells its options",
        prog="minadv",
        parser_class=CommandParser,
    )
    for name, about in COMMANDS.items():
        command = commands.add_parser(name, help=about, description=about, formatter_class=Help)
        command.set_defaults(command=name)
    return parser


if __name__ == "__main__":
    sys.exit(main())

r"""Every option of the commands that train, once; a family says which it has, and changes some of them.

An option that is not given and whose value the preset of a task decides is None.
"""

from __future__ import annotations

import argparse
from typing import Any

from minadv.commands.method_options import METHOD, STEPS
from minadv.commands.numbers import (
    count,
    extra,
    few,
    finite,
    folder,
    many,
    positive,
    probability,
    seed,
    share,
    steps,
    zero_or_more,
)
from minadv.commands.parsing import CommandParser, tell_defaults
from minadv.models.stack import CELLS
from minadv.tasks.family import Family, Preset

DEVICES = ("auto", "cpu", "gpu")
RUN: dict[str, dict[str, Any]] = {
    "out": {
        "metavar": "RUN",
        "help": "folder to write (default: runs/TASK-METHOD-seedN, with a number behind it if it is there)",
    },
    "overwrite": {"action": "store_true", "help": "take the place of a run that is in the folder"},
    "config": {
        "metavar": "FILE",
        "help": "options from a TOML or JSON file, such as hidden = 64; those on the command line come first",
    },
    "resume": {
        "metavar": "RUN",
        "help": "go on with a run that was stopped or killed; with --train-steps N, to N steps in all",
    },
    "seed": {
        "type": seed,
        "default": 0,
        "metavar": "N",
        "help": "seed of the first weights, the order of the data and the masks",
    },
    "seeds": {
        "type": seed,
        "nargs": "+",
        "metavar": "N",
        "help": "train a run for each of these seeds, one after the other, and tell their mean",
    },
    "dtype": {"choices": ("float32", "float64"), "default": "float32", "help": "precision of all numbers"},
    "device": {"choices": DEVICES, "default": "auto", "help": "where to compute; auto: on the GPU if it works"},
    "tf32": {
        "action": "store_true",
        "help": "on a GPU: round the factors of products to 11 significant bits, which is faster (default: off)",
    },
    "engine": {
        "choices": ("fast", "plain"),
        "help": "what computes the passes; plain: the readable cells (default: MINADV_ENGINE, then fast)",
    },
    "workers": {
        "type": few,
        "metavar": "N",
        "help": "workers, threads or processes, that share each batch (default: all cores, if it pays)",
    },
    "cuda-aware-mpi": {
        "action": "store_true",
        "help": "under mpiexec on GPUs: hand GPU buffers to the MPI library, which must support that",
    },
    "eval-every": {"type": steps, "metavar": "N", "help": "steps between evaluations (default: an epoch)"},
    "eval-columns": {
        "type": positive,
        "metavar": "N",
        "help": "read validation text in N columns side by side: faster, a slightly higher perplexity",
    },
    "checkpoint-every": {
        "type": steps,
        "metavar": "N",
        "help": "steps between checkpoints (default: as between evaluations)",
    },
    "patience": {"type": many, "metavar": "N", "help": "stop after N evaluations that are no better than the best"},
    "watch-adversary": {
        "type": many,
        "metavar": "N",
        "help": "every N evaluations, log the share of a stronger search's distance that --search finds (add)",
    },
    "sample": {
        "type": extra,
        "default": 12,
        "metavar": "N",
        "help": "words that the model writes at each evaluation, to be read by you; 0: none",
    },
    "track": {
        "action": argparse.BooleanOptionalAction,
        "default": True,
        "help": "log the mean adversarial mask at each evaluation (Figure 3b)",
    },
}
DATA: dict[str, dict[str, Any]] = {
    "data-dir": {
        "type": folder,
        "metavar": "DIR",
        "help": "folder of the data, also with --resume (default: MINADV_DATA, then the cache)",
    },
    "rows": {
        "action": argparse.BooleanOptionalAction,
        "help": "read images row by row instead of pixel by pixel (default: images of your own)",
    },
    "pool": {
        "type": positive,
        "default": 1,
        "metavar": "N",
        "help": "average blocks of N x N pixels: shorter sequences",
    },
    "permuted": {"action": "store_true", "help": "put the pixels in one fixed random order"},
    "vocab-size": {"type": positive, "metavar": "N", "help": "keep the N most frequent words"},
    "min-count": {"type": positive, "metavar": "N", "help": "keep words that occur at least N times"},
    "min-documents": {"type": positive, "metavar": "N", "help": "keep words that are in at least N texts"},
    "valid-share": {
        "type": probability,
        "metavar": "P",
        "help": "share of the labelled training data that are for validation",
    },
    "test-share": {
        "type": share,
        "metavar": "P",
        "help": "share of your own data that is for the test, if they have no part for it",
    },
    "max-tokens": {"type": positive, "metavar": "N", "help": "read the last N words of a text (default: the task's)"},
}
MODEL: dict[str, dict[str, Any]] = {
    "cell": {"choices": CELLS, "help": "recurrent cell"},
    "embed": {"type": positive, "metavar": "D", "help": "size of a word's embedding"},
    "hidden": {"type": positive, "metavar": "H", "help": "units a layer"},
    "layers": {"type": few, "metavar": "N", "help": "recurrent layers"},
    "readout": {
        "choices": ("clean", "masked"),
        "default": "clean",
        "help": "which last state the softmax reads: clean, or times the mask",
    },
    "remat": {
        "action": "store_true",
        "help": "recompute states for the backward pass: less memory, one more forward pass",
    },
    "dropout": {
        "type": probability,
        "metavar": "P",
        "help": "probability of dropping an entry of the embeddings, the same at every step",
    },
    "forget-bias": {
        "type": finite,
        "metavar": "B",
        "help": "first bias of the LSTM's forget gate (default: the task's)",
    },
    "pretrained": {"metavar": "RUN", "help": "begin with the weights of this run of minadv pretrain"},
    "take": {
        "choices": ("all", "embeddings"),
        "default": "all",
        "help": "what is taken from --pretrained: embeddings and cells, or embeddings alone",
    },
    "relu": {"type": positive, "default": 30, "metavar": "N", "help": "units between the cells and the softmax"},
    "output": {
        "choices": ("softmax", "sigmoid"),
        "default": "softmax",
        "help": "what gives the class probabilities; sigmoid: for two classes",
    },
    "truncate": {
        "type": count,
        "metavar": "N",
        "help": "steps that gradients go back; 0: all (default: the task's)",
    },
    "candidates": {"type": positive, "metavar": "N", "help": "words in the sampled softmax, beside the true one"},
    "untied": {"action": "store_true", "help": "give the softmax weights of its own instead of the embedding"},
    "word-dropout": {"type": probability, "metavar": "P", "help": "probability of dropping a word of the vocabulary"},
    "input-dropout": {
        "type": probability,
        "metavar": "P",
        "help": "probability of dropping an entry of the embeddings, the same at every step",
    },
    "hidden-dropout": {
        "type": probability,
        "metavar": "P",
        "help": "probability of dropping a unit between layers, the same at every step",
    },
    "output-dropout": {
        "type": probability,
        "metavar": "P",
        "help": "probability of dropping a unit after the last layer, the same at every step",
    },
    "dropconnect": {"type": probability, "metavar": "P", "help": "probability of dropping a recurrent weight"},
    "ar": {"type": zero_or_more, "default": 0.0, "metavar": "A", "help": "weight of activation regularization"},
    "tar": {
        "type": zero_or_more,
        "default": 0.0,
        "metavar": "A",
        "help": "weight of temporal activation regularization",
    },
}
OPTIONS = RUN | DATA | MODEL | METHOD | STEPS
COMMON: tuple[str, ...] = ("data-dir", "out", "resume", "seed", "device", "pretrained", "hidden")
COMMON += ("method", "delta", "weight", "epochs", "train-steps", "batch", "lr")
"""The options that --help shows, of those that a family has."""
HELP = ("-h", "--help", "--help-all")


def add_options(parser: CommandParser, family: Family, preset: Preset | None = None) -> None:
    """Add the options of a family, in groups; their help says which values the preset has for those not given."""
    parser.shorten(COMMON)
    for title, names in family.options.items():
        group = parser.add_argument_group(title)
        length: Any = None
        for name in names.split():
            how = {**OPTIONS[name], **family.changes.get(name, {})}
            if name == "method":
                how["choices"] = family.methods
            if name in ("epochs", "train-steps"):  # one or the other
                length = length or group.add_mutually_exclusive_group()
                length.add_argument(f"--{name}", **how)
            else:
                group.add_argument(f"--{name}", **how)
    if preset is not None:
        instead = "train_steps" if "epochs" in preset.values else None  # what is given in epochs has no steps
        tell_defaults(parser, {n: v for n, v in {**preset.values, **preset.told}.items() if n != instead})
    parser.set_defaults(family=family, preset=preset)
    parser.set_defaults(defaults=vars(parser.parse_args([])))  # to tell which options the user gave


def first_argument(arguments: list[str]) -> str | None:
    """The first argument that is neither an option of a command that trains nor the value of one."""
    at = place_of_first(arguments)
    return None if at is None else arguments[at]


def place_of_first(arguments: list[str]) -> int | None:
    """Where the first argument stands that is neither an option of a command that trains nor the value of one."""
    flags = {f"--{name}" for name, how in OPTIONS.items() if "action" in how} | set(HELP)
    flags |= {f"--no-{name}" for name, how in OPTIONS.items() if how.get("action") is argparse.BooleanOptionalAction}
    valued, n = {f"--{name}" for name in OPTIONS} - flags, 0
    lists = {f"--{name}" for name, how in OPTIONS.items() if how.get("nargs") in ("+", "*")}
    while n < len(arguments) and arguments[n].startswith("-"):
        option = arguments[n]  # may be cut short; but --p is an option itself, not only a short --permuted
        alone = "=" in option or (option not in valued and any(flag.startswith(option) for flag in flags))
        n += 1 if alone else 2
        while option in lists and n < len(arguments) and not arguments[n].startswith("-"):
            n += 1  # argparse takes all that follows as values of the list
    return n if n < len(arguments) else None


def expect_only_resuming(args: argparse.Namespace, positional: str) -> None:
    """Raise ValueError for an option beside --resume that a run cannot change: all but those in ``changeable``."""
    changeable = ("resume", "data_dir", "device", "workers", "cuda_aware_mpi", "train_steps", "patience")
    fixed = [name for name, value in args.defaults.items() if name not in changeable and getattr(args, name) != value]
    if fixed:
        named = {positional: positional.upper()}
        refused = ", ".join(named.get(name, f"--{name.replace('_', '-')}") for name in fixed)
        raise ValueError(f"--resume goes on with the settings of the run: leave out {refused}")

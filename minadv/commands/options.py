r"""Every option of the commands that train, once; a family says which it has, and in what they differ there.

A value that is not given is None where the preset of a task decides it.
"""

from __future__ import annotations

import argparse
from typing import Any

from minadv.commands.numbers import amount, count, folder, positive, probability, zero_or_more
from minadv.commands.parsing import tell_defaults
from minadv.distances import DISTANCES
from minadv.models.language.noise import PARTS
from minadv.models.stack import CELLS
from minadv.tasks.family import Family, Preset
from minadv.tasks.methods import VARIANTS

DEVICES = ("auto", "cpu", "gpu")
RUN: dict[str, dict[str, Any]] = {
    "out": {"metavar": "RUN", "help": "folder to write (default: runs/TASK-METHOD-seedN)"},
    "resume": {"metavar": "RUN", "help": "go on with a run that was stopped or killed"},
    "seed": {"type": count, "default": 0, "metavar": "N", "help": "decides weights, order of the data and masks"},
    "dtype": {"choices": ("float32", "float64"), "default": "float32", "help": "type of all numbers"},
    "device": {"choices": DEVICES, "default": "auto", "help": "where to compute; auto: on the GPU if it works"},
    "engine": {
        "choices": ("fast", "plain"),
        "help": "what computes the passes; plain: the readable cells (default: MINADV_ENGINE, then fast)",
    },
    "workers": {
        "type": positive,
        "metavar": "N",
        "help": "workers that share a batch, threads or processes (default: all cores, if it pays)",
    },
    "cuda-aware-mpi": {
        "action": "store_true",
        "help": "under mpiexec on GPUs: the MPI library takes their buffers",
    },
    "eval-every": {"type": positive, "metavar": "N", "help": "steps between evaluations (default: an epoch)"},
    "eval-columns": {
        "type": positive,
        "metavar": "N",
        "help": "read validation text in N columns: faster, a little worse",
    },
    "checkpoint-every": {
        "type": positive,
        "metavar": "N",
        "help": "steps between checkpoints (default: as evaluations)",
    },
    "patience": {"type": positive, "metavar": "N", "help": "stop after N evaluations without a better one"},
    "track": {
        "action": argparse.BooleanOptionalAction,
        "default": True,
        "help": "log the mean adversarial mask (Figure 3b)",
    },
}
DATA: dict[str, dict[str, Any]] = {
    "data-dir": {
        "type": folder,
        "metavar": "DIR",
        "help": "folder of the data, with --resume too (default: MINADV_DATA, then the cache)",
    },
    "rows": {"action": "store_true", "help": "read images row by row instead of pixel by pixel"},
    "pool": {"type": positive, "default": 1, "metavar": "N", "help": "average N x N pixels: shorter sequences"},
    "permuted": {"action": "store_true", "help": "put the pixels in one fixed random order"},
    "vocab-size": {"type": positive, "metavar": "N", "help": "keep the N most frequent words"},
    "min-count": {"type": positive, "metavar": "N", "help": "keep words that come up N times"},
    "min-documents": {"type": positive, "metavar": "N", "help": "keep words that are in N texts"},
    "valid-share": {"type": probability, "metavar": "P", "help": "share of the labelled texts, to validate on"},
    "max-tokens": {"type": positive, "metavar": "N", "help": "read the last N words of a text (default: the task's)"},
}
MODEL: dict[str, dict[str, Any]] = {
    "cell": {"choices": CELLS, "help": "recurrent cell"},
    "embed": {"type": positive, "metavar": "D", "help": "numbers a word's embedding has"},
    "hidden": {"type": positive, "metavar": "H", "help": "units a layer"},
    "layers": {"type": positive, "metavar": "N", "help": "recurrent layers"},
    "readout": {"choices": ("clean", "masked"), "default": "clean", "help": "what the softmax reads"},
    "remat": {"action": "store_true", "help": "less memory, one more forward pass a backward pass"},
    "dropout": {"type": probability, "metavar": "P", "help": "of embeddings, the same in time"},
    "forget-bias": {"type": float, "metavar": "B", "help": "of the LSTM at first (default: the task's)"},
    "pretrained": {"metavar": "RUN", "help": "begin with the weights of this run of minadv pretrain"},
    "take": {
        "choices": ("all", "embeddings"),
        "default": "all",
        "help": "what is taken from --pretrained: embeddings and cells, or embeddings alone",
    },
    "relu": {"type": positive, "default": 30, "metavar": "N", "help": "units between the cells and the softmax"},
    "output": {"choices": ("softmax", "sigmoid"), "default": "softmax", "help": "sigmoid: for two classes"},
    "truncate": {
        "type": count,
        "metavar": "N",
        "help": "steps that gradients go back; 0: all (default: the task's)",
    },
    "candidates": {"type": positive, "metavar": "N", "help": "words that the true one is told from"},
    "untied": {"action": "store_true", "help": "output weights of their own instead of the embedding"},
    "word-dropout": {"type": probability, "metavar": "P", "help": "of whole words"},
    "input-dropout": {"type": probability, "metavar": "P", "help": "of embeddings, locked in time"},
    "hidden-dropout": {"type": probability, "metavar": "P", "help": "between layers, locked in time"},
    "output-dropout": {"type": probability, "metavar": "P", "help": "after the last layer, locked in time"},
    "dropconnect": {"type": probability, "metavar": "P", "help": "of recurrent weights"},
    "ar": {"type": zero_or_more, "default": 0.0, "metavar": "A", "help": "weight of activation regularization"},
    "tar": {"type": zero_or_more, "default": 0.0, "metavar": "A", "help": "weight of its temporal kind"},
}
METHOD: dict[str, dict[str, Any]] = {
    "method": {"default": "add", "help": "regularizer; last: AdD on the last hidden state"},
    "p": {
        "type": probability,
        "default": 0.1,
        "help": "of dropping a recurrent unit (vd, el, fd, pi; add with scale inverted)",
    },
    "masked-layers": {
        "type": count,
        "nargs": "+",
        "metavar": "N",
        "help": "recurrent layers that carry the method's mask, counted from 0 (default: all)",
    },
    "delta": {"type": float, "help": "share of units that may flip (add, last)"},
    "budget": {
        "type": count,
        "nargs": "+",
        "metavar": "N",
        "help": "number of units that may flip, or one a layer, 0 for none there (add)",
    },
    "adv-steps": {"type": positive, "default": 1, "metavar": "K", "help": "influence maps (add, last)"},
    "search": {
        "choices": ("greedy", "reselect", "random"),
        "default": "greedy",
        "help": "how masks are found (add, last); exact: for small networks",
    },
    "max-masks": {"type": positive, "default": 20_000, "metavar": "N", "help": "most that exact may run a batch"},
    "variant": {
        "choices": VARIANTS,
        "help": "of add and last: what --init, --noise, --distance, --stop-base, --scale and --rule are (default: "
        "paper for imdb and elec, else minadv)",
    },
    "rule": {"choices": ("strict", "paper", "authors"), "help": "of flipping (add)"},
    "scale": {"choices": ("none", "kept"), "help": "of a binary mask (add); inverted: 1/(1 - p)"},
    "init": {"choices": ("flip", "base"), "help": "where the search starts"},
    "noise": {
        "choices": ("shared", "independent"),
        "help": "dropout on the embeddings in the two passes; of at, vat always shared (default: the variant's of add "
        "and last, shared of el, fd, pi)",
    },
    "fresh": {
        "nargs": "*",
        "choices": PARTS,
        "metavar": "PART",
        "help": f"noise that a second pass draws anew, of {', '.join(PARTS)} (default: words for add, else none)",
    },
    "every": {
        "type": positive,
        "default": 1,
        "metavar": "N",
        "help": "compare predictions at one step in N, in add's search too: cheaper",
    },
    "distance": {"choices": DISTANCES, "help": "between the two predictions"},
    "stop-base": {
        "action": argparse.BooleanOptionalAction,
        "help": "no gradient through the base pass (default: the variant's of add and last, with it of el)",
    },
    "norm": {"type": zero_or_more, "default": 5.0, "help": "of the perturbation of a text (at, vat)"},
    "weight": {"type": zero_or_more, "help": "of the regularizer in the loss"},
    "ramp-up": {"type": zero_or_more, "metavar": "EPOCHS", "help": "the first ones, over which that weight rises"},
}
STEPS: dict[str, dict[str, Any]] = {
    "epochs": {"type": amount, "help": "passes over the data"},
    "train-steps": {"type": positive, "metavar": "N", "help": "steps, instead of epochs"},
    "batch": {"type": positive, "metavar": "B", "help": "examples a step"},
    "unlabelled": {
        "type": count,
        "metavar": "B",
        "help": "unlabelled texts a step; 0: none (default: as labelled ones)",
    },
    "window": {"type": positive, "metavar": "T", "help": "words a step and stream, through which gradients go"},
    "held-out": {"type": positive, "default": 100_000, "metavar": "N", "help": "words of an evaluation"},
    "bptt": {"type": positive, "metavar": "T", "help": "words a step and column, on average"},
    "equal-lengths": {"action": "store_true", "help": "windows of T words, not of random lengths"},
    "optimizer": {"help": "rule of the steps"},
    "lr": {"type": amount, "help": "learning rate"},
    "lr-decay": {"type": amount, "metavar": "F", "help": "factor of the learning rate a step"},
    "weight-decay": {"type": zero_or_more, "metavar": "W", "help": "of sgd and asgd"},
    "nonmono": {
        "type": positive,
        "metavar": "N",
        "help": "evaluations that the trigger of asgd looks back (default: 60)",
    },
    "ramp-down": {
        "type": zero_or_more,
        "metavar": "EPOCHS",
        "help": "the last ones, over which the learning rate falls",
    },
    "clip": {
        "type": zero_or_more,
        "default": 1.0,
        "help": "limit of the gradient; of texts not of embeddings; 0: none",
    },
    "clip-how": {"choices": ("norm", "value"), "default": "norm", "help": "what the limit is of"},
    "ema": {"type": probability, "default": 0.999, "help": "decay of averaged weights, for evaluation; 0: none"},
}
OPTIONS = RUN | DATA | MODEL | METHOD | STEPS


def add_options(parser: argparse.ArgumentParser, family: Family, preset: Preset | None = None) -> None:
    """The options of a family, in groups; the help tells what the preset has in place of those that are not given."""
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
                said = name.removeprefix("masked-")  # --layers of a language model are those with masks
                group.add_argument(f"--{said}", dest=name.replace("-", "_"), **how)
    if preset is not None:
        tell_defaults(parser, {**preset.values, **preset.told})
    parser.set_defaults(family=family, preset=preset)
    parser.set_defaults(defaults=vars(parser.parse_args([])))  # to see what was given


def first_argument(arguments: list[str]) -> str | None:
    """The first of the arguments that is neither an option of a command that trains nor an option's value."""
    flags = {f"--{name}" for name, how in OPTIONS.items() if "action" in how} | {"-h", "--help"}
    flags |= {f"--no-{name}" for name, how in OPTIONS.items() if how.get("action") is argparse.BooleanOptionalAction}
    valued, n = {f"--{name}" for name in OPTIONS} - flags, 0
    while n < len(arguments) and arguments[n].startswith("-"):
        given = arguments[n]  # perhaps the beginning of an option; --p is one, and that of --permuted too
        alone = "=" in given or (given not in valued and any(flag.startswith(given) for flag in flags))
        n += 1 if alone else 2
    return arguments[n] if n < len(arguments) else None


def expect_only_resuming(args: argparse.Namespace, positional: str) -> None:
    """Raise ValueError if more is given beside --resume than where the data are and where to compute."""
    anew = ("resume", "data_dir", "device", "workers", "cuda_aware_mpi")
    fixed = [name for name, value in args.defaults.items() if name not in anew and getattr(args, name) != value]
    if fixed:
        named = {positional: positional.upper(), "masked_layers": "--layers"}
        given = ", ".join(named.get(name, f"--{name.replace('_', '-')}") for name in fixed)
        raise ValueError(f"--resume goes on with the settings of the run: leave out {given}")

r"""Every option of the commands that train, once; a family says which it has, and changes some of them.

An option that is not given and whose value the preset of a task decides is None.
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
    "seed": {
        "type": count,
        "default": 0,
        "metavar": "N",
        "help": "seed of the first weights, the order of the data and the masks",
    },
    "dtype": {"choices": ("float32", "float64"), "default": "float32", "help": "precision of all numbers"},
    "device": {"choices": DEVICES, "default": "auto", "help": "where to compute; auto: on the GPU if it works"},
    "engine": {
        "choices": ("fast", "plain"),
        "help": "what computes the passes; plain: the readable cells (default: MINADV_ENGINE, then fast)",
    },
    "workers": {
        "type": positive,
        "metavar": "N",
        "help": "workers, threads or processes, that share each batch (default: all cores, if it pays)",
    },
    "cuda-aware-mpi": {
        "action": "store_true",
        "help": "under mpiexec on GPUs: hand GPU buffers to the MPI library, which must support that",
    },
    "eval-every": {"type": positive, "metavar": "N", "help": "steps between evaluations (default: an epoch)"},
    "eval-columns": {
        "type": positive,
        "metavar": "N",
        "help": "read validation text in N columns side by side: faster, a slightly higher perplexity",
    },
    "checkpoint-every": {
        "type": positive,
        "metavar": "N",
        "help": "steps between checkpoints (default: as between evaluations)",
    },
    "patience": {"type": positive, "metavar": "N", "help": "stop after N evaluations that are no better than the best"},
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
    "rows": {"action": "store_true", "help": "read images row by row instead of pixel by pixel"},
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
    "valid-share": {"type": probability, "metavar": "P", "help": "share of the labelled texts that are for validation"},
    "max-tokens": {"type": positive, "metavar": "N", "help": "read the last N words of a text (default: the task's)"},
}
MODEL: dict[str, dict[str, Any]] = {
    "cell": {"choices": CELLS, "help": "recurrent cell"},
    "embed": {"type": positive, "metavar": "D", "help": "size of a word's embedding"},
    "hidden": {"type": positive, "metavar": "H", "help": "units a layer"},
    "layers": {"type": positive, "metavar": "N", "help": "recurrent layers"},
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
        "type": float,
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
METHOD: dict[str, dict[str, Any]] = {
    "method": {
        "default": "add",
        "help": "the regularizer; add: adversarial dropout; last: the same on the last hidden state",
    },
    "p": {
        "type": probability,
        "default": 0.1,
        "help": "probability of dropping a recurrent unit (vd, el, fd, pi; add with --scale inverted)",
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
        "help": "number of units that may flip, or one number for each layer, 0: no mask on it (add)",
    },
    "adv-steps": {
        "type": positive,
        "default": 1,
        "metavar": "K",
        "help": "number of influence maps in a search (add, last)",
    },
    "search": {
        "choices": ("greedy", "reselect", "random"),
        "default": "greedy",
        "help": "search for the adversarial mask (add, last); exact: for small networks",
    },
    "max-masks": {
        "type": positive,
        "default": 20_000,
        "metavar": "N",
        "help": "most masks that --search exact may run for a batch",
    },
    "variant": {
        "choices": VARIANTS,
        "help": "form of add and last: the defaults of --init, --noise, --distance, --stop-base, --scale and --rule "
        "(default: paper for imdb and elec, else minadv)",
    },
    "rule": {"choices": ("strict", "paper", "authors"), "help": "rule by which units are flipped (add)"},
    "scale": {
        "choices": ("none", "kept"),
        "help": "scale of a mask (add); kept: 1 / the share of units kept; inverted: 1/(1 - p)",
    },
    "init": {
        "choices": ("flip", "base"),
        "help": "mask that the search starts at; flip: one random flip from the base mask",
    },
    "noise": {
        "choices": ("shared", "independent"),
        "help": "whether two passes share the dropout on the embeddings; at and vat always do (default: as --variant "
        "says for add and last, shared for el, fd, pi)",
    },
    "fresh": {
        "nargs": "*",
        "choices": PARTS,
        "metavar": "PART",
        "help": f"noise that a second pass draws anew, some of {', '.join(PARTS)} (default: words for add, else none)",
    },
    "every": {
        "type": positive,
        "default": 1,
        "metavar": "N",
        "help": "compare predictions at one step in N only, in the search of add too: cheaper",
    },
    "distance": {"choices": DISTANCES, "help": "distance between the two predictions"},
    "stop-base": {
        "action": argparse.BooleanOptionalAction,
        "help": "no gradient through the base pass (default: as --variant says for add and last; el has the gradient)",
    },
    "norm": {"type": zero_or_more, "default": 5.0, "help": "norm of the perturbation of a text (at, vat)"},
    "weight": {"type": zero_or_more, "help": "weight of the regularizer in the loss"},
    "ramp-up": {
        "type": zero_or_more,
        "metavar": "EPOCHS",
        "help": "first epochs, over which the regularizer's weight rises",
    },
}
STEPS: dict[str, dict[str, Any]] = {
    "epochs": {"type": amount, "help": "passes over the data"},
    "train-steps": {"type": positive, "metavar": "N", "help": "number of steps, instead of --epochs"},
    "batch": {"type": positive, "metavar": "B", "help": "examples a step"},
    "unlabelled": {
        "type": count,
        "metavar": "B",
        "help": "unlabelled texts a step; 0: none (default: as many as labelled ones)",
    },
    "window": {
        "type": positive,
        "metavar": "T",
        "help": "words of each stream in a step; gradients go back no further",
    },
    "held-out": {"type": positive, "default": 100_000, "metavar": "N", "help": "words that an evaluation reads"},
    "bptt": {"type": positive, "metavar": "T", "help": "words of each column in a step, on average"},
    "equal-lengths": {"action": "store_true", "help": "give every window the length of --bptt, not a random one"},
    "optimizer": {"help": "rule by which steps change the weights"},
    "lr": {"type": amount, "help": "learning rate"},
    "lr-decay": {"type": amount, "metavar": "F", "help": "factor that multiplies the learning rate at every step"},
    "weight-decay": {"type": zero_or_more, "metavar": "W", "help": "weight decay of sgd and asgd"},
    "nonmono": {
        "type": positive,
        "metavar": "N",
        "help": "evaluations that the trigger of asgd looks back (default: 60)",
    },
    "ramp-down": {
        "type": zero_or_more,
        "metavar": "EPOCHS",
        "help": "last epochs, over which the learning rate falls",
    },
    "clip": {
        "type": zero_or_more,
        "default": 1.0,
        "help": "limit of the gradient, in tasks of texts without the embeddings; 0: none",
    },
    "clip-how": {
        "choices": ("norm", "value"),
        "default": "norm",
        "help": "what --clip limits: the norm of the gradient, or each value",
    },
    "ema": {
        "type": probability,
        "default": 0.999,
        "help": "decay of the averaged weights, which are for evaluation; 0: none",
    },
}
OPTIONS = RUN | DATA | MODEL | METHOD | STEPS


def add_options(parser: argparse.ArgumentParser, family: Family, preset: Preset | None = None) -> None:
    """Add the options of a family, in groups; their help says which values the preset has for those not given."""
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
                shown = name.removeprefix("masked-")  # masked-layers is --layers for a user
                group.add_argument(f"--{shown}", dest=name.replace("-", "_"), **how)
    if preset is not None:
        tell_defaults(parser, {**preset.values, **preset.told})
    parser.set_defaults(family=family, preset=preset)
    parser.set_defaults(defaults=vars(parser.parse_args([])))  # to tell which options the user gave


def first_argument(arguments: list[str]) -> str | None:
    """The first argument that is neither an option of a command that trains nor the value of one."""
    flags = {f"--{name}" for name, how in OPTIONS.items() if "action" in how} | {"-h", "--help"}
    flags |= {f"--no-{name}" for name, how in OPTIONS.items() if how.get("action") is argparse.BooleanOptionalAction}
    valued, n = {f"--{name}" for name in OPTIONS} - flags, 0
    while n < len(arguments) and arguments[n].startswith("-"):
        option = arguments[n]  # may be cut short; but --p is an option itself, not only a short --permuted
        alone = "=" in option or (option not in valued and any(flag.startswith(option) for flag in flags))
        n += 1 if alone else 2
    return arguments[n] if n < len(arguments) else None


def expect_only_resuming(args: argparse.Namespace, positional: str) -> None:
    """Raise ValueError for an option beside --resume that a run cannot change: all but those in ``changeable``."""
    changeable = ("resume", "data_dir", "device", "workers", "cuda_aware_mpi")
    fixed = [name for name, value in args.defaults.items() if name not in changeable and getattr(args, name) != value]
    if fixed:
        named = {positional: positional.upper(), "masked_layers": "--layers"}
        refused = ", ".join(named.get(name, f"--{name.replace('_', '-')}") for name in fixed)
        raise ValueError(f"--resume goes on with the settings of the run: leave out {refused}")

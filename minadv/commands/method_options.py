r"""The options of the method and of the steps of training, by name: a part of `minadv.commands.options`."""

from __future__ import annotations

import argparse
from typing import Any

from minadv.commands.numbers import (
    amount,
    count,
    epochs,
    extra,
    few,
    finite,
    many,
    positive,
    probability,
    rate,
    steps,
    weight,
    zero_or_more,
)
from minadv.distances import DISTANCES
from minadv.models.language.noise import PARTS
from minadv.tasks.methods import VARIANTS

METHOD: dict[str, dict[str, Any]] = {
    "method": {
        "default": "add",
        "help": "the regularizer; add: adversarial dropout",
    },
    "p": {
        "type": probability,
        "default": 0.1,
        "help": "probability of dropping a recurrent unit (vd, el, fd, pi, rdrop; add with --scale inverted)",
    },
    "masked-layers": {
        "type": count,
        "nargs": "+",
        "metavar": "N",
        "help": "recurrent layers that carry the method's mask, counted from 0 (default: all)",
    },
    "delta": {"type": finite, "help": "share of units that may flip (add)"},
    "budget": {
        "type": count,
        "nargs": "+",
        "metavar": "N",
        "help": "number of units that may flip, or one number for each layer, 0: no mask on it (add)",
    },
    "adv-steps": {
        "type": few,
        "default": 1,
        "metavar": "K",
        "help": "number of influence maps in a search (add, last)",
    },
    "search": {
        "choices": ("greedy", "reselect", "relax", "memory", "random"),
        "default": "greedy",
        "help": "search for the adversarial mask (add, last); greedy: the paper's; relax, memory: stronger, for "
        "about the price of greedy with --adv-steps 2",
    },
    "stages": {
        "type": few,
        "nargs": "*",
        "metavar": "L",
        "help": "relaxed masks of --search relax: L times the budget of units, flipped by 1/L (default: 2)",
    },
    "reselect": {
        "type": extra,
        "metavar": "N",
        "help": "how often --search relax takes the map again, at the whole mask (default: 0)",
    },
    "runner-up": {
        "action": argparse.BooleanOptionalAction,
        "help": "whether --search relax tries the second set of its map too (default: it does)",
    },
    "borrow": {
        "type": extra,
        "metavar": "N",
        "help": "masks of other examples of the batch that --search relax tries (default: 0)",
    },
    "swaps": {"type": extra, "metavar": "N", "help": "exchanges of one unit that --search relax or reselect tries"},
    "tries": {
        "type": extra,
        "metavar": "N",
        "help": "masks that --search random tries, or --search memory beside the one of its map (default: 1)",
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
        "says for add and last, shared for el, fd, pi, rdrop)",
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
    "norm": {"type": zero_or_more, "help": "norm of the perturbation of a text (at, vat)"},
    "weight": {"type": weight, "help": "weight of the regularizer in the loss"},
    "ramp-up": {
        "type": zero_or_more,
        "metavar": "EPOCHS",
        "help": "first epochs, over which the regularizer's weight rises",
    },
}
STEPS: dict[str, dict[str, Any]] = {
    "epochs": {"type": epochs, "help": "passes over the data"},
    "train-steps": {"type": steps, "metavar": "N", "help": "number of steps, instead of --epochs"},
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
    "lr": {"type": rate, "help": "learning rate"},
    "lr-decay": {"type": amount, "metavar": "F", "help": "factor that multiplies the learning rate at every step"},
    "weight-decay": {"type": zero_or_more, "metavar": "W", "help": "weight decay of sgd and asgd"},
    "nonmono": {
        "type": many,
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

r"""The presets of sequences and images that are classified, and the options that they have."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from minadv.data.images import Images
from minadv.tasks import fitting
from minadv.tasks.family import Preset

COMMON: dict[str, Any] = {"permuted": False, "rows": False, "batch": 100, "valid_share": None, "test_share": None}
SMALL = COMMON | {"epochs": 40, "optimizer": "adam", "lr": 5e-3, "ramp_up": 10, "ramp_down": 10}
PAPER = COMMON | {"epochs": 250, "optimizer": "rmsprop", "lr": 1e-3, "ramp_up": 50, "ramp_down": 50}
"""``ramp_up`` and ``ramp_down`` are epochs of these ``epochs``; in longer or shorter runs they keep their share."""

QUARTER, FIFTH = {"ramp_up": "a quarter of them"}, {"ramp_up": "a fifth of them"}
PRESETS = {
    "digits": Preset("scikit-learn's 8 x 8 digits, T = 64, no download", "digits", SMALL, QUARTER),
    "smnist": Preset("MNIST in scanline order, T = 784 (the paper's)", "mnist", PAPER, FIFTH),
    "pmnist": Preset("MNIST in one fixed random order (the paper's)", "mnist", PAPER | {"permuted": True}, FIFTH),
    "fashion": Preset("Fashion-MNIST in scanline order", "fashion", PAPER, FIFTH),
    "images": Preset(
        "sequences or images of your own: --data-dir with one .npz (x, y), or CLASS/*.png, or train/ and test/",
        "folder",
        SMALL | {"rows": True, "valid_share": 0.15, "test_share": 0.2, "patience": 10},
        QUARTER | {"batch": "100, fewer for few examples", "epochs": "40, fewer for many examples"},
    ),
}

OPTIONS = {
    "the run": "out overwrite resume config seed seeds dtype device tf32 engine workers cuda-aware-mpi "
    "eval-every checkpoint-every patience "
    "watch-adversary track",
    "data": "data-dir valid-share test-share rows pool permuted",
    "model": "cell hidden layers readout remat",
    "method": "method p delta adv-steps distance search stages reselect runner-up borrow swaps tries max-masks "
    "rule scale weight ramp-up",
    "optimisation": "epochs train-steps batch optimizer lr clip clip-how",
}
CHANGES: dict[str, dict[str, Any]] = {
    "cell": {"default": "lstm"},
    "hidden": {"default": 100},
    "layers": {"default": 1},
    "delta": {
        "default": 0.03,
        "help": "share of units that may flip (add) (default: 0.03, three units of a small layer)",
    },
    "distance": {"help": "distance between the two predictions (default: js, skl for rdrop)"},
    "rule": {"default": "strict"},
    "scale": {"default": "none", "choices": ("none", "inverted", "kept")},
    "search": {
        "choices": ("greedy", "reselect", "relax", "memory", "random", "exact"),
        "help": "search for the adversarial mask (add, last); greedy: the paper's; relax, memory: stronger, for "
        "about the price of greedy with --adv-steps 2; exact: for small networks",
    },
    "weight": {"default": 1.0},
    "batch": {"help": "sequences a step"},
    "optimizer": {"choices": ("adam", "rmsprop", "sgd")},
}


def fitted(options: Namespace, data: Images) -> dict[str, Any]:
    """The batch and the length of training that suit a user's own data."""
    if options.preset.data != "folder":
        return {}
    batch = options.batch or fitting.batch_of(len(data.train), options.preset.values["batch"])
    before = options.preset.values
    epochs = fitting.epochs_of(len(data.train) // batch, before["epochs"])
    ramps = {name: before[name] * epochs / before["epochs"] for name in ("ramp_up", "ramp_down")}
    return {"batch": batch, "epochs": epochs, **ramps}

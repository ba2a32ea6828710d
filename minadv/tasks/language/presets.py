r"""The presets of language models, and the model and the recipe that options stand for.

Those of the paper are ``ptb`` and ``wikitext2``; ``lm`` is a small model for the text that needs no download, or for a
folder of one's own.
"""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from minadv.models.language.model import LanguageModel
from minadv.tasks import fitting
from minadv.tasks import options as common
from minadv.tasks.family import Preset
from minadv.tasks.methods import LM_DELTA
from minadv.tasks.options import chosen
from minadv.training.clip import Clip
from minadv.training.loop import Recipe
from minadv.training.optimizers import ASGD, SGD, Adam
from minadv.training.schedules import RampDown, RampUp

DROPOUTS = ("word_dropout", "input_dropout", "hidden_dropout", "output_dropout", "dropconnect")
PAPER: dict[str, Any] = {"embed": 400, "hidden": (1150, 1150, 400), "layers": 3, "min_count": None}
PAPER |= dict(zip(DROPOUTS, (0.1, 0.4, 0.3, 0.4, 0.5), strict=True))
PAPER |= {"optimizer": "asgd", "lr": 30.0, "weight_decay": 1.2e-6, "epochs": 750.0}
PAPER |= {"ramp_down": 0.0, "batch": 20, "bptt": 70, "eval_columns": 10}  # the learning rate falls in no epoch
SMALL: dict[str, Any] = {"embed": 100, "hidden": (100, 100), "layers": 2}
SMALL |= dict(zip(DROPOUTS, (0.1, 0.3, 0.2, 0.3, 0.3), strict=True))
SMALL |= {"optimizer": "sgd", "lr": 20.0, "epochs": 20.0, "ramp_down": 0.4, "bptt": 35, "eval_columns": 1}
PRESETS = {
    "lm": Preset(
        "a small language model of CPython's documentation (no download), or of the folder --data-dir",
        None,  # what the folder holds, or pydoc
        PAPER | SMALL,
        {"ramp_down": "40% of them"},
    ),
    "ptb": Preset(
        "AWD-LSTM on the Penn Treebank, 24 million weights (the paper's)", "ptb", PAPER, {"ramp_down": "none"}
    ),
    "wikitext2": Preset(
        "AWD-LSTM on WikiText-2, 34 million weights (the paper's)",
        "wikitext2",
        PAPER | {"input_dropout": 0.65, "hidden_dropout": 0.2, "batch": 40},
        {"ramp_down": "none"},
    ),
}
OWN = ("folder", "texts")  # the names of a user's own text
NONMONO = 60  # as in the code of fraternal dropout; that of AWD-LSTM has 5


def fitted(options: Namespace, data: Any) -> dict[str, Any]:
    """The columns and windows, the length of training, and when to stop, that suit a user's own text."""
    if data.name not in OWN:
        return {}
    values, words = options.preset.values, len(data.train)
    batch, bptt = fitting.window_of(words, values["batch"], values["bptt"])
    batch, bptt = options.batch or batch, options.bptt or bptt
    epochs = fitting.epochs_of(words // (batch * bptt), values["epochs"])
    return {"batch": batch, "bptt": bptt, "epochs": epochs, "patience": 5}


BY_DEFAULT = {
    "monitor": "loss",
    "optimizer": SGD(SMALL["lr"], weight_decay=PAPER["weight_decay"]),
    "clip": Clip(0.25),
}
"""Fields of the recipe of `minadv.fit` that are not given: those of the task lm."""


def schedules(epochs: float) -> dict[str, Any]:
    """The schedules of `minadv.fit` that are not given, for a run of that many epochs: those of the task lm."""
    return {"lr_schedule": RampDown(epochs, SMALL["ramp_down"] * epochs)}


def model_of(options: Namespace, n_words: int) -> LanguageModel:
    """The language model that the options describe."""
    hidden = common.hidden_of(options)
    embed = options.embed or (options.preset.values["embed"] if options.hidden is None else hidden[-1])
    return LanguageModel(
        n_words,
        embed,
        hidden,
        tied=not options.untied,
        alpha=options.ar,
        beta=options.tar,
        **{name: chosen(options, name) for name in DROPOUTS},
    )


def in_force(options: Namespace, arguments: dict[str, Any]) -> dict[str, Any]:
    """Sizes of the model, noise and budget of the method, and what the optimizer has."""
    model, made = arguments["model"], _optimizer(options)
    found = {"embed": model.n_embed, "hidden": model.hidden, "layers": len(model.hidden), "lr": made.lr}
    found |= {"weight_decay": getattr(made, "weight_decay", None), "nonmono": getattr(made, "interval", None)}
    found |= {"weight": _weight(options), "fresh": arguments["fresh"]}
    return found | ({"delta": options.delta or (LM_DELTA,)} if options.budget is None else {})


def _weight(options: Namespace) -> float:
    """The weight of the regularizer; that of fraternal dropout, its kappa, is 0.1."""
    kappa = 0.1 if options.method in ("fd", "pi") else 1.0
    return kappa if options.weight is None else float(options.weight)


def recipe(options: Namespace, per_epoch: int) -> Recipe:
    """The recipe that the options describe."""
    length = common.steps(options, per_epoch) / per_epoch
    falling = options.preset.values["ramp_down"] * length
    return common.recipe(
        options,
        per_epoch,
        optimizer=_optimizer(options),
        lr_schedule=RampDown(length, falling if options.ramp_down is None else min(length, options.ramp_down)),
        weight=_weight(options),
        weight_schedule=RampUp(options.ramp_up),
        monitor="loss",
    )


def _optimizer(options: Namespace) -> Any:
    kind, lr = chosen(options, "optimizer"), chosen(options, "lr")
    if options.nonmono is not None and kind != "asgd":
        raise ValueError(f"nonmono is {options.nonmono} and optimizer is {kind}: it is for asgd")
    if kind == "adam":
        if options.weight_decay:
            raise ValueError(f"weight-decay is {options.weight_decay} and optimizer is adam: it is for sgd and asgd")
        return Adam(lr if options.lr is not None else 1e-3)
    decay = chosen(options, "weight_decay")
    return SGD(lr, weight_decay=decay) if kind == "sgd" else ASGD(lr, decay, interval=options.nonmono or NONMONO)

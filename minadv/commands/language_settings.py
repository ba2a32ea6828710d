r"""The language models of the command line: presets, and the model, regularizer and recipe that options stand for.

A preset fills in what is not given. Those of the paper are ``ptb`` and ``wikitext2``; ``lm`` is a small model for the
text that needs no download, or for a folder of one's own.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from minadv.models.language.model import LanguageModel
from minadv.regularizers import EL, FD, VD, AdD, Pi, Plain, Regularizer
from minadv.searches import by_name
from minadv.training.clip import Clip
from minadv.training.loop import Recipe
from minadv.training.optimizers import ASGD, SGD, Adam
from minadv.training.schedules import RampDown, RampUp

METHODS = ("none", "vd", "el", "fd", "pi", "add")
USES = {
    "p": ("vd", "el", "fd", "pi"),
    "layers": ("vd", "el", "fd", "pi", "add"),
    **dict.fromkeys(("delta", "budget", "adv_steps", "search", "init", "rule", "scale"), ("add",)),
    **dict.fromkeys(("distance", "fresh", "every", "weight", "ramp_up"), ("el", "fd", "pi", "add")),
}
"""Which methods use an option."""


@dataclass(frozen=True)
class Preset:
    """What a task's name stands for, until an option says otherwise."""

    about: str
    corpus: str | None = None  # None: what the folder holds, or pydoc
    embed: int = 400
    hidden: tuple[int, ...] = (1150, 1150, 400)
    word_dropout: float = 0.1
    input_dropout: float = 0.4
    hidden_dropout: float = 0.3
    output_dropout: float = 0.4
    dropconnect: float = 0.5
    optimizer: str = "asgd"
    lr: float = 30.0
    weight_decay: float = 1.2e-6
    epochs: float = 750.0
    ramp_down: float = 0.0  # the share of the epochs over which the learning rate falls
    batch: int = 20
    bptt: int = 70
    eval_columns: int = 10


PRESETS = {
    "lm": Preset(
        "a small language model of CPython's documentation (no download), or of the folder --data-dir",
        embed=100,
        hidden=(100, 100),
        input_dropout=0.3,
        hidden_dropout=0.2,
        output_dropout=0.3,
        dropconnect=0.3,
        optimizer="sgd",
        lr=20.0,
        epochs=20.0,
        ramp_down=0.4,
        bptt=35,
        eval_columns=1,
    ),
    "ptb": Preset("AWD-LSTM on the Penn Treebank, 24 million weights (the paper's)", corpus="ptb"),
    "wikitext2": Preset(
        "AWD-LSTM on WikiText-2, 34 million weights (the paper's)",
        corpus="wikitext2",
        input_dropout=0.65,
        hidden_dropout=0.2,
        batch=40,
    ),
}


def chosen(args: argparse.Namespace, name: str) -> Any:
    """An option, or what the preset says."""
    given = getattr(args, name)
    return getattr(PRESETS[args.task], name) if given is None else given


def model(args: argparse.Namespace, n_words: int) -> LanguageModel:
    """The language model that the options describe."""
    hidden = tuple(chosen(args, "hidden"))
    embed = args.embed or (PRESETS[args.task].embed if args.hidden is None else hidden[-1])
    return LanguageModel(
        n_words,
        embed,
        hidden,
        tied=not args.untied,
        alpha=args.ar,
        beta=args.tar,
        **{name: chosen(args, name) for name in DROPOUTS},
    )


DROPOUTS = ("word_dropout", "input_dropout", "hidden_dropout", "output_dropout", "dropconnect")


def fresh(args: argparse.Namespace) -> tuple[str, ...]:
    """The parts of the noise that a second pass draws anew: of AdD the words, if any are dropped."""
    if args.fresh is not None:
        return tuple(args.fresh)
    return ("words",) if args.method == "add" and chosen(args, "word_dropout") else ()


def regularizer(args: argparse.Namespace, n_layers: int) -> Regularizer:
    """The regularizer that the options describe."""
    distance = args.distance or ("logit2" if args.method in ("fd", "pi") else "js")
    shared, sites = not fresh(args), _sites(args.layers, n_layers)
    if args.method == "none":
        return Plain()
    if args.method == "vd":
        return VD(p=args.p, sites=sites)
    if args.method == "el":
        return EL(p=args.p, distance=distance, share_noise=shared, sites=sites)
    if args.method in ("fd", "pi"):
        kind = FD if args.method == "fd" else Pi
        return kind(p=args.p, distance=distance, share_noise=shared, sites=sites)
    return AdD(
        **budgets(args.delta or (None if args.budget else [DELTA]), args.budget, n_layers, sites),
        distance=distance,
        scale=args.scale,
        search=by_name(
            args.search,
            K=args.adv_steps,
            rule=args.rule,
            start=args.init or ("flip" if shared else "base"),
            keep="last",
        ),
        share_noise=shared,
    )


DELTA = 0.06  # the paper's


def _sites(layers: list[int] | None, n_layers: int) -> tuple[str, ...] | None:
    """The mask sites of some layers, counted from 0; None for all."""
    if layers is None:
        return None
    if len(set(layers)) != len(layers) or max(layers) >= n_layers:
        raise ValueError(f"layers is {layers}, expected different numbers from 0 to {n_layers - 1}")
    return tuple(f"layer{n}" for n in sorted(layers))


def budgets(
    delta: list[float] | None, budget: list[int] | None, n_layers: int, sites: tuple[str, ...] | None = None
) -> dict[str, Any]:
    """``delta``, ``budgets`` and ``sites`` of a search, from lists of one value, or of one for each of the sites.

    A site with the value 0 in such a list is left out.
    """
    if delta is not None and budget is not None:
        raise ValueError(f"delta is {delta} and budget is {budget}: give one of the two")
    name, values = ("delta", delta) if budget is None else ("budget", budget)
    assert values is not None
    key = "delta" if budget is None else "budgets"
    if len(values) == 1:
        return {key: values[0], "sites": sites}
    names = sites or tuple(f"layer{n}" for n in range(n_layers))
    if len(values) != len(names):
        which = "layer" if sites is None else "of the chosen layers"
        more = f", or {len(names)}, one for each {which}" if len(names) > 1 else " for the one layer that is masked"
        raise ValueError(f"{name} has {len(values)} values, expected 1{more}")
    found = {site: value for site, value in zip(names, values, strict=True) if value != 0}
    if not found:
        raise ValueError(f"{name} is {values}, which leaves no layer to mask: expected one that is not 0")
    return {key: found, "sites": sites if len(found) == len(names) else tuple(found)}


def weight(args: argparse.Namespace) -> float:
    """The regularizer's weight: kappa of fraternal dropout is 0.1."""
    if args.weight is not None:
        return float(args.weight)
    return 0.1 if args.method in ("fd", "pi") else 1.0


def recipe(args: argparse.Namespace, per_epoch: int) -> Recipe:
    """The recipe that the options describe."""
    preset = PRESETS[args.task]
    steps = args.train_steps or max(1, round(chosen(args, "epochs") * per_epoch))
    length = steps / per_epoch
    falling = preset.ramp_down * length if args.ramp_down is None else min(length, args.ramp_down)
    return Recipe(
        steps=steps,
        optimizer=_optimizer(args),
        clip=None if args.clip == 0 else Clip(args.clip),
        lr_schedule=RampDown(length, falling),
        weight=weight(args),
        weight_schedule=RampUp(args.ramp_up),
        eval_every=args.eval_every,
        checkpoint_every=args.checkpoint_every,
        monitor="loss",
        patience=args.patience,
    )


NONMONO = 60  # as in the code of fraternal dropout; that of AWD-LSTM has 5


def _optimizer(args: argparse.Namespace) -> Any:
    kind, lr = chosen(args, "optimizer"), chosen(args, "lr")
    if args.nonmono is not None and kind != "asgd":
        raise ValueError(f"nonmono is {args.nonmono} and optimizer is {kind}: it is for asgd")
    if kind == "adam":
        if args.weight_decay:
            raise ValueError(f"weight-decay is {args.weight_decay} and optimizer is adam: it is for sgd and asgd")
        return Adam(lr if args.lr is not None else 1e-3)
    decay = chosen(args, "weight_decay")
    return SGD(lr, weight_decay=decay) if kind == "sgd" else ASGD(lr, decay, interval=args.nonmono or NONMONO)

r"""The texts of the command line: presets, and the corpus, model, regularizer and recipe that options stand for.

A preset fills in what is not given. Those of the paper are ``imdb`` and ``elec``; ``docstrings`` is a small one for the
texts that need no download, ``text`` one for a folder of one's own. A classifier that begins with a language model has
the vocabulary, the sizes and the split of that, unless an option says otherwise.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from typing import Any

from minadv.commands.numbers import folder
from minadv.data.texts import reviews
from minadv.data.texts.counting import Cut
from minadv.data.texts.documents import Corpus, Options
from minadv.models.pretraining import TextLM
from minadv.models.text import TextClassifier
from minadv.regularizers import AT, EL, FD, VAT, VD, AdD, Pi, Plain, Regularizer, Sum
from minadv.searches import by_name
from minadv.tasks.text.training import EMBEDDINGS
from minadv.training.clip import Clip
from minadv.training.ema import EMA
from minadv.training.loop import Recipe
from minadv.training.optimizers import Adam
from minadv.training.runs.folder import RunError
from minadv.training.schedules import ExponentialDecay

METHODS = ("none", "at", "vat", "vd", "el", "fd", "pi", "add", "last", "add+vat")
ADVERSARIAL = ("add", "last", "add+vat")
TWO_PASSES = ("el", "fd", "pi", *ADVERSARIAL)
USES = {
    "p": ("vd", "el", "fd", "pi"),
    **dict.fromkeys(("delta", "adv_steps", "search", "rule", "scale", "init", "variant"), ADVERSARIAL),
    **dict.fromkeys(("noise", "distance"), TWO_PASSES),
    "stop_base": ("el", *ADVERSARIAL),
    "norm": ("at", "vat", "add+vat"),
    "weight": ("at", "vat", *TWO_PASSES),
}
"""Which methods use an option."""
VARIANTS: dict[str, dict[str, Any]] = {
    "minadv": {"init": "flip", "share_noise": True},
    "paper": {"init": "base", "share_noise": False},
    "authors": {"init": "base", "share_noise": False, "distance": "kl", "stop_base": True, "scale": "kept"}
    | {"rule": "authors", "rule_options": {"variant": "text"}},
}
"""The forms of AdD on texts: minadv's, that of the paper's text, and the released code's but for its shared noise."""
IN_PLACE = ("init", "distance", "stop_base", "scale", "rule")


@dataclass(frozen=True)
class Preset:
    """What a task's name stands for, until an option says otherwise: first the texts and sizes, then the training.

    What begins with ``lm_`` is for the language model.
    """

    about: str
    corpus: str
    embed: int = 256
    hidden: int = 1024
    dropout: float = 0.5
    forget_bias: float = 0.0
    vocab_size: int | None = None
    min_count: int = 2
    min_documents: int = 1
    valid_share: float = 0.15
    max_tokens: int | None = None
    truncate: int | None = 400
    train_steps: int = 15_000
    batch: int = 64
    lr: float = 5e-4
    lr_decay: float = 0.9998
    lm_train_steps: int = 100_000
    lm_batch: int = 256
    lm_window: int = 400
    lm_lr: float = 1e-3
    lm_lr_decay: float = 0.9999
    candidates: int = 1024
    variant: str = "minadv"


PRESETS = {
    "docstrings": Preset(
        "which library a docstring is from: six classes, no download, a minute",
        "docstrings",
        embed=64,
        hidden=64,
        dropout=0.2,
        forget_bias=1.0,
        vocab_size=8000,
        max_tokens=100,
        truncate=None,
        train_steps=600,
        batch=32,
        lr=5e-3,
        lr_decay=0.999,
        lm_train_steps=2000,
        lm_batch=32,
        lm_window=35,
        lm_lr=3e-3,
        lm_lr_decay=0.9995,
        candidates=500,
    ),
    "text": Preset(
        "a folder of texts: --data-dir with train/CLASS/*.txt, test/CLASS/*.txt and, unlabelled, train/unsup/*.txt",
        "folder",
        embed=128,
        hidden=256,
        forget_bias=1.0,
        train_steps=3000,
        lm_train_steps=10_000,
        lm_batch=64,
        lm_window=100,
    ),
    "imdb": Preset(
        "IMDB film reviews, good or bad (the paper's sizes, for a GPU)",
        "imdb",
        min_documents=2,
        variant="paper",
    ),
    "elec": Preset(
        "Elec reviews of electronics, good or bad (the paper's sizes, for a GPU)",
        "elec",
        embed=512,
        min_documents=2,
        train_steps=10_000,
        variant="paper",
    ),
}

DATA = ("vocab_size", "min_count", "min_documents", "valid_share")
SIZES = {"embed": "n_embedding", "hidden": "n_hidden", "layers": "n_layers", "cell": "cell"}


def chosen(args: argparse.Namespace, name: str, option: str | None = None) -> Any:
    """An option, or what the preset says."""
    given = getattr(args, option or name)
    return getattr(PRESETS[args.task], name) if given is None else given


def about_data(args: argparse.Namespace, before: dict[str, Any] | None = None) -> dict[str, Any]:
    """What a run's configuration says of its texts; ``before`` is that of the language model it begins with."""
    corpus = PRESETS[args.task].corpus
    if corpus == "docstrings" and args.data_dir is not None:
        raise ValueError(f"--data-dir is {args.data_dir}, but docstrings are those installed here: leave it out")
    theirs = (before or {}).get("about", {})
    about = {name: chosen(args, name) for name in DATA}
    about.update({name: theirs[name] for name in DATA if name in theirs and getattr(args, name) is None})
    data_dir = args.data_dir
    if data_dir is None and theirs.get("corpus") == corpus:
        data_dir = theirs.get("data_dir")
    return {"task": args.task, "corpus": corpus, "data_dir": data_dir, **about}


def corpus_of(about: dict[str, Any], data_dir: str | None = None) -> Corpus:
    """The corpus that a run's configuration describes, perhaps in another folder by now."""
    if "corpus" not in about:
        raise RunError("the run was made in Python and does not say where its texts are: open it with its corpus there")
    cut = Cut(about["min_count"], about["min_documents"], about["vocab_size"])
    options = Options(cut, about["valid_share"])
    where = about.get("data_dir") if data_dir is None else data_dir
    return reviews.load(about["corpus"], data_dir=where, options=options)


def sizes(args: argparse.Namespace, before: dict[str, Any] | None = None) -> dict[str, Any]:
    """The encoder that the options describe, or that of the language model it begins with."""
    found = {"embed": chosen(args, "embed"), "hidden": chosen(args, "hidden")}
    found |= {"layers": args.layers or 1, "cell": args.cell or "lstm"}
    if before is not None:
        found.update({n: before["model"][field] for n, field in SIZES.items() if getattr(args, n) is None})
    rest = {"embedding_dropout": chosen(args, "dropout"), "forget_bias": chosen(args, "forget_bias")}
    return {SIZES[name]: value for name, value in found.items()} | rest


def classifier(args: argparse.Namespace, n_words: int, n_classes: int, before: dict[str, Any] | None) -> TextClassifier:
    """The classifier that the options describe."""
    truncate = chosen(args, "truncate")
    return TextClassifier(
        n_words,
        n_classes=n_classes,
        n_relu=args.relu,
        output=args.output,
        truncate=truncate or None,
        **sizes(args, before),
    )


def language_model(args: argparse.Namespace, n_words: int) -> TextLM:
    """The language model that the options describe; of a small vocabulary at most half are candidates."""
    n = args.candidates or min(PRESETS[args.task].candidates, max(1, n_words // 2))
    return TextLM(n_words, n_candidates=n, **sizes(args))


def regularizer(args: argparse.Namespace) -> Regularizer:
    """The regularizer that the options describe."""
    between = {"distance": args.distance or "js", "share_noise": args.noise != "independent"}
    if args.method == "none":
        return Plain()
    if args.method == "vd":
        return VD(p=args.p)
    if args.method == "el":
        return EL(p=args.p, **between, stop_base=bool(args.stop_base))
    if args.method in ("fd", "pi"):
        return (FD if args.method == "fd" else Pi)(p=args.p, **between)
    if args.method in ("at", "vat"):
        return (AT if args.method == "at" else VAT)(norm=args.norm)
    options = {"keep": "last", **variant_options(args)}
    of_search = {name: options.pop(name) for name in ("rule", "init", "keep") if name in options}
    search = by_name(args.search, K=args.adv_steps, **of_search, **options.pop("rule_options", {}))
    add = AdD(delta=args.delta, search=search, **options)
    if args.method == "last":
        return replace(add, sites=("readout",))
    return add if args.method == "add" else Sum((add, VAT(norm=args.norm)))


def variant_options(args: argparse.Namespace) -> dict[str, Any]:
    """What the variant says of AdD, and what options say in its place."""
    noise = None if args.noise is None else args.noise == "shared"
    given = {"share_noise": noise, **{name: getattr(args, name) for name in IN_PLACE}}
    if given["rule"] is not None:  # the released code's is that of its text code
        given["rule_options"] = VARIANTS["authors"]["rule_options"] if given["rule"] == "authors" else {}
    return VARIANTS[chosen(args, "variant")] | {name: value for name, value in given.items() if value is not None}


def recipe(args: argparse.Namespace, per_epoch: int, prefix: str = "") -> Recipe:
    """The recipe that the options describe; ``prefix`` is that of the preset's fields."""
    steps = chosen(args, f"{prefix}train_steps", "train_steps")
    if args.epochs is not None:
        steps = max(1, round(args.epochs * per_epoch))
    fixed: dict[str, Any] = (
        {} if prefix else {"weight": args.weight, "ema": EMA(args.ema, warm=True) if args.ema else None}
    )
    return Recipe(
        steps=steps,
        optimizer=Adam(chosen(args, f"{prefix}lr", "lr")),
        clip=None if args.clip == 0 else Clip(args.clip, but=EMBEDDINGS),
        step_schedule=ExponentialDecay(chosen(args, f"{prefix}lr_decay", "lr_decay")),
        eval_every=args.eval_every,
        checkpoint_every=args.checkpoint_every,
        patience=args.patience,
        monitor="loss" if prefix else "error",
        **fixed,
    )


def task_of(text: str) -> tuple[str, str | None]:
    """What ``minadv pretrain TEXT`` names: a preset, or a folder of one's own, with its folder."""
    return (text, None) if text in PRESETS else ("text", folder(text))

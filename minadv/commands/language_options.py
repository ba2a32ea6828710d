r"""The options of ``minadv train lm``; `minadv.commands.language_settings` says what they stand for."""

from __future__ import annotations

import argparse

from minadv.commands.language_settings import METHODS
from minadv.commands.numbers import amount, count, folder, positive, probability, zero_or_more
from minadv.distances import DISTANCES
from minadv.models.language.noise import PARTS
from minadv.searches import SEARCHES


def add_options(parser: argparse.ArgumentParser) -> None:
    """All options of the tasks; None stands for the preset's choice."""
    _run_options(parser)
    data = parser.add_argument_group("data")
    data.add_argument(
        "--data-dir",
        type=folder,
        metavar="DIR",
        help="folder of the text (default: of lm CPython's documentation, of ptb and wikitext2 MINADV_DATA, then the "
        "cache)",
    )
    data.add_argument(
        "--min-count", type=positive, metavar="N", help="rarer words are read as <unk> (default: as the corpus says)"
    )

    model = parser.add_argument_group("model")
    model.add_argument("--embed", type=positive, metavar="D", help="numbers an embedding (default: the last layer's)")
    model.add_argument("--hidden", type=positive, nargs="+", metavar="H", help="units of each layer")
    model.add_argument("--untied", action="store_true", help="output weights of their own instead of the embedding")
    model.add_argument("--word-dropout", type=probability, metavar="P", help="of whole words")
    model.add_argument("--input-dropout", type=probability, metavar="P", help="of embeddings, locked in time")
    model.add_argument("--hidden-dropout", type=probability, metavar="P", help="between layers, locked in time")
    model.add_argument("--output-dropout", type=probability, metavar="P", help="after the last layer, locked in time")
    model.add_argument("--dropconnect", type=probability, metavar="P", help="of recurrent weights")
    model.add_argument("--ar", type=zero_or_more, default=0.0, metavar="A", help="weight of activation regularization")
    model.add_argument("--tar", type=zero_or_more, default=0.0, metavar="A", help="weight of its temporal kind")

    _method_options(parser)
    _step_options(parser)


def _run_options(parser: argparse.ArgumentParser) -> None:
    """Those of the run itself, for training and fine-tuning."""
    run = parser.add_argument_group("the run")
    run.add_argument("--out", metavar="RUN", help="folder to write (default: runs/TASK-METHOD-seedN)")
    run.add_argument("--seed", type=count, default=0, metavar="N", help="decides weights, windows and masks")
    run.add_argument("--dtype", choices=("float32", "float64"), default="float32", help="type of all numbers")
    run.add_argument("--device", choices=("auto", "cpu", "gpu"), default="auto", help="auto: the GPU if it works")
    run.add_argument(
        "--workers",
        type=positive,
        metavar="N",
        help="workers that share a batch, threads or processes (default: all cores, if it pays)",
    )
    run.add_argument("--eval-every", type=positive, metavar="N", help="steps between evaluations (default: an epoch)")
    run.add_argument(
        "--eval-columns", type=positive, metavar="N", help="read validation text in N columns: faster, a little worse"
    )
    run.add_argument(
        "--checkpoint-every", type=positive, metavar="N", help="steps between checkpoints (default: as evaluations)"
    )
    run.add_argument("--patience", type=positive, metavar="N", help="stop after N evaluations without a better one")


def _method_options(parser: argparse.ArgumentParser) -> None:
    method = parser.add_argument_group("method")
    method.add_argument("--method", choices=METHODS, default="add", help="regularizer: none, VD, EL, FD, Pi, AdD")
    method.add_argument("--p", type=probability, default=0.1, help="of dropping a recurrent unit (vd, el, fd, pi)")
    method.add_argument(
        "--layers",
        type=count,
        nargs="+",
        metavar="N",
        help="recurrent layers that carry the method's mask, counted from 0 (default: all)",
    )
    method.add_argument(
        "--delta",
        type=float,
        nargs="+",
        help="share of units that may flip, or one a layer, 0 for none there (add; default: 0.06)",
    )
    method.add_argument(
        "--budget",
        type=int,
        nargs="+",
        metavar="N",
        help="number of units that may flip, or one a layer, 0 for none there (add)",
    )
    method.add_argument("--adv-steps", type=positive, default=1, metavar="K", help="influence maps (add)")
    searches = [name for name in SEARCHES if name != "exact"]
    method.add_argument("--search", choices=searches, default="greedy", help="how masks are found (add)")
    method.add_argument(
        "--init",
        choices=("base", "flip"),
        help="where the search starts (add; default: base, if noise is fresh)",
    )
    method.add_argument("--rule", choices=("strict", "paper", "authors"), default="strict", help="of flipping (add)")
    method.add_argument("--scale", choices=("none", "kept"), default="none", help="of a binary mask (add)")
    method.add_argument(
        "--distance", choices=DISTANCES, help="between the two predictions (default: js, logit2 for fd and pi)"
    )
    method.add_argument(
        "--fresh",
        nargs="*",
        choices=PARTS,
        metavar="PART",
        help=f"noise that a second pass draws anew, of {', '.join(PARTS)} (default: words for add, else none)",
    )
    method.add_argument(
        "--every",
        type=positive,
        default=1,
        metavar="N",
        help="compare predictions at one step in N, in add's search too: cheaper",
    )
    method.add_argument(
        "--weight", type=zero_or_more, help="of the regularizer in the loss (default: 1, 0.1 for fd and pi)"
    )
    method.add_argument(
        "--ramp-up", type=zero_or_more, default=0.0, metavar="EPOCHS", help="until that weight is reached"
    )


def _step_options(parser: argparse.ArgumentParser) -> None:
    steps = parser.add_argument_group("optimisation")
    length = steps.add_mutually_exclusive_group()
    length.add_argument("--epochs", type=amount, help="passes over the text (default: the task's)")
    length.add_argument("--train-steps", type=positive, metavar="N", help="steps, instead of epochs")
    steps.add_argument("--batch", type=positive, metavar="B", help="columns of text read side by side")
    steps.add_argument("--bptt", type=positive, metavar="T", help="words a step and column, on average")
    steps.add_argument("--equal-lengths", action="store_true", help="windows of T words, not of random lengths")
    steps.add_argument("--optimizer", choices=("asgd", "sgd", "adam"), help="rule of the steps (default: the task's)")
    steps.add_argument("--lr", type=amount, help="learning rate (default: the task's)")
    steps.add_argument("--weight-decay", type=zero_or_more, metavar="W", help="of sgd and asgd (default: the task's)")
    steps.add_argument(
        "--nonmono", type=positive, metavar="N", help="evaluations that the trigger of asgd looks back (default: 60)"
    )
    steps.add_argument(
        "--ramp-down", type=zero_or_more, metavar="EPOCHS", help="the last ones, over which the learning rate falls"
    )
    steps.add_argument("--clip", type=zero_or_more, default=0.25, help="limit of the gradient's norm; 0: none")

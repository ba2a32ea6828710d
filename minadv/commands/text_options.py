r"""The options of ``minadv train`` for texts and of ``minadv pretrain``; `text_settings` says what they stand for."""

from __future__ import annotations

import argparse

from minadv.commands.numbers import amount, count, folder, positive, probability, zero_or_more
from minadv.commands.text_settings import METHODS, VARIANTS
from minadv.distances import DISTANCES
from minadv.models.stack import CELLS


def add_train_options(parser: argparse.ArgumentParser) -> None:
    """All options of the tasks; None stands for the preset's choice, or for that of the language model."""
    run = _run_options(parser)
    run.add_argument("--out", metavar="RUN", help="folder to write (default: runs/TASK-METHOD-seedN)")
    data = _data_options(parser)
    data.add_argument(
        "--max-tokens", type=positive, metavar="N", help="read the last N words of a text (default: the task's)"
    )
    model = _model_options(parser)
    model.add_argument("--pretrained", metavar="RUN", help="begin with this run of minadv pretrain")
    model.add_argument(
        "--take", choices=("all", "embeddings"), default="all", help="what of it: embeddings and cells, or the first"
    )
    model.add_argument("--relu", type=positive, default=30, metavar="N", help="units between the cells and the softmax")
    model.add_argument("--output", choices=("softmax", "sigmoid"), default="softmax", help="sigmoid: for two classes")
    model.add_argument(
        "--truncate", type=count, metavar="N", help="steps that gradients go back; 0: all (default: the task's)"
    )
    _method_options(parser)
    steps = _step_options(parser)
    steps.add_argument("--batch", type=positive, metavar="B", help="labelled texts a step (default: the task's)")
    steps.add_argument(
        "--unlabelled", type=count, metavar="B", help="unlabelled texts a step; 0: none (default: as labelled ones)"
    )
    steps.add_argument("--ema", type=probability, default=0.999, help="of the weights, for evaluation; 0: none")


def add_pretrain_options(parser: argparse.ArgumentParser) -> None:
    """All options of ``minadv pretrain``."""
    parser.add_argument(
        "text",
        nargs="?",
        metavar="TEXT",
        help="imdb, elec, docstrings (no download), a folder of texts, or text: the folder that --data-dir names",
    )
    run = _run_options(parser)
    run.add_argument("--out", metavar="RUN", help="folder to write (default: runs/TEXT-lm-seedN)")
    run.add_argument("--resume", metavar="RUN", help="go on with a run that was stopped or killed")
    _data_options(parser)
    model = _model_options(parser)
    model.add_argument("--candidates", type=positive, metavar="N", help="words that the true one is told from")
    steps = _step_options(parser)
    steps.add_argument("--batch", type=positive, metavar="B", help="streams of text side by side")
    steps.add_argument(
        "--window", type=positive, metavar="T", help="words a step and stream, through which gradients go"
    )
    steps.add_argument("--held-out", type=positive, default=100_000, metavar="N", help="words of an evaluation")


def _run_options(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    run = parser.add_argument_group("the run")
    run.add_argument("--seed", type=count, default=0, metavar="N", help="decides weights, order of texts and masks")
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
        "--checkpoint-every", type=positive, metavar="N", help="steps between checkpoints (default: as evaluations)"
    )
    run.add_argument("--patience", type=positive, metavar="N", help="stop after N evaluations without a better one")
    return run


def _data_options(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    data = parser.add_argument_group("data")
    data.add_argument(
        "--data-dir", type=folder, metavar="DIR", help="folder of the texts (default: MINADV_DATA, then the cache)"
    )
    data.add_argument("--vocab-size", type=positive, metavar="N", help="keep the N most frequent words")
    data.add_argument("--min-count", type=positive, metavar="N", help="keep words that come up N times")
    data.add_argument("--min-documents", type=positive, metavar="N", help="keep words that are in N texts")
    data.add_argument("--valid-share", type=probability, metavar="P", help="of the labelled texts, to validate on")
    return data


def _model_options(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    model = parser.add_argument_group("model")
    model.add_argument("--embed", type=positive, metavar="D", help="numbers a word's embedding has")
    model.add_argument("--hidden", type=positive, metavar="H", help="units a layer")
    model.add_argument("--layers", type=positive, metavar="N", help="recurrent layers (default: 1)")
    model.add_argument("--cell", choices=CELLS, help="recurrent cell (default: lstm)")
    model.add_argument("--dropout", type=probability, metavar="P", help="of embeddings, the same in time")
    model.add_argument("--forget-bias", type=float, metavar="B", help="of the LSTM at first (default: the task's)")
    return model


def _method_options(parser: argparse.ArgumentParser) -> None:
    method = parser.add_argument_group("method")
    method.add_argument(
        "--method", choices=METHODS, default="add", help="regularizer; last: AdD on the last hidden state"
    )
    method.add_argument("--p", type=probability, default=0.1, help="of dropping a recurrent unit (vd, el, fd, pi)")
    method.add_argument("--delta", type=float, default=0.04, help="share of units that may flip (add, last)")
    method.add_argument("--adv-steps", type=positive, default=1, metavar="K", help="influence maps (add, last)")
    method.add_argument(
        "--search", choices=("greedy", "reselect", "random"), default="greedy", help="how masks are found (add, last)"
    )
    method.add_argument(
        "--variant",
        choices=VARIANTS,
        help="of add and last: what --init, --noise, --distance, --stop-base, --scale and --rule are (default: paper "
        "for imdb and elec, else minadv)",
    )
    method.add_argument(
        "--rule", choices=("strict", "paper", "authors"), help="of flipping (add) (default: the variant's)"
    )
    method.add_argument(
        "--scale", choices=("none", "kept"), help="of a binary mask (add, last) (default: the variant's)"
    )
    method.add_argument(
        "--init",
        choices=("flip", "base"),
        help="where the search starts; base: with --noise independent (default: the variant's)",
    )
    method.add_argument(
        "--noise",
        choices=("shared", "independent"),
        help="dropout on the embeddings in the two passes; of at, vat always shared (default: the variant's of add and "
        "last, shared of el, fd, pi)",
    )
    method.add_argument(
        "--distance",
        choices=DISTANCES,
        help="between the two predictions (default: the variant's of add and last, js of el, fd, pi)",
    )
    method.add_argument(
        "--stop-base",
        action=argparse.BooleanOptionalAction,
        help="no gradient through the base pass (default: the variant's of add and last, with it of el)",
    )
    method.add_argument("--norm", type=zero_or_more, default=5.0, help="of the perturbation of a text (at, vat)")
    method.add_argument("--weight", type=zero_or_more, default=1.0, help="of the regularizer in the loss")


def _step_options(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    steps = parser.add_argument_group("optimisation")
    length = steps.add_mutually_exclusive_group()
    length.add_argument("--epochs", type=amount, help="passes over the texts, instead of steps")
    length.add_argument("--train-steps", type=positive, metavar="N", help="how many (default: the task's)")
    steps.add_argument("--lr", type=amount, help="learning rate of Adam (default: the task's)")
    steps.add_argument("--lr-decay", type=amount, metavar="F", help="its factor a step (default: the task's)")
    steps.add_argument(
        "--clip", type=zero_or_more, default=1.0, help="limit of the gradient's norm, but for embeddings"
    )
    return steps

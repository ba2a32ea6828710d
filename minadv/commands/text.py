r"""``minadv pretrain``, ``train`` and ``eval`` for texts: the family of semi-supervised text classification."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from minadv.backend import Device, choose_device
from minadv.base import launch
from minadv.commands import families
from minadv.commands import text_settings as settings
from minadv.commands.foreign import expect_used
from minadv.commands.numbers import positive
from minadv.commands.text_inspecting import attack, open_run, predict, show
from minadv.commands.text_options import add_pretrain_options, add_train_options
from minadv.data.texts.buckets import steps_of
from minadv.models.pretraining import TextLM
from minadv.tasks.config import build_recipe
from minadv.tasks.pretrain.task import PretrainTask
from minadv.tasks.text.runs import blank, weights_of, with_words
from minadv.tasks.text.task import expect_regularizer
from minadv.tasks.text.training import TextRun, fit_text, pretrain_text, resume_text
from minadv.training.runs import folder as folders
from minadv.training.runs.folder import expect_free, read_config

__all__ = ["TASKS", "add_commands", "attack", "defaults", "evaluation", "options", "predict", "resume", "show", "train"]

TASKS = {name: preset.about for name, preset in settings.PRESETS.items()}


def defaults(task: str) -> dict[str, Any]:
    """What a task has for options that are not given, where a language model does not decide."""
    preset = settings.PRESETS[task]
    sizes = {name: f"{getattr(preset, name)}, or that of --pretrained" for name in ("embed", "hidden")}
    return {**asdict(preset), **sizes, "truncate": preset.truncate or "0"}


def options(parser: argparse.ArgumentParser) -> None:
    """The options of ``minadv train`` for these tasks."""
    add_train_options(parser)


def add_commands(commands: Any, command: Any) -> None:
    """``pretrain``, and ``--explain`` with ``--units`` for ``predict``."""
    parser = command(commands, "pretrain", "train a language model of texts, for a classifier to begin with")
    parser.usage = "minadv pretrain TEXT [--out RUN] [options]\n       minadv pretrain --resume RUN"
    add_pretrain_options(parser)
    parser.set_defaults(work=_pretrain)
    parser.set_defaults(defaults=vars(parser.parse_args([])))  # to see what was given beside --resume
    predicting = commands.choices["predict"]
    predicting.add_argument("--explain", action="store_true", help="of texts: the units that the answer hangs on")
    predicting.add_argument("--units", type=positive, metavar="N", help="how many --explain tells (default: 5)")


def train(args: argparse.Namespace) -> None:
    """A new run of a classifier."""
    out = Path(args.out or f"runs/{args.task}-{args.method}-seed{args.seed}")
    expect_free(out)
    expect_used(args, settings.USES)
    if args.pretrained is None and args.take != args.defaults["take"]:
        raise ValueError(f"--take {args.take} is about a language model: give one with --pretrained RUN")
    before = None if args.pretrained is None else _language_model(args.pretrained)
    regularizer = settings.regularizer(args)
    expect_regularizer(settings.classifier(args, 2, 2, before), regularizer)  # before the texts are read
    device = choose_device(args.device)
    about = settings.about_data(args, before)
    corpus = settings.corpus_of(about)
    model = settings.classifier(args, len(corpus.vocabulary), len(corpus.classes), before)
    batch = min(settings.chosen(args, "batch"), len(corpus.train))
    recipe = settings.recipe(args, len(corpus.train) // batch)
    if args.pretrained is not None:
        how = {"dtype": args.dtype, "seed": args.seed, "take": args.take}
        weights_of(args.pretrained, model, corpus.vocabulary, **how)  # whatever is wrong with it is said first
    _say(f"{corpus}; writing {out}")
    _say(f"device: {device.why}")
    with families.resumable(out):
        run = fit_text(
            model,
            corpus,
            regularizer=regularizer,
            recipe=recipe,
            pretrained=args.pretrained,
            take=args.take,
            batch_size=batch,
            unlabelled_size=batch if args.unlabelled is None else args.unlabelled,
            max_tokens=settings.chosen(args, "max_tokens"),
            seed=args.seed,
            dtype=args.dtype,
            device=device,
            out=out,
            about=about,
            workers=args.workers,
            on_evaluation=_show,
        )
    _report(run, device)


def _pretrain(args: argparse.Namespace) -> None:
    """A new run of a language model, or an old one to its end."""
    if args.resume is not None:
        free = ("resume", "data_dir", "device", "workers")
        fixed = [name for name, value in args.defaults.items() if name not in free and getattr(args, name) != value]
        if fixed:
            given = ", ".join("TEXT" if name == "text" else f"--{name.replace('_', '-')}" for name in fixed)
            raise ValueError(f"--resume goes on with the settings of the run: leave out {given}")
        resume(Path(args.resume), args)
        return
    if args.text is None:
        raise ValueError(
            "give a text, one of imdb, elec, docstrings, text with --data-dir or a folder, or --resume RUN"
        )
    args.task, folder = settings.task_of(args.text)
    if folder is not None and args.data_dir is not None:
        raise ValueError(f"--data-dir is {args.data_dir} and the text the folder {folder}: give one of the two")
    args.data_dir = folder or args.data_dir
    name = Path(args.data_dir).resolve().name if args.task == "text" and args.data_dir else args.task
    out = Path(args.out or f"runs/{name}-lm-seed{args.seed}")
    expect_free(out)
    device = choose_device(args.device)
    about = settings.about_data(args)
    corpus = settings.corpus_of(about)
    model = settings.language_model(args, len(corpus.vocabulary))
    batch = settings.chosen(args, "lm_batch", "batch")
    T = settings.chosen(args, "lm_window", "window")
    task = PretrainTask(with_words(model, corpus.vocabulary), corpus, batch, T, args.seed, args.dtype, args.held_out)
    recipe = settings.recipe(args, task.per_epoch, "lm_")
    _say(f"{corpus}; {task.streams.tokens:,} words to learn from; writing {out}")
    _say(f"device: {device.why}")
    with families.resumable(out):
        run = pretrain_text(
            model,
            corpus,
            recipe=recipe,
            batch_size=batch,
            T=T,
            held_out=args.held_out,
            seed=args.seed,
            dtype=args.dtype,
            device=device,
            out=out,
            about=about,
            workers=args.workers,
            on_evaluation=_show,
        )
    _report(run, device)


def resume(path: Path, args: argparse.Namespace) -> None:
    """Go on as the run was configured; only where its texts are and where to compute may be said anew."""
    config = read_config(path)
    if folders.is_finished(path, blank(config, str(path)), build_recipe(config["recipe"])):
        print(f"{path} is finished: nothing to resume")
        return
    corpus = settings.corpus_of(config["about"], args.data_dir)
    device = choose_device(config["device"] if args.device == "auto" else args.device)
    _say(f"device: {device.why}")
    with families.resumable(path):
        run = resume_text(path, corpus, device=device, workers=args.workers, on_evaluation=_show)
    _report(run, device)


def evaluation(args: argparse.Namespace) -> None:
    """The error of a classifier, or the perplexity of a language model, on its texts."""
    run = open_run(args)
    found = run.evaluate(args.part, last=args.last, device=families.told(args.device))
    documents = getattr(run.corpus, args.part)
    if isinstance(run.model, TextLM):
        n = min(run.config["held_out"], int(steps_of(documents).sum()))
        print(f"{args.part} perplexity {found['perplexity']:.2f}, loss {found['loss']:.4f} (about {n:,} words)")
    else:
        print(f"{args.part} error {found['error']:.2f} %, loss {found['loss']:.4f} ({len(documents):,} texts)")


def _language_model(path: str) -> dict[str, Any]:
    """The configuration of the run that a classifier is to begin with."""
    config = read_config(Path(path))
    if folders.kind_of(config) != "pretrain":
        raise ValueError(f"{path} is a run of the kind {folders.kind_of(config)!r}, expected one of minadv pretrain")
    return config


def _show(record: dict[str, Any]) -> None:
    if not sys.stderr.isatty():
        begin = f"step {record['step']}, epoch {record['epoch']:.2f}: loss {record['train_loss']:.4f}"
        if "valid_error" in record:
            more = f"regularizer {record['regularizer']:.4g}, validation error {record['valid_error']:.2f} %"
        else:
            more = f"held-out perplexity {record['valid_perplexity']:.2f}"
        _say(f"{begin}, {more}")


def _report(run: TextRun, device: Device) -> None:
    if launch.place().rank > 0:
        return
    if isinstance(run.model, TextLM):
        best = min(run.records, key=lambda r: r["valid_loss"])
        print(
            f"held-out perplexity {best['valid_perplexity']:.2f} (loss {best['valid_loss']:.4f}), the best, at step "
            f"{best['step']} of {run.step}; run in {run.path}"
        )
        return
    test, best = run.evaluate("test", device=device), min(run.records, key=lambda r: r["valid_error"])
    print(
        f"test error {test['error']:.2f} % (loss {test['loss']:.4f}), best validation error "
        f"{best['valid_error']:.2f} % at step {best['step']} of {run.step}; run in {run.path}"
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)

r"""``minadv train lm``, ``finetune``, ``eval`` and ``generate``: the family of word-level language models."""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import Any

from minadv.backend import Device, choose_device
from minadv.base import launch
from minadv.commands import families
from minadv.commands import language_settings as settings
from minadv.commands.foreign import expect_used
from minadv.commands.language_inspecting import attack, show
from minadv.commands.language_options import add_options
from minadv.commands.numbers import amount, count, folder, positive, zero_or_more
from minadv.data.language import topics
from minadv.data.language.corpus import Corpus
from minadv.data.language.windows import Windows
from minadv.data.vocabulary import EOS
from minadv.tasks.config import build, build_recipe
from minadv.tasks.language.config import blank, corpus_of, settings_of, weights_digest
from minadv.tasks.language.task import expect_lengths, expect_regularizer
from minadv.tasks.language.training import LanguageRun, finetune, fit_language, load_language, open_language
from minadv.training.parallel.choose import same_workers
from minadv.training.runs import folder as folders
from minadv.training.runs.checkpoints import latest
from minadv.training.runs.folder import RunError, expect_free, read_config

__all__ = ["TASKS", "add_commands", "attack", "defaults", "evaluation", "options", "resume", "show", "train"]

TASKS = {name: preset.about for name, preset in settings.PRESETS.items()}


def defaults(task: str) -> dict[str, Any]:
    """What a task has for options that are not given."""
    preset = settings.PRESETS[task]
    falling = f"{preset.ramp_down:.0%} of them" if preset.ramp_down else "none"
    return {**asdict(preset), "ramp_down": falling}


def options(parser: argparse.ArgumentParser) -> None:
    """The options of ``minadv train`` for these tasks."""
    add_options(parser)


def add_commands(commands: Any, command: Any) -> None:
    """``finetune`` and ``generate``."""
    parser = command(commands, "finetune", "train a language model's best weights on: averaged SGD, no regularizer")
    parser.set_defaults(work=_finetune)
    parser.add_argument("run", metavar="RUN", help="folder of the run to begin with")
    parser.add_argument(
        "--data-dir", type=folder, metavar="DIR", help="folder of the text, if it is no longer where it was"
    )
    parser.add_argument("--out", metavar="RUN2", help="folder to write (default: RUN-finetuned)")
    parser.add_argument("--epochs", type=amount, help="passes over the text (default: as many as the run made)")
    parser.add_argument("--lr", type=amount, help="learning rate (default: the run's, 30 where that was not SGD's)")
    parser.add_argument("--patience", type=positive, metavar="N", help="stop after N evaluations without a better one")
    parser.add_argument("--seed", type=count, metavar="N", help="of windows and masks (default: the run's + 1)")
    parser.add_argument("--device", choices=("auto", "cpu", "gpu"), default="auto", help="auto: the GPU if it works")
    parser.add_argument("--workers", type=positive, metavar="N", help="workers that share a batch")

    parser = command(commands, "generate", "text from a language model, word by word")
    parser.set_defaults(work=_generate)
    parser.add_argument("run", metavar="RUN", help="folder of the run")
    parser.add_argument("--words", type=positive, default=100, metavar="N", help="how many")
    parser.add_argument("--temperature", type=zero_or_more, default=1.0, metavar="T", help="0: the likeliest word")
    parser.add_argument("--prompt", default="", metavar="TEXT", help="words that the text begins with")
    parser.add_argument("--seed", type=count, default=0, metavar="N", help="decides the words")


def train(args: argparse.Namespace) -> None:
    """A new run."""
    out = Path(args.out or f"runs/{args.task}-{args.method}-seed{args.seed}")
    expect_free(out)
    expect_used(args, settings.USES)
    regularizer = settings.regularizer(args, len(settings.chosen(args, "hidden")))
    expect_regularizer(settings.model(args, 2), regularizer, settings.fresh(args))  # before the text is read
    device = choose_device(args.device)
    about = {
        "task": args.task,
        "corpus": settings.PRESETS[args.task].corpus,
        "data_dir": args.data_dir,
        "min_count": args.min_count,
    }
    corpus = corpus_of(about)
    model = settings.model(args, len(corpus.vocabulary))
    batch, bptt = settings.chosen(args, "batch"), settings.chosen(args, "bptt")
    expect_lengths(corpus, batch, settings.chosen(args, "eval_columns"), corpus.called)
    windows = Windows(corpus.train, batch, bptt, args.seed, not args.equal_lengths)
    recipe = settings.recipe(args, windows.per_epoch)
    size = f"{model.n_params:,} weights, {len(corpus.vocabulary):,} words"
    _say(f"{corpus.name}: {len(corpus.train):,} words of training text; {size}; writing {out}")
    run = _fit(
        model,
        corpus,
        regularizer=regularizer,
        recipe=recipe,
        batch_size=batch,
        bptt=bptt,
        seed=args.seed,
        dtype=args.dtype,
        random_lengths=not args.equal_lengths,
        fresh=settings.fresh(args),
        every=args.every,
        columns=settings.chosen(args, "eval_columns"),
        device=device,
        out=out,
        about=about,
        workers=args.workers,
    )
    _report(run, device)


def resume(path: Path, args: argparse.Namespace) -> None:
    """Go on as the run was configured; only where its text is and where to compute may be said anew."""
    config = read_config(path)
    if folders.is_finished(path, blank(config), build_recipe(config["recipe"])):
        print(f"{path} is finished: nothing to resume")
        return
    about = config["about"] if args.data_dir is None else {**config["about"], "data_dir": args.data_dir}
    corpus, device = corpus_of(about), choose_device(config["device"] if args.device == "auto" else args.device)
    run = _fit(
        build(config["model"], "model"),
        corpus,
        regularizer=build(config["regularizer"], "regularizer"),
        recipe=build_recipe(config["recipe"]),
        seed=config["seed"],
        start=_start(path, config),
        device=device,
        out=path,
        resume=True,
        about=about,
        workers=args.workers or same_workers(config, device),
        **settings_of(config),
    )
    _report(run, device)


def _start(path: Path, config: dict[str, Any]) -> Any:
    """The weights that a fine-tuned run began with, where it has no checkpoint yet."""
    if "start" not in config or latest(path) is not None:
        return None
    source = config["about"].get("start")
    if source is None:
        raise RunError(f"{path} has no checkpoint yet and does not say which run it began with: begin it anew")
    try:
        start = load_language(source).params
    except RunError as error:
        raise RunError(f"{path} has no checkpoint yet and began with the weights of {source}: {error}") from error
    if weights_digest(start) != config["start"]:
        raise RunError(f"{path} has no checkpoint yet, and {source}, which it began with, has other weights now")
    return start


def _finetune(args: argparse.Namespace) -> None:
    """Averaged SGD from the best weights of a run, without its regularizer, into a run of its own."""
    whole = Path(args.run).resolve() if Path(args.run).name in ("", "..") else Path(args.run)
    out = Path(args.out) if args.out else whole.with_name(f"{whole.name}-finetuned")
    expect_free(out)
    before = open_language(args.run, args.data_dir)
    assert before.corpus is not None
    device = choose_device(args.device)
    _say(f"averaged SGD from the best weights of {args.run}; writing {out}")
    _say(f"device: {device.why}")
    about = {**before.config["about"]}
    about["data_dir"] = args.data_dir or about.get("data_dir")
    with families.resumable(out):
        run = finetune(
            before,
            before.corpus,
            epochs=args.epochs,
            lr=args.lr,
            seed=args.seed,
            patience=args.patience,
            device=device,
            out=out,
            about=about,
            workers=args.workers,
            on_evaluation=_show,
        )
    _report(run, device)


def _fit(model: Any, corpus: Corpus, *, device: Device, **given: Any) -> LanguageRun:
    _say(f"device: {device.why}")
    with families.resumable(given["out"]):
        return fit_language(model, corpus, device=device, on_evaluation=_show, **given)


def _show(record: dict[str, Any]) -> None:
    if sys.stderr.isatty():
        return
    trained = ""  # of the evaluation before the first step
    if record["train_loss"] is not None:
        trained = f"loss {record['train_loss']:.4f}, regularizer {record['regularizer']:.4g}, "
    begin = f"step {record['step']}, epoch {record['epoch']:.2f}"
    _say(f"{begin}: {trained}validation perplexity {record['valid_perplexity']:.2f}")


def _report(run: LanguageRun, device: Device) -> None:
    if launch.place().rank > 0:
        return
    _say("the best weights on all of the validation and the test text:")
    valid, test = (run.evaluate(part, device=device) for part in ("valid", "test"))
    best = min(run.records, key=lambda r: r["valid_loss"])
    print(
        f"test perplexity {test['perplexity']:.2f} (loss {test['loss']:.4f}), validation perplexity "
        f"{valid['perplexity']:.2f}, the best, at step {best['step']} of {run.step}; run in {run.path}"
    )


def evaluation(args: argparse.Namespace) -> None:
    """The perplexity of a run on its text, the state carried over the whole of it."""
    run = open_language(args.run, args.data_dir)
    found = run.evaluate(args.part, last=args.last, device=families.told(args.device))
    n = len(getattr(run.corpus, args.part)) - 1
    print(f"{args.part} perplexity {found['perplexity']:.2f}, loss {found['loss']:.4f} ({n:,} words)")


def _generate(args: argparse.Namespace) -> None:
    """Print words, in lines as wide as the terminal."""
    run = load_language(args.run)
    prompt = topics.tokens(args.prompt) if run.config["corpus"]["name"] == "pydoc" else args.prompt.split()
    made = list(run.generate(args.words, prompt=prompt, temperature=args.temperature, seed=args.seed))
    text = " ".join([*prompt, *made])
    width = min(100, shutil.get_terminal_size().columns)
    for line in text.split(EOS):
        print("\n".join(textwrap.wrap(line.strip(), width, break_long_words=False)))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)

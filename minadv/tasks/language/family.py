r"""The family of word-level language models: what is particular to it.

Settings of `minadv.fit` beside those of every family: ``batch_size`` columns of text are read side by side, ``bptt``
words at a time, or about as many with ``random_lengths``; ``fresh``, ``every``, ``columns`` and ``draws`` are those of
`minadv.tasks.language.task.LanguageTask`; ``start`` names the first weights, which are drawn if it is None: a run, its
folder, or weights.
"""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypedDict

import numpy as np

from minadv import masks
from minadv.backend import Device, is_device, to_device
from minadv.base.numbers import Extra, Size
from minadv.base.trees import any_array
from minadv.data.language import corpus as corpora
from minadv.data.language.corpus import Corpus
from minadv.data.language.windows import Windows
from minadv.models.language.model import LanguageModel, TokenBatch
from minadv.regularizers import Regularizer
from minadv.tasks import methods
from minadv.tasks.attack import Target, choose_budgets
from minadv.tasks.family import Family
from minadv.tasks.language.finetune import plan_finetuning
from minadv.tasks.language.generation import generate
from minadv.tasks.language.presets import BY_DEFAULT, PRESETS, SMALL, fitted, in_force, model_of, recipe, schedules
from minadv.tasks.language.saying import baseline, summary
from minadv.tasks.language.task import LanguageTask, evaluate, expect_lengths, expect_regularizer, load_of, zero_states
from minadv.tasks.options import chosen
from minadv.tasks.reports import Report, best_record
from minadv.tasks.run import Run, digest, load
from minadv.training.parallel.inference import alone
from minadv.training.runs.folder import RunError

OPTIONS = {
    "the run": "out overwrite resume config seed seeds dtype device tf32 engine workers cuda-aware-mpi "
    "eval-every eval-columns checkpoint-every sample "
    "patience watch-adversary",
    "data": "data-dir min-count",
    "model": "embed hidden layers untied word-dropout input-dropout hidden-dropout output-dropout dropconnect ar tar",
    "method": "method p masked-layers delta budget adv-steps search stages reselect runner-up borrow swaps tries init "
    "rule scale distance fresh every weight ramp-up",
    "optimisation": "epochs train-steps batch bptt equal-lengths optimizer lr weight-decay nonmono ramp-down clip",
}
CHANGES: dict[str, dict[str, Any]] = {
    "data-dir": {
        "help": "folder of the text (default: lm reads CPython's documentation, ptb and wikitext2 look in "
        "MINADV_DATA, then in the cache)"
    },
    "min-count": {"help": "rarer words are read as <unk> (default: as the corpus says)"},
    "embed": {"help": "size of an embedding (default: that of the last layer)"},
    "hidden": {"nargs": "+", "help": "units of each layer"},
    "layers": {"help": "recurrent layers; of one --hidden all have that size (default: as many as --hidden)"},
    "delta": {
        "nargs": "+",
        "help": "share of units that may flip, or one for each layer, 0: no mask on it (add) "
        "(default: 0.06, three units of a small layer)",
    },
    "search": {
        "choices": ("greedy", "reselect", "relax", "random"),
        "help": "search for the adversarial mask (add); greedy: the paper's; relax: stronger, for about the price of "
        "greedy with --adv-steps 2",
    },
    "tries": {"help": "masks that --search random tries (default: 1)"},
    "init": {"help": "mask that the search starts at (add; default: base, if --fresh noise differs, else flip)"},
    "rule": {"default": "strict"},
    "scale": {"default": "none"},
    "distance": {"help": "distance between the two predictions (default: js, logit2 for fd and pi, skl for rdrop)"},
    "weight": {"help": "weight of the regularizer in the loss (default: 1, 0.1 for fd and pi)"},
    "ramp-up": {"default": 0.0},
    "batch": {"help": "columns of text read side by side"},
    "optimizer": {"choices": ("asgd", "sgd", "adam")},
    "clip": {"default": 0.25},
}
SETTINGS = {"batch_size": 20, "dtype": "float32", "random_lengths": True, "fresh": ("words",), "every": 1}


class Named(TypedDict):
    """What tells one text from another."""

    name: str
    words: Size
    fingerprint: str


class Config(TypedDict):
    """What a configuration says of its text; the vocabulary's words have spaces between them."""

    corpus: Named
    vocabulary: str
    bptt: Size


class Perhaps(TypedDict, total=False):
    """What configurations of earlier versions do not say."""

    sample: Extra  # words that are written at each evaluation


class About(Perhaps):
    """What a configuration says of where its text is."""

    corpus: Literal["pydoc", "ptb", "wikitext2", "folder", "texts"] | None
    data_dir: str | None
    min_count: Size | None


def about(options: Namespace) -> dict[str, Any]:
    where = {"data_dir": options.data_dir, "min_count": options.min_count}
    if options.data_dir is not None and options.min_count is None and options.preset.data is None:
        where["min_count"] = corpora.own_min_count(options.data_dir)
    return {"task": options.task, "corpus": options.preset.data, **where, "sample": options.sample}


def open_data(about: dict[str, Any]) -> Corpus:
    return corpora.load(about["corpus"], about.get("data_dir"), min_count=about.get("min_count"))


def identify(corpus: Corpus) -> dict[str, Any]:
    """What a configuration says of its text: its fingerprint, and its vocabulary, whose words hold no white space."""
    named = {"name": corpus.name, "words": len(corpus.vocabulary), "fingerprint": corpus.fingerprint}
    return {"corpus": named, "vocabulary": " ".join(corpus.vocabulary.words)}


def expect_corpus(config: dict[str, Any], corpus: Corpus, path: str) -> None:
    """Raise RunError unless a corpus is the one that a run was trained on."""
    theirs = config["corpus"]
    if theirs["fingerprint"] != corpus.fingerprint:
        own = theirs["name"] == corpus.name == "pydoc"
        way = "use the Python that it was trained with, whose version its log has"
        way = way if own else "name its folder with --data-dir"
        raise RunError(
            f"{path} was trained on another text: {theirs['name']} with {theirs['words']:,} words and fingerprint "
            f"{theirs['fingerprint'][:12]}, and this one, {corpus.name}, has {len(corpus.vocabulary):,} words and "
            f"{corpus.fingerprint[:12]}: {way}"
        )


def check(options: Namespace) -> None:
    model = model_of(options, 2)
    expect_regularizer(model, methods.regularizer(options, model), methods.fresh(options))


def arguments(options: Namespace, data: Corpus) -> dict[str, Any]:
    model = model_of(options, len(data.vocabulary))
    return {
        "model": model,
        "regularizer": methods.regularizer(options, model),
        "recipe": partial(recipe, options),
        "batch_size": chosen(options, "batch"),
        "bptt": chosen(options, "bptt"),
        "dtype": options.dtype,
        "random_lengths": not options.equal_lengths,
        "fresh": methods.fresh(options),
        "every": options.every,
        "columns": chosen(options, "eval_columns"),
    }


def make_task(
    model: LanguageModel,
    data: Corpus,
    *,
    regularizer: Regularizer,
    seed: int,
    device: Device,
    start: Any,
    fresh: tuple[str, ...],
    **settings: Any,
) -> tuple[LanguageTask, dict[str, Any]]:
    expect_lengths(data, settings["batch_size"], settings["columns"], data.called)
    if len(data.vocabulary) != model.n_words:
        raise ValueError(f"n_words is {model.n_words}, expected {len(data.vocabulary)}, the words of the corpus")
    train, valid, test = (to_device(part, device) for part in (data.train, data.valid, data.test))
    if isinstance(start, str | Path):
        start = load(start)
    first = start.params if isinstance(start, Run) else start
    more = {"seed": seed, "fresh": tuple(fresh), "start": first, **settings}
    task = LanguageTask(model, train, valid, test, regularizer, **more)
    return task, {} if first is None else {"start": digest(first)}


def place(model: LanguageModel, data: Any, device: Device) -> tuple[LanguageModel, Any]:
    """The model as it is, and the text, if there is one, on a device."""
    if data is None:
        return model, None
    parts = {part: to_device(getattr(data, part), device) for part in ("train", "valid", "test")}
    return model, replace(data, **parts)


def evaluate_run(run: Run, data: Corpus, part: str, params: Any, device: Device, *, columns: int = 1) -> dict[str, Any]:
    """The state is carried over the whole part, or over each of its columns."""
    params, tokens = to_device((params, getattr(data, part)), device)
    return evaluate(run.model, params, tokens, columns=columns, window=run.config["bptt"])


def report(run: Run, device: Device) -> Report:
    valid, test = (run.evaluate(part, device=device) for part in ("valid", "test"))
    line = (
        f"test perplexity {test['perplexity']:.2f} (loss {test['loss']:.4f}), validation perplexity "
        f"{valid['perplexity']:.2f}, the best, at step {best_record(run, 'loss')['step']} of {run.step}; "
        f"run in {run.path}"
    )
    return Report(line, test["perplexity"])


COLUMNS = 20  # windows that are attacked at once, one from each twentieth of the text


def windows_with_states(run: Run, n: int) -> Iterator[tuple[TokenBatch, Any]]:
    """Batches of test windows, each with the state that the full network has before it.

    There are n windows in all, columns times steps, or as many as the text has.
    """
    tokens, state = run.data.test, None
    columns = max(1, min(COLUMNS, n, (len(tokens) - 1) // 2))
    windows = Windows(tokens, columns, run.config["bptt"], random=False)
    for step in range(min(windows.per_epoch, -(-n // columns))):
        window = windows.window(step)
        batch = TokenBatch(window.x, window.y)
        yield batch, state
        _, state, _ = run.model.body(run.params, batch, masks={}, noise=None, state=state)


def attack(run: Run, n: int, *, delta: list[float] | None = None, budget: list[int] | None = None, **_: Any) -> Target:
    """The target of an attack on n windows of the test text, or all if these are fewer."""

    def share(H: int) -> int:
        return masks.budget(max(methods.LM_DELTA, 1 / H), H)

    budgets = choose_budgets(run, delta, budget, share=share, by_layer=True)
    with alone(run.params):
        text = list(windows_with_states(run, n))
    first = any_array(run.params)
    words = sum(batch.tokens.size for batch, _ in text)
    units = ", ".join(f"{budgets.get(site.name, 0)} of {site.H}" for site in run.model.sites)
    return Target(
        run,
        budgets,
        text,
        f"{words:,} words of the test text in windows of {run.config['bptt']}; units flipped by layer: {units}",
        "perplexity",
        count=lambda batch: int(batch.tokens.size),
        score=lambda features, batch: float(run.model.nll(run.params, features, batch.targets).sum()),
        result=math.exp,
        number="10.2e",
        exact=False,
        load=load_of(run.model, str(first.dtype), words, len(text), on_gpu=is_device(first)),
    )


FAMILY = Family(
    kind="lm",
    model=LanguageModel,
    data=Corpus,
    task=LanguageTask,
    config=Config,
    described=About,
    presets=PRESETS,
    metrics=("perplexity", "loss"),
    options=OPTIONS,
    changes=CHANGES,
    methods=("none", "vd", "el", "fd", "pi", "rdrop", "add"),
    check=check,
    about=about,
    arguments=arguments,
    summary=summary,
    report=report,
    fitted=fitted,
    in_force=in_force,
    baseline=baseline,
    open_data=open_data,
    identify=identify,
    expect_data=expect_corpus,
    size=lambda run, part: f"{len(getattr(run.data, part)) - 1:,} words",
    settings={**SETTINGS, "bptt": lambda text: max(1, min(70, (len(text.train) - 1) // 20))}
    | {"columns": 1, "start": None, "draws": "philox-1"},
    begins_with="start",
    recipe=BY_DEFAULT,
    schedules=schedules,
    epochs=SMALL["epochs"],
    make_task=make_task,
    evaluate=evaluate_run,
    place=place,
    carry=lambda model, config: zero_states(model, config["batch_size"], config["dtype"], like=np.zeros(0)),
    generate=generate,
    finetune=plan_finetuning,
    attack=attack,
    figures=("curves", "units"),
)

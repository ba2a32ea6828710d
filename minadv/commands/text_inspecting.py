r"""``minadv predict``, ``attack`` and ``show`` of a classifier of texts: what it answers, and what moves it."""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from minadv import masks
from minadv.adversary import find_adversary, find_budgets
from minadv.backend import Array
from minadv.base.streams import permutation, stream
from minadv.commands import text_settings as settings
from minadv.commands.inspecting import SEARCHES, asked, say_if_almost_random
from minadv.commands.language_inspecting import curves
from minadv.data.texts.buckets import in_length_order, make_batch, steps_of
from minadv.data.texts.documents import Documents
from minadv.models.pretraining import TextLM
from minadv.searches import ball_size
from minadv.tasks.text.explain import Explained, explain
from minadv.tasks.text.runs import TextRun, load_text
from minadv.tasks.text.task import text_batch

UNITS = 5  # that --explain tells


def open_run(args: argparse.Namespace) -> TextRun:
    """A run with its texts; raises if these are not the ones it was trained on."""
    run = load_text(args.run)
    return load_text(args.run, settings.corpus_of(run.config["about"], args.data_dir))


def predict(args: argparse.Namespace) -> None:
    """Label and probability of each line of standard input, or of a file, a line each, tab-separated."""
    run = load_text(args.run)
    _ = run.classifier  # a language model answers nothing
    if args.units is not None and not args.explain:
        raise ValueError(f"--units is {args.units} without --explain, which it belongs to: give both or neither")
    where = "standard input" if args.images is None else args.images
    lines = read_lines(sys.stdin.buffer.read() if args.images is None else Path(args.images).read_bytes(), where)
    if not args.explain:
        for p in run.predict(lines) if lines else ():
            print(f"{run.classes[p.argmax()]}\t{p.max():.4f}")
        return
    documents = run.encode(lines)
    for n in range(len(documents)):
        tokens = make_batch(documents, np.array([n]), max_tokens=run.config["max_tokens"]).tokens[:, 0]
        print(explained_line(run, explain(run.classifier, run.params, tokens, top=args.units or UNITS)), flush=True)


def read_lines(content: bytes, where: str) -> list[str]:
    """One text a line; raises ValueError for one that is not UTF-8 or has no words, with its number."""
    found = []
    for n, line in enumerate(content.removeprefix(b"\xef\xbb\xbf").splitlines(), 1):
        try:
            found.append(line.decode())
        except UnicodeDecodeError as error:
            byte = f"0x{line[error.start]:02x}"
            raise ValueError(f"line {n} of {where} is not UTF-8: byte {byte} at offset {error.start}") from error
        if not found[-1].strip():
            raise ValueError(f"line {n} of {where} is empty, expected a text a line")
    return found


def explained_line(run: TextRun, found: Explained) -> str:
    """Label, probability, and for each unit what its removal alone does to that probability, and to the label."""
    answer = int(found.p.argmax())
    cells = [run.classes[answer], f"{found.p[answer]:.4f}"]
    for removal in found.removals:
        name = f"{removal.site}." if run.classifier.n_layers > 1 else ""
        other = int(removal.p.argmax())
        turned = "" if other == answer else f" {run.classes[other]}"
        cells.append(f"{name}{removal.unit}:{removal.p[answer] - found.p[answer]:+.4f}{turned}")
    return "\t".join(cells)


def attack(args: argparse.Namespace) -> None:
    """Accuracy of a run's classifier under masks found by each search; what a search raises is D, not the error."""
    run = open_run(args)
    model = run.classifier
    budgets = _budgets(run, args)
    documents = some_of(run, args.examples, args.seed)
    budget = max(budgets.values())
    n_masks = ball_size(model.n_hidden, budget) ** model.n_layers
    print(
        f"{len(documents)} test texts, {budget} of {model.n_hidden} units flipped in each of {model.n_layers} layer(s)"
    )
    say_if_almost_random(budgets.values())
    print(f"{'mask':14} {'accuracy %':>10} {'mean D':>10}")
    for name, options in {"none": {}, **SEARCHES}.items():
        if name == "exact" and n_masks > args.max_masks:
            print(f"{'exact':14} left out: {n_masks:,} masks, more than --max-masks {args.max_masks:,}")
            continue
        right, distance = under_attack(run, documents, budgets, args, options, name)
        print(f"{name:14} {100 * right:10.2f} {distance:10.4f}", flush=True)


def under_attack(
    run: TextRun,
    documents: Documents,
    budgets: dict[str, int],
    args: argparse.Namespace,
    options: dict[str, Any],
    name: str,
) -> tuple[float, float]:
    """The share still classified rightly, and the mean distance, under one search's masks; without options, none."""
    right = distance = 0.0
    model, most = run.classifier, run.config["max_tokens"]
    common = {"budgets": budgets, "distance": args.distance, "scale": args.scale, "max_masks": args.max_masks}
    rng = stream(args.seed, f"attack {name}")
    for rows in in_length_order(steps_of(documents, max_tokens=most), 100):
        batch, m = text_batch(model, documents, rows, max_tokens=most), {}
        if options:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                trace = find_adversary(model, run.params, batch, rng=rng, **common, **options)
            assert trace.d is not None
            m = {site: masks.scale(eps, args.scale) for site, eps in trace.eps.items()}
            distance += float(trace.d.sum())
        features, _, _ = model.body(run.params, batch, masks=m, noise=None)
        right += float((model.logits(run.params, features)[-1].argmax(axis=-1) == batch.targets).sum())
    return right / len(documents), distance / len(documents)


def show(args: argparse.Namespace) -> None:
    """Write the figures of a run: its curves and, of a classifier, the influence map over texts."""
    from minadv import plots

    run = open_run(args)
    out = Path(args.out or run.path or ".")
    out.mkdir(parents=True, exist_ok=True)
    if isinstance(run.model, TextLM):
        print(plots.save(curves(run.records), out / "curves.png"))
        return
    documents = some_of(run, args.examples, 0)
    batch = text_batch(run.model, documents, np.arange(len(documents)), max_tokens=run.config["max_tokens"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trace = find_adversary(
            run.model,
            run.params,
            batch,
            rng=stream(0, "show"),
            budgets=own_budgets(run),
            search="reselect",
            adv_steps=2,
        )
    assert batch.targets is not None
    if run.records:
        print(plots.save(plots.curves(run.records), out / "curves.png"))
    for site, name in plots.by_site("influence", trace.eps).items():
        print(plots.save(plots.influence(trace, batch.targets, site), out / name))


def some_of(run: TextRun, n: int, seed: int) -> Documents:
    """So many of the test texts, chosen at random: in their order they are sorted by class."""
    assert run.corpus is not None
    test = run.corpus.test
    rows: Array = np.sort(permutation(stream(seed, "some texts"), len(test))[:n])
    return test.take(rows)


def _budgets(run: TextRun, args: argparse.Namespace) -> dict[str, int]:
    """The flips of each layer: as asked for, or those that the run was trained with, or the paper's share."""
    delta, budget = asked(args)
    return own_budgets(run) if delta is budget is None else find_budgets(run.classifier, delta=delta, budgets=budget)


def own_budgets(run: TextRun) -> dict[str, int]:
    """The flips of each layer that a run was trained with; of other methods, 4 % of the units and at least one."""
    model, trained = run.classifier, run.config["regularizer"]
    parts = trained["parts"] if trained["kind"] == "Sum" else [trained]
    for part in parts:
        if part["kind"] == "AdD" and not isinstance(part["delta"], dict):
            return find_budgets(model, delta=part["delta"], budgets=part["budgets"])
    return find_budgets(model, delta=max(0.04, 1 / model.n_hidden))

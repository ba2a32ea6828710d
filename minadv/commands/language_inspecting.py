r"""``minadv attack`` and ``minadv show`` of a language model: its perplexity under masks, and which units they take."""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from minadv import masks
from minadv.adversary import find_adversary, find_budgets
from minadv.backend import Array
from minadv.base.streams import stream
from minadv.commands import language_settings as settings
from minadv.commands.inspecting import SEARCHES as ALL
from minadv.commands.inspecting import say_if_almost_random
from minadv.data.language.windows import Windows
from minadv.models.language.model import TokenBatch
from minadv.protocol import choose_sites
from minadv.tasks.language.training import LanguageRun, open_language

SEARCHES = {name: options for name, options in ALL.items() if name != "exact"}
COLUMNS = 20  # windows that are attacked at once, one from each twentieth of the text


def attack(args: argparse.Namespace) -> None:
    """Perplexity of a run's model under masks found by each search; what a search raises is D, not the perplexity."""
    run = open_language(args.run, args.data_dir)
    budgets = _budgets(run, args)
    text = list(_windows(run, args.examples))
    words = sum(batch.tokens.size for batch, _ in text)
    units = ", ".join(f"{budgets.get(site.name, 0)} of {site.H}" for site in run.model.sites)
    print(f"{words:,} words of the test text in windows of {run.config['bptt']}; units flipped by layer: {units}")
    say_if_almost_random(budgets.values())
    print(f"{'mask':14} {'perplexity':>10} {'mean D':>10}")
    for name, options in {"none": {}, **SEARCHES}.items():
        perplexity, distance = under_attack(run, text, budgets, args, options, name)
        print(f"{name:14} {perplexity:10.2f} {distance:10.2e}", flush=True)


def under_attack(
    run: LanguageRun,
    text: list[tuple[TokenBatch, Any]],
    budgets: dict[str, int],
    args: argparse.Namespace,
    options: dict[str, Any],
    name: str,
) -> tuple[float, float]:
    """The perplexity, and the mean distance of a word, under one search's masks; without options, under none."""
    nll = distance = 0.0
    words = 0
    rng = stream(args.seed, f"attack {name}")
    for batch, state in text:
        m = {}
        if options:
            common = {"distance": args.distance, "scale": args.scale, "state": state}
            common |= {"budgets": budgets, "sites": tuple(budgets)}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                trace = find_adversary(run.model, run.params, batch, rng=rng, **common, **options)
            assert trace.d is not None
            m = {site: masks.scale(eps, args.scale) for site, eps in trace.eps.items()}
            distance += float(trace.d.sum()) * len(batch.tokens)
        features, _, _ = run.model.body(run.params, batch, masks=m, noise=None, state=state)
        assert batch.targets is not None
        nll += float(run.model.nll(run.params, features, batch.targets).sum())
        words += batch.tokens.size
    return math.exp(nll / words), distance / words


def _windows(run: LanguageRun, examples: int) -> Iterator[tuple[TokenBatch, Any]]:
    """Windows of the test text, several columns at a time, each with the state in which the full network comes to it.

    ``examples`` windows in all, columns times steps, or what there is.
    """
    assert run.corpus is not None
    tokens = run.corpus.test
    columns = max(1, min(COLUMNS, examples, (len(tokens) - 1) // 2))
    windows = Windows(tokens, columns, run.config["bptt"], random=False)
    state = None
    for step in range(min(windows.per_epoch, -(-examples // columns))):
        window = windows.window(step)
        batch = TokenBatch(window.x, window.y)
        before = state
        _, state, _ = run.model.body(run.params, batch, masks={}, noise=None, state=before)
        yield batch, before


def _budgets(run: LanguageRun, args: argparse.Namespace) -> dict[str, int]:
    """The flips of each layer: as asked for, or those that the run was trained with, or the paper's share.

    One number is for the layers that the run was trained with masks on; of several, each is for a layer.
    """
    if args.delta is None and args.budget is None:
        return own_budgets(run)
    several = len(args.delta or args.budget or ()) > 1
    sites = None if several else own_sites(run)
    return find_budgets(run.model, **settings.budgets(args.delta, args.budget, len(run.model.sites), sites))


def own_sites(run: LanguageRun) -> tuple[str, ...] | None:
    """The layers that a run was trained with masks on; None for all."""
    sites = run.config["regularizer"].get("sites")
    return None if sites is None else tuple(sites)


def own_budgets(run: LanguageRun) -> dict[str, int]:
    """The flips of each layer that a run was trained with; for other methods, 6 % of the units and at least one."""
    trained, sites = run.config["regularizer"], own_sites(run)
    if trained["kind"] == "AdD":
        return find_budgets(run.model, sites=sites, delta=trained["delta"], budgets=trained["budgets"])
    share = settings.DELTA
    return {site.name: masks.budget(max(share, 1 / site.H), site.H) for site in choose_sites(run.model, sites)}


def show(args: argparse.Namespace) -> None:
    """Write the figures of a run: its curves, and how often the search takes each unit."""
    from minadv import plots

    run = open_language(args.run, args.data_dir)
    out = Path(args.out or run.path or ".")
    out.mkdir(parents=True, exist_ok=True)
    print(plots.save(curves(run.records), out / "curves.png"))
    print(plots.save(units(run, args.examples), out / "units.png"))


def curves(records: list[dict[str, Any]]) -> Any:
    """Training and validation loss, the regularizer, and the validation perplexity, by epoch."""
    from minadv.plots import _pyplot

    plt = _pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6))
    epochs = [r["epoch"] for r in records]
    left.plot(epochs, [r["train_loss"] for r in records], ".-", label="training NLL")
    left.plot(epochs, [r["valid_loss"] for r in records], ".-", label="validation NLL")
    left.set(xlabel="epoch", ylabel="nats a word")
    if any(r["regularizer"] for r in records):
        other = left.twinx()
        other.plot(epochs, [r["regularizer"] for r in records], ".-", color="tab:green")
        other.set_ylabel("regularizer", color="tab:green")
    left.legend()
    right.plot(epochs, [r["valid_perplexity"] for r in records], ".-", color="tab:red")
    right.set(xlabel="epoch", ylabel="validation perplexity", yscale="log")
    for axis in (left, right):
        axis.grid(alpha=0.3)
    figure.tight_layout()
    return figure


def units(run: LanguageRun, examples: int) -> Any:
    """How often re-selection drops each unit, over windows of the test text: a panel a layer, units by rank."""
    from minadv.plots import _pyplot

    plt = _pyplot()
    budgets = own_budgets(run)
    how: dict[str, Any] = {"budgets": budgets, "sites": tuple(budgets), "search": "reselect", "adv_steps": 2}
    dropped = {site.name: np.zeros(site.H) for site in choose_sites(run.model, tuple(budgets))}
    n, rng = 0, stream(0, "show")
    for batch, state in _windows(run, examples):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trace = find_adversary(run.model, run.params, batch, rng=rng, state=state, **how)
        for name, eps in trace.eps.items():
            dropped[name] += (1 - eps).sum(axis=0)
        n += len(batch)
    figure, axes = plt.subplots(1, len(dropped), figsize=(4.2 * len(dropped), 3.4), squeeze=False)
    for axis, (name, counts) in zip(axes[0], dropped.items(), strict=True):
        shares: Array = np.sort(counts / n)[::-1]
        axis.plot(shares, label="re-selection")
        axis.axhline(budgets[name] / len(shares), color="tab:gray", linestyle=":", label="random masks")
        axis.set(title=f"{name}, budget {budgets[name]} of {len(shares)}", xlabel="unit, by rank")
        axis.set_ylabel("share of windows that drop it")
        axis.grid(alpha=0.3)
    axes[0][0].legend()
    figure.tight_layout()
    return figure

r"""The pictures of a run: learning curves, influence maps, adversarial masks, confused classes. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minadv.adversary import Trace
from minadv.backend import Array, to_host
from minadv.base.files import temporary_name


def curves(records: Sequence[dict[str, Any]], metric: str) -> Any:
    """Training and validation loss, the regularizer, and the validation error or perplexity, by epoch.

    A perplexity has a logarithmic axis. The losses of language models, in nats a word, differ little, so that a
    regularizer beside them has an axis of its own; the losses of classifiers fall by orders of magnitude and share one
    logarithmic axis with it.
    """
    plt = _pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6))
    epochs, of_words = [r["epoch"] for r in records], metric == "perplexity"
    left.plot(epochs, [r["train_loss"] for r in records], ".-", label="training NLL")
    left.plot(epochs, [r["valid_loss"] for r in records], ".-", label="validation NLL")
    left.set(xlabel="epoch", ylabel="nats a word" if of_words else "nats", yscale="linear" if of_words else "log")
    if any(r["regularizer"] for r in records):
        axis = left.twinx() if of_words else left
        axis.plot(epochs, [r["regularizer"] for r in records], ".-", color="tab:green", label="regularizer")
        if of_words:
            axis.set_ylabel("regularizer", color="tab:green")
            left.set(zorder=1, facecolor="none")  # so that the legend is before the regularizer's line
    left.legend()
    right.plot(epochs, [r[f"valid_{metric}"] for r in records], ".-", color="tab:red")
    unit = " %" if metric == "error" else ""
    right.set(xlabel="epoch", ylabel=f"validation {metric}{unit}", yscale="log" if of_words else "linear")
    for axis in (left, right):
        _number(axis, of_words)
        axis.grid(alpha=0.3)
    figure.tight_layout()
    return figure


def several(records: Mapping[str, Sequence[dict[str, Any]]], metric: str) -> Any:
    """The validation loss and the validation error or perplexity of several runs, by epoch."""
    plt = _pyplot()
    figure, axes = plt.subplots(1, 2, figsize=(11, 4))
    unit, of_words = " %" if metric == "error" else "", metric == "perplexity"
    for axis, name in zip(axes, ("loss", metric), strict=True):
        for run, found in records.items():
            axis.plot([r["epoch"] for r in found], [r[f"valid_{name}"] for r in found], ".-", label=run)
        axis.set(xlabel="epoch", ylabel=f"validation {name}{unit if name == metric else ''}")
        axis.set_yscale("log" if of_words or name == "loss" else "linear")
        _number(axis, of_words)
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize="small")
    figure.tight_layout()
    return figure


def _number(axis: Any, of_words: bool) -> None:
    """Whole numbers of epochs, where there are two, and perplexities without exponents."""
    from matplotlib.ticker import LogFormatter, MaxNLocator

    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    if of_words and axis.get_yscale() == "log":
        axis.yaxis.set_major_formatter(LogFormatter())
        axis.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.5)))


def units(shares: dict[str, Array], budgets: dict[str, int]) -> Any:
    """The share of windows in which a search drops each unit, in falling order, and that of random masks, by layer."""
    plt = _pyplot()
    figure, axes = plt.subplots(1, len(shares), figsize=(4.2 * len(shares), 3.4), squeeze=False)
    for axis, (site, share) in zip(axes[0], shares.items(), strict=True):
        axis.plot(np.sort(share)[::-1], label="re-selection")
        axis.axhline(budgets[site] / len(share), color="tab:gray", linestyle=":", label="random masks")
        axis.set(title=f"{site}, budget {budgets[site]} of {len(share)}", xlabel="unit, by rank")
        axis.set_ylabel("share of windows that drop it")
        axis.grid(alpha=0.3)
    axes[0][0].legend()
    figure.tight_layout()
    return figure


def by_site(name: str, sites: Iterable[str]) -> dict[str, str]:
    """The name of each site's figure: ``name`` itself for a single site, else ``name-site``."""
    names = list(sites)
    return {site: name if len(names) == 1 else f"{name}-{site}" for site in names}


def influence(trace: Trace, labels: Array, site: str, names: Sequence[str]) -> Any:
    """The influence map of a site over units and examples, sorted by class, and the units that the search flipped.

    ``names`` are those of the classes. An example's colours end at the 99th percentile of its units.
    """
    plt = _pyplot()
    assert trace.im is not None
    labels = to_host(labels)
    order = np.argsort(labels, kind="stable")
    im = to_host(trace.im[site])[order]
    flipped = (to_host(trace.eps[site]) != to_host(trace.eps0[site]))[order]
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(10, 7), sharex=True, layout="constrained")
    scale = without_outliers(np.abs(im))[:, None]
    shown = top.imshow(im / scale, aspect="auto", cmap="RdBu", vmin=-1, vmax=1, interpolation="nearest")
    top.set(title=f"influence map, {site}")
    bar = figure.colorbar(shown, ax=top, extend="both")
    bar.set_label("influence; 1: the 99th percentile\nof the example's units")
    two = plt.get_cmap("Greys", 2)
    shown = bottom.imshow(flipped, aspect="auto", cmap=two, vmin=0, vmax=1, interpolation="nearest")
    bottom.set(title="units flipped by the search", xlabel="unit")
    figure.colorbar(shown, ax=bottom, ticks=[0.25, 0.75]).set_ticklabels(["as it was", "flipped"])
    for axis in (top, bottom):
        _by_class(axis, labels[order], names)
    return figure


def confusion(counts: Array, errors: Array, names: Sequence[str]) -> Any:
    """Which classes (rows) are taken for which (columns), in per cent of a row, and the error of each class.

    Right answers, on the diagonal, have no colour, so that the wrong ones can be told apart.
    """
    plt = _pyplot()
    C = len(names)
    shares = 100 * counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    wrong = np.ma.masked_array(shares, np.eye(C, dtype=bool))
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(11, 5.5), layout="constrained", gridspec_kw={"width_ratios": (3, 1)}
    )
    top = float(without_outliers(wrong.compressed()) if C > 2 else wrong.max())
    shown = left.imshow(wrong, cmap="Reds", vmin=0, vmax=top if top > 0 else 1, aspect="auto")
    left.set_facecolor("0.92")
    said = ";\nthe scale ends at the 99th percentile" if C > 2 else ""
    figure.colorbar(shown, ax=left, extend="max" if C > 2 else "neither", label=f"% of the class's examples{said}")
    left.set(title="test examples by class and answer", xlabel="answer", ylabel="class")
    for i, j in np.argwhere((counts > 0) | np.eye(C, dtype=bool)) if C <= 15 else ():
        dark = i != j and shares[i, j] > 0.6 * top
        left.text(j, i, counts[i, j], ha="center", va="center", fontsize="small", color="white" if dark else "black")
    places = np.arange(C)
    right.barh(places, np.nan_to_num(errors), color="tab:red", height=0.8)
    right.set(title="error of each class", xlabel="%", ylim=left.get_ylim())
    right.grid(axis="x", alpha=0.3)
    _name(left.yaxis, places, names, C)
    _name(right.yaxis, places, names, C)
    _name(left.xaxis, places, names, C)
    left.tick_params(axis="x", rotation=0 if max(map(len, names)) * C < 60 else 90)
    return figure


def without_outliers(values: Array) -> Array:
    """Where a scale of values along the last axis ends: at their 99th percentile, or the largest if that is zero.

    One value alone never decides it, however few there are. Where all are zero it is 1.
    """
    end = np.percentile(values, 99, axis=-1, method="lower")
    end = np.where(end > 0, end, values.max(axis=-1))
    return np.where(end > 0, end, 1.0)


def readable(places: Sequence[float], length: float, most: int = 25) -> list[int]:
    """Which of the labels at rising places on an axis are written: those that are far enough from the one before."""
    kept: list[int] = []
    for n, place in enumerate(places):
        if not kept or place - places[kept[-1]] >= length / most:
            kept.append(n)
    return kept


def _by_class(axis: Any, labels: Array, names: Sequence[str]) -> None:
    """Name the classes of rows that are sorted by class, with a line between classes and, among few, examples."""
    present, first, n = np.unique(labels, return_index=True, return_counts=True)
    if len(labels) <= 40:
        axis.hlines(np.arange(1, len(labels)) - 0.5, *axis.get_xlim(), color="0.8", linewidth=0.4)
    axis.hlines(first[1:] - 0.5, *axis.get_xlim(), color="black", linewidth=0.8)
    _name(axis.yaxis, first + (n - 1) / 2, [names[label] for label in present], len(labels))
    axis.set_ylabel(f"{len(labels)} examples, by class")


def _name(axis: Any, places: Array, names: Sequence[str], length: float) -> None:
    """Write names at places of an axis, cut if they are long, and only some of them if there are many."""
    kept = readable(list(places), length)
    axis.set_ticks([places[n] for n in kept], [_text(names[n], 20) for n in kept])


def _text(text: str, longest: int) -> str:
    """Text as matplotlib writes it out: cut to a length, and a dollar sign begins no formula."""
    return (text if len(text) <= longest else f"{text[: longest - 1]}…").replace("$", r"\$")


def entitle(figure: Any, title: str) -> Any:
    """The figure with a title above all its axes."""
    figure.suptitle(_text(title, 160), fontsize="medium", y=1.01, va="bottom")
    return figure


def masks_by_epoch(records: Sequence[dict[str, Any]], site: str) -> Any:
    """The mean adversarial mask of a site over test examples at each evaluation (Figure 3b); dark: dropped often."""
    plt = _pyplot()
    rows = np.array([r["valid_mean_mask"][site] for r in records])
    figure, axis = plt.subplots(figsize=(10, 4), layout="constrained")
    first, last = records[0]["epoch"], records[-1]["epoch"]
    half = (last - first) / (2 * len(rows) - 2) if len(rows) > 1 else first / 2  # so a row's middle is at its epoch
    extent = (-0.5, rows.shape[1] - 0.5, last + half, first - half)
    low = 1 - float(without_outliers(1 - rows.ravel()))
    shown = axis.imshow(rows, aspect="auto", cmap="viridis", vmin=low, vmax=1, extent=extent, interpolation="nearest")
    axis.set(title=f"mean adversarial mask, {site}", xlabel="unit", ylabel="epoch")
    label = "share of examples that keep the unit;\nthe scale begins at the 1st percentile"
    figure.colorbar(shown, ax=axis, extend="min", label=label)
    return figure


def save(figure: Any, path: Path) -> Path:
    """Write a figure under a temporary name and rename it."""
    temporary = temporary_name(path).with_suffix(".png")
    figure.savefig(temporary, dpi=120, bbox_inches="tight")
    temporary.replace(path)
    _pyplot().close(figure)
    return path


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError("figures need matplotlib: pip install minadv[experiments]") from error
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt

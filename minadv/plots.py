r"""The pictures of a run: learning curves, influence maps, mean adversarial masks. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    left.legend()
    right.plot(epochs, [r[f"valid_{metric}"] for r in records], ".-", color="tab:red")
    unit = " %" if metric == "error" else ""
    right.set(xlabel="epoch", ylabel=f"validation {metric}{unit}", yscale="log" if of_words else "linear")
    for axis in (left, right):
        axis.grid(alpha=0.3)
    figure.tight_layout()
    return figure


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


def influence(trace: Trace, labels: Array, site: str) -> Any:
    """The influence map of a site over units and examples, sorted by class, and the units that the search flipped."""
    plt = _pyplot()
    assert trace.im is not None
    order = np.argsort(to_host(labels), kind="stable")
    im = to_host(trace.im[site])[order]
    flipped = (to_host(trace.eps[site]) != to_host(trace.eps0[site]))[order]
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(10, 7), sharex=True)
    scale = np.abs(im).max(axis=1, keepdims=True)
    shown = top.imshow(im / np.where(scale > 0, scale, 1), aspect="auto", cmap="RdBu", vmin=-1, vmax=1)
    top.set(title=f"influence map, {site} (each example scaled to its largest)", ylabel="example, by class")
    figure.colorbar(shown, ax=top)
    shown = bottom.imshow(flipped, aspect="auto", cmap="Greys", vmin=0, vmax=1, interpolation="nearest")
    bottom.set(title="units flipped by the search", xlabel="unit", ylabel="example, by class")
    figure.colorbar(shown, ax=bottom)
    return figure


def masks_by_epoch(records: Sequence[dict[str, Any]], site: str) -> Any:
    """The mean adversarial mask of a site over test examples at each evaluation (Figure 3b); dark: dropped often."""
    plt = _pyplot()
    rows = np.array([r["valid_mean_mask"][site] for r in records])
    figure, axis = plt.subplots(figsize=(10, 4))
    first, last = records[0]["epoch"], records[-1]["epoch"]
    half = (last - first) / (2 * len(rows) - 2) if len(rows) > 1 else first / 2  # so a row's middle is at its epoch
    extent = (-0.5, rows.shape[1] - 0.5, last + half, first - half)
    shown = axis.imshow(rows, aspect="auto", cmap="viridis", vmax=1, extent=extent, interpolation="nearest")
    axis.set(title=f"mean adversarial mask, {site}", xlabel="unit", ylabel="epoch")
    figure.colorbar(shown, ax=axis, label="share of examples that keep the unit")
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

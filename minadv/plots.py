r"""The pictures of a run: learning curves, influence maps, mean adversarial masks. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minadv.adversary import Trace
from minadv.backend import Array, to_host
from minadv.base.files import temporary_name


def curves(records: Sequence[dict[str, Any]]) -> Any:
    """Training and validation loss, the regularizer, and the validation error, by epoch."""
    plt = _pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6))
    epochs = [r["epoch"] for r in records]
    left.plot(epochs, [r["train_loss"] for r in records], ".-", label="training NLL")
    left.plot(epochs, [r["valid_loss"] for r in records], ".-", label="validation NLL")
    if any(r["regularizer"] for r in records):
        left.plot(epochs, [r["regularizer"] for r in records], ".-", label="regularizer")
    left.set(xlabel="epoch", yscale="log")
    left.legend()
    right.plot(epochs, [r["valid_error"] for r in records], ".-", color="tab:red")
    right.set(xlabel="epoch", ylabel="validation error %")
    for axis in (left, right):
        axis.grid(alpha=0.3)
    return figure


def by_site(name: str, sites: Iterable[str]) -> dict[str, str]:
    """The file of each site's figure; where there is one site only, it has the name to itself."""
    every = list(sites)
    return {site: f"{name}.png" if len(every) == 1 else f"{name}-{site}.png" for site in every}


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
    half = (last - first) / (2 * len(rows) - 2) if len(rows) > 1 else first / 2  # a row's middle is its epoch
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

r"""The verdict of a comparison: what its numbers say, in sentences that follow from them."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.parts import reporting
from experiments.parts.compared.questions import QUESTIONS, named, named_pair, said
from experiments.parts.compared.rows import Data, Result, reported, task_of, tests


def verdict(data: Data) -> str:
    """What the numbers say, in words that follow from them."""
    rows, task = reported(data), task_of(data)
    means = {row: float(np.mean(list(tests(row, by_seed).values()))) for row, by_seed in rows.items()}
    ranked = sorted(means, key=lambda row: means[row])
    lines = [f"From low to high: {', '.join(f'{row} {means[row]:.2f}' for row in ranked)}."]
    for question, pairs in QUESTIONS:
        answers = [answer for pair in pairs if (answer := said(data, *named_pair(pair, task))) is not None]
        lines += [f"{question} {'; '.join(answers)}."] if answers else []
    for name, errors in data["facts"].get("baselines", {}).items():
        lines.append(f"Without a network, on the same texts: {name} {reporting.spread(errors)}.")
    lines += [converged(data), *unchanged(data), edges(data), *redrawn(data)]
    return "\n".join(f"- {line}" for line in lines)


def converged(data: Data) -> str:
    """Whether the mean validation loss of none had stopped improving before the last fifth.

    If it had not: how much it fell in that fifth, and what more training does.
    """
    curves = [r["valid_losses"] for r in reported(data)["none"].values()]
    mean = np.mean(curves, axis=0)
    cut = len(mean) - max(1, len(mean) // 5)
    before, last = float(mean[:cut].min()), float(mean[cut:].min())
    stopped = last >= before
    verb = "had stopped" if stopped else "had not stopped"
    least = data["facts"]["task"]["epochs"] * (int(mean.argmin()) + 1) / len(mean)
    word = "Converged" if stopped else "Not converged"
    curve = f"the mean validation loss of none {verb} improving before the last fifth of training"
    by = "" if stopped else f", {100 * (1 - last / before):.2g} % below the least before that"
    longer = None if stopped else said(data, named("none, N x longer", task_of(data)), "none")
    return f"{word}: {curve} (its least: epoch {least:g}{by})." + (
        f" What more training does: {longer}." if longer else ""
    )


def unchanged(data: Data) -> list[str]:
    """For how many seeds a longer training reports the network of the short one: its best evaluation is the same.

    Both begin alike where the learning rate is constant until late, and the first least validation result is taken.
    """
    rows, lines = reported(data), []
    for row, by_seed in rows.items():
        method = row.partition(",")[0]
        if row == method or "longer" not in row:
            continue
        same = [seed for seed, r in by_seed.items() if (one := rows[method].get(seed)) and _network(one) == _network(r)]
        if same:
            share = f"For {len(same)} of {len(by_seed)} seeds"
            lines.append(f"{share} {row} reports the very network of {method}: no later evaluation was better.")
    return lines


def _network(result: Result) -> list[Any]:
    """What tells one network from another in the results."""
    return [result.get(name) for name in ("best_epoch", "valid", "valid_loss", "test")]


def edges(data: Data) -> str:
    """Which methods were given the largest weight or strength that was tried, and might have wanted more."""
    tried: dict[str, set[tuple[float, float]]] = {}
    for r in data["results"]:
        if r["part"] == "settings":
            tried.setdefault(r["method"], set()).add((r["strength"], r["weight"]))
    ends = []
    for method, settings in tried.items():
        one = next(iter(reported(data)[method].values()))
        most = [max(values) for values in zip(*settings, strict=True)]
        if one["weight"] == most[1] > 0 or one["strength"] == most[0]:
            ends.append(method)
    listed = ", ".join(ends) or "no method"
    strongest = f"The setting chosen is the strongest that was tried, in weight or in strength, for {listed}."
    return f"{strongest}{_rate_at_the_edge(data)}"


def _rate_at_the_edge(data: Data) -> str:
    """A sentence about a learning rate that is the least or the largest of those tried: another might be better."""
    rates = task_of(data).lrs
    lr = next(r["lr"] for r in data["results"] if r["part"] == "final")
    if lr not in (min(rates), max(rates)) or len(rates) < 2:
        return ""
    which = "largest" if lr == max(rates) else "least"
    return f" The learning rate chosen, {lr:g}, is the {which} of the {len(rates)} that were tried."


def redrawn(data: Data) -> list[str]:
    """Where test examples are drawn anew for each seed: that they are not new to what chose the settings."""
    if task_of(data).size.get("images") != "digits":
        return []
    seen = "most test images of a reported seed were training or validation images of the seeds that chose the settings"
    return [f"All 1,797 images are drawn anew for each seed, so that {seen}."]

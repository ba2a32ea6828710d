r"""The tables and the verdict of `experiments.search_quality`, made from its numbers alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.parts import reporting

MAIN = ("H = 24", "H = 24, barely trained", "H = 64")
WANTED = {"Relax": (0.62, 0.76, 0.78), "Relax, borrow 1": (0.70, 0.80, 0.81), "Relax, longest": (0.90, 0.94, 0.90)}
"""What a search was hoped to reach, of the exact maximum, on the networks of `MAIN`; set before the run."""
WANTED_TRAINING = {"Memory, fresh=0": 0.80, "Memory": 0.85}
HOPED = 0.90  # of Memory, beyond what was wanted
SHOWN = ("greedy K=2", "reselect K=2", "reselect K=2, swap", "Relax", "Relax, reselect 1", "Relax, longest")
"""The columns of the table by setting."""

Data = dict[str, Any]


def groups(data: Data) -> list[str]:
    """The kinds of networks of part one, in the order of the run."""
    return list(dict.fromkeys(r["group"] for r in data["one_shot"]))


def one_shot_shares(data: Data, search: str, **where: Any) -> list[float]:
    """The share of one search of part one, averaged over settings, one number a seed."""
    n = data["searches"].index(search)
    chosen = [r for r in data["one_shot"] if all(r[key] == value for key, value in where.items())]
    seeds = sorted({r["seed"] for r in chosen})
    return [float(np.mean([r["shares"][n] for r in chosen if r["seed"] == s])) for s in seeds]


def training_runs(data: Data, search: str, **where: Any) -> list[Data]:
    """The runs of part two of one search."""
    runs = [r for r in data["along_training"] if r["search"] == search]
    return [r for r in runs if all(r[key] == value for key, value in where.items())]


def training_shares(data: Data, search: str, **where: Any) -> list[float]:
    """The share of one search of part two, averaged over networks, one number a seed."""
    runs = training_runs(data, search, **where)
    return [float(np.mean([r["share"] for r in runs if r["seed"] == s])) for s in sorted({r["seed"] for r in runs})]


def training_passes(data: Data, search: str) -> tuple[float, float]:
    """Forward and backward passes a visit, the mean of all runs."""
    runs = training_runs(data, search)
    return float(np.mean([r["forward"] for r in runs])), float(np.mean([r["backward"] for r in runs]))


def searches_along_training(data: Data) -> list[str]:
    return list(dict.fromkeys(r["search"] for r in data["along_training"]))


def one_shot_table(data: Data, shown: Sequence[str]) -> str:
    """One row a search, one column a kind of network; the passes are those of the first kind."""
    rows = []
    for search in data["searches"]:
        forward, backward = data["passes"][shown[0]][search]
        cells = [reporting.spread(one_shot_shares(data, search, group=group)) for group in shown]
        rows.append([search, f"{forward} + {backward}", *cells])
    tested = [_mean(r["test"] for r in data["one_shot"] if r["group"] == group) for group in shown]
    cells = [f"perplexity {test:.0f}" if test > 1 else f"{test:.3f}" for test in tested]
    rows.append(["(test accuracy)", "", *cells])
    return reporting.markdown(["search", "passes (forward + backward)", *shown], rows)


def settings_table(data: Data) -> str:
    """One row a setting of part one, for some searches."""
    keys = ("group", "classes", "scale", "distance")
    rows = []
    for setting in dict.fromkeys(tuple(r[key] for key in keys) for r in data["one_shot"]):
        where = dict(zip(keys, setting, strict=True))
        shares = [reporting.spread(one_shot_shares(data, search, **where)) for search in SHOWN]
        rows.append(["words" if value is None else str(value) for value in setting] + shares)
    return reporting.markdown(["networks", "classes", "scale", "D", *SHOWN], rows)


def training_table(data: Data) -> str:
    """One row a search, one column a network, and the mean of all."""
    networks = list(dict.fromkeys(r["network"] for r in data["along_training"]))
    rows = []
    for search in searches_along_training(data):
        cells = [reporting.spread(training_shares(data, search, network=network)) for network in networks]
        runs = training_runs(data, search)
        error = f"{_mean(r['error'] for r in runs):.1f}"
        rows.append([search, _spent(data, search), *cells, reporting.spread(training_shares(data, search)), error])
    return reporting.markdown(
        ["search", "passes a visit (forward + backward)", *networks, "all", "test error, %"], rows
    )


def verdict(data: Data) -> str:
    """Which targets are met, how Relax compares where nothing was aimed at, and what remembering is worth."""
    known = [group for group in MAIN if group in groups(data)]
    lines = [_target(data, search, dict(zip(MAIN, wanted, strict=True)), known) for search, wanted in WANTED.items()]
    lines += [_against(data, group) for group in groups(data)]
    for search, wanted in WANTED_TRAINING.items():
        share = _mean(training_shares(data, search))
        said = f"met, {share:.3f}" if share >= wanted else f"missed by {wanted - share:.3f}, {share:.3f}"
        if search == "Memory" and share >= wanted:
            said += f" ({HOPED:.2f} was hoped for: {'reached' if share >= HOPED else 'not reached'})"
        lines.append(
            f"- Along training, {search} ({_spent(data, search)} passes a visit): wanted {wanted:.2f}, {said}."
        )
    if lines_of := [s for s in ("greedy K=2, unscored", "greedy K=2", "Relax", "Relax, longest") if _has(data, s)]:
        ours = _mean(training_shares(data, "Memory"))
        others = ", ".join(
            f"{ours / _mean(training_shares(data, s)):.2f} times {s} ({_spent(data, s)} passes)" for s in lines_of
        )
        lines.append(f"- Memory ({_spent(data, 'Memory')} passes a visit) finds {others}.")
    return "\n".join(lines)


def _target(data: Data, search: str, wanted: dict[str, float], known: Sequence[str]) -> str:
    """Whether a search of part one reaches what was wanted, kind by kind."""
    said = []
    for group in known:
        share = _mean(one_shot_shares(data, search, group=group))
        short = wanted[group] - share
        judged = "met" if short <= 0 else f"missed by {short:.3f}"
        said.append(f"{group}: {share:.3f}, wanted {wanted[group]:.2f}, {judged}")
    return f"- One attack, {search}: {'; '.join(said)}."


def _against(data: Data, group: str) -> str:
    """Relax beside greedy and reselect on one kind of networks."""
    share = {search: one_shot_shares(data, search, group=group) for search in data["searches"]}
    passes = data["passes"][group]

    def told(search: str) -> str:
        forward, backward = passes[search]
        return f"{search} {_mean(share[search]):.2f} ({forward} + {backward})"

    pairs = (("Relax", "reselect K=2"), ("Relax, reselect 1", "reselect K=3"), ("Relax, longest", "reselect K=2, swap"))
    said = [f"{told(a)} {_word(share[a], share[b])} {told(b)}" for a, b in pairs]
    return f"- {group}: {told('greedy K=2')}; {'; '.join(said)}."


def _word(a: Sequence[float], b: Sequence[float]) -> str:
    """Above or below where all seeds agree, each with its own networks, and the mean differs by more than 0.005."""
    differences = np.subtract(a, b)
    if abs(differences.mean()) <= 0.005 or len(set(np.sign(differences))) > 1:
        return "cannot be told from"
    return "is above" if differences.mean() > 0 else "is below"


def _spent(data: Data, search: str) -> str:
    forward, backward = training_passes(data, search)
    return f"{forward:.4g} + {backward:.4g}"


def _has(data: Data, search: str) -> bool:
    return search in searches_along_training(data)


def _mean(values: Any) -> float:
    return float(np.mean(list(values)))


def tables(data: Data) -> str:
    """The tables with their verdict."""
    main = [group for group in groups(data) if group in MAIN]
    others = [group for group in groups(data) if group not in MAIN]
    parts = ["## One attack", ONE_SHOT.format(**data["facts"]), one_shot_table(data, main)]
    if others:
        parts += [OTHERS, one_shot_table(data, others)]
    parts += ["## Along training", TRAINING.format(**data["facts"]), training_table(data)]
    parts += ["## Verdict", verdict(data), "## One attack, by setting", settings_table(data)]
    return "\n\n".join(parts) + "\n"


def page(data: Data) -> str:
    """The whole page of results, made from the numbers alone."""
    facts = data["facts"]
    about = {**facts, "minutes": facts["core_seconds"] / 60, "at": reporting.at_commit(facts)}
    return HEADING.format(**about) + tables(data)


HEADING = """# The search for the adversarial mask

How much of the largest distance within the budget each search finds, for the passes that it spends beside the base
pass. `{command}`: {minutes:.0f} minutes of one core in all ({cpu}, NumPy {numpy}, {at}). ± is the standard deviation
over {seeds} trained networks of a kind; the verdict calls a search above another only where all {seeds} agree.

"""
ONE_SHOT = """Share of the exact maximum of D, by enumeration, in one attack on a trained LSTM: mean over settings (2, 4
and 10 classes of scikit-learn's digits, row by row; scales none and kept; js and kl), over {examples} test examples,
and for a search that draws its start over {repeats} starts. Budget of 3 flips. Relax draws nothing."""
OTHERS = """The same for other networks (4 and 10 classes; 10 for H = 128). Text is a language model of CPython's
documentation with 1/T as the weight of each of the 20 steps, attacked on 12 pieces of its test text. Where enumeration
is out of reach (H = 128; text with H = 64), the share is of the best known distance: that of hill climbing by exchanges
of one unit until none helps, from four starts (the longest Relax, reselect K=3 with swaps, two random masks), or of any
search of the table. Two layers have a budget each. The passes are those of the first column; the swaps of reselect grow
with the flips."""
TRAINING = """Networks of 24 units, trained with adversarial dropout for {epochs} epochs on 400 digits, row by row, each
with the search of its row: the distance that a step found, over the exact maximum at the weights of that very step;
mean over 12 steps of the second half of training and 10 examples of the batch. Passes are counted, not assumed."""

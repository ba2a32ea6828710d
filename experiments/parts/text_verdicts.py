r"""Table 2 in words and numbers: the rows beside the paper's, what they say, and the figure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

from experiments.parts import reporting
from experiments.parts.text_jobs import Preset
from experiments.parts.text_methods import AVAILABLE, SUMS

PAPER = {  # Table 2, test error %, IMDB and Elec
    "none": (7.164, 6.155),
    "AT": (6.296, 5.652),
    "VAT": (5.914, 5.610),
    "VD": (7.042, 6.114),
    "EL": (6.358, 5.734),
    "FD": (6.349, 5.785),
    "AdD last": (6.471, 5.784),
    "AdD K=1": (6.155, 5.622),
    "AdD K=2": (6.005, 5.603),
    "AdD K=1 + VAT": (5.715, 5.638),
    "AdD K=2 + VAT": (5.687, 5.621),
}
COLUMN = {"imdb": 0, "elec": 1}
FORMS = {
    "minadv": "from one random flip, with the same dropout on the embeddings in all its passes",
    "paper": "from the base mask, with another dropout on the embeddings in its base pass, as the paper does",
}
PAIRS = (
    *(("AdD K=1", "FD"), ("AdD K=1", "AdD last"), ("AdD K=2", "AdD K=1"), ("AdD K=1", "VAT")),
    *(("AdD K=1 + VAT", "VAT"), ("AdD K=2 + VAT", "AdD K=1 + VAT"), ("AdD reselect", "AdD K=2")),
)
"""Rows to set beside each other; the verdict quotes the paper's own difference where there is one."""


def errors(results: Sequence[dict[str, Any]], method: str) -> list[float]:
    """Test errors by seed."""
    return [r["test"]["error"] for r in results if r["method"] == method]


def paper(preset: Preset, method: str) -> float | None:
    """The paper's test error of a row; None unless the texts are the paper's."""
    known = PAPER.get(method)
    return known[COLUMN[preset.corpus]] if known is not None and preset.corpus in COLUMN else None


def table(preset: Preset, results: Sequence[dict[str, Any]], bayes: dict[str, Any]) -> str:
    """A row for each method that there are results of, and one for naive Bayes."""
    listed = [m for m in AVAILABLE if errors(results, m)]
    head = ["method", "test error %", "validation error %", "seeds", "setting", "P against none (first seed)"]
    rows = []
    for method in listed:
        mine = [r for r in results if r["method"] == method]
        chance = None if method == "none" else mcnemar(results, bayes, method, "none")
        row = [method, reporting.spread(errors(results, method)), reporting.spread(r["valid"]["error"] for r in mine)]
        rows.append([*row, str(len(mine)), told(method, mine[0]["setting"]), "" if chance is None else f"{chance:.2g}"])
    how = f"{'presence' if bayes['binary'] else 'counts'} of words, α = {bayes['alpha']:g}"
    chance = mcnemar(results, bayes, "naive Bayes", "none")
    last = ["naive Bayes", f"{bayes['test']['error']:.2f}", f"{bayes['valid']['error']:.2f}", "", how]
    rows.append([*last, "" if chance is None else f"{chance:.2g}"])
    if preset.corpus in COLUMN:
        head.append("paper")
        names = [*listed, ""]
        for row, name in zip(rows, names, strict=True):
            known = paper(preset, name)
            row.append("" if known is None else f"{known:.3f}")
    return reporting.markdown(head, rows)


def told(method: str, setting: dict[str, float]) -> str:
    """A setting in words."""
    if method == "none":
        return ""
    parts = []
    if method in ("VD", "EL", "FD", "RDrop"):
        parts.append(f"p = {setting['p']:g}")
    if method.startswith("AdD"):
        parts.append(f"δ = {setting['delta']:g}")
    weight = f"weight {setting['weight']:g}" if setting["weight"] != 1 else ""
    if weight and method in SUMS:
        parts[-1] += f" with {weight}"  # AdD's weight; that of VAT is 1
        weight = ""
    if "AT" in method.split(" + ")[-1]:
        parts.append(f"norm {setting['norm']:g}")
    return ", ".join([*parts, weight] if weight else parts)


def mcnemar(results: Sequence[dict[str, Any]], bayes: dict[str, Any], one: str, other: str) -> float | None:
    """The exact McNemar test of two rows' first seeds, on the test texts that only one of them gets wrong."""
    sets = []
    for name in (one, other):
        found = [r for r in results if r["method"] == name]
        if name != "naive Bayes" and not found:
            return None
        sets.append(set((bayes if name == "naive Bayes" else found[0])["wrong"]))
    a, b = len(sets[0] - sets[1]), len(sets[1] - sets[0])
    return 1.0 if a + b == 0 else float(stats.binomtest(a, a + b).pvalue)


def compared(results: Sequence[dict[str, Any]], bayes: dict[str, Any], one: str, other: str) -> str:
    """How much lower or higher one row is than another, and what the test makes of it."""
    mine, theirs = errors(results, one), errors(results, other)
    gap = float(np.mean(mine) - np.mean(theirs))
    found = "no difference" if gap == 0 else f"{abs(gap):.2f} points {'lower' if gap < 0 else 'higher'}"
    chance = mcnemar(results, bayes, one, other)
    if chance is None:
        return f"{one} against {other}: {found}"
    first = f"first seed {mine[0] - theirs[0]:+.2f}, " if max(len(mine), len(theirs)) > 1 else ""
    clear = ", not to be told from chance" * (chance > 0.05)
    return f"{one} against {other}: {found} ({first}McNemar P = {chance:.2g}{clear})"


def verdict(preset: Preset, data: dict[str, Any]) -> str:
    """What came out: the order, the baseline against naive Bayes, each method against none, and the paper's claims."""
    results, bayes = data["results"], data["bayes"]
    listed = [m for m in AVAILABLE if errors(results, m)]
    means = {m: float(np.mean(errors(results, m))) for m in listed}
    order = sorted(listed, key=lambda m: means[m])
    lines = ["- From low test error to high: " + ", ".join(f"{m} {means[m]:.2f}" for m in order) + "."]
    if "none" in means:
        beats = means["none"] < bayes["test"]["error"]
        said = "beats" if beats else "does not beat"
        lines.append(f"- The LSTM without a regularizer {said} naive Bayes on the same words: ")
        lines[-1] += f"{means['none']:.2f} % against {bayes['test']['error']:.2f} %. {where_it_is(results)}"
        better = [m for m in listed if means[m] < means["none"]]
        rest = [m for m in listed if m not in better and m != "none"]
        lines.append(
            f"- Lower than none: {', '.join(better) or 'no method'}; not lower: {', '.join(rest) or 'no method'}."
        )
    lines.append(f"- {how_far(data)}")
    pairs = [(one, other) for one, other in PAIRS if one in means and other in means]
    lines += [f"- {compared(results, bayes, one, other)}{claimed(preset, one, other)}." for one, other in pairs]
    known = [m for m in listed if paper(preset, m) is not None]
    if len(known) > 2:
        rho = float(stats.spearmanr([means[m] for m in known], [paper(preset, m) for m in known]).statistic)
        lines.append(f"- Rank correlation with the paper's column over {len(known)} rows: {rho:+.2f}.")
    zeros = {m: sum(r["zero_maps"] for r in results if r["method"] == m) for m in listed if m.startswith("AdD")}
    if zeros:
        found = ", ".join(f"{n} in the runs of {m}" for m, n in zeros.items() if n)
        lines.append(f"- Batches with an influence map that was zero in every text: {found or 'none in any row'}.")
    seeds = ", ".join(map(str, sorted({len(errors(results, m)) for m in listed})))
    lines.append(
        "- P values are those of the test texts, for the first seed alone: they say nothing of what another seed or "
        f"setting would give, and are not corrected for their number. Seeds a row: {seeds}."
    )
    return "\n".join(lines)


def claimed(preset: Preset, one: str, other: str) -> str:
    """The paper's difference between the same two rows, in words."""
    mine, theirs = paper(preset, one), paper(preset, other)
    return "" if mine is None or theirs is None else f"; the paper: {mine - theirs:+.2f}"


def how_far(data: dict[str, Any]) -> str:
    """In how many runs training had not converged, in words: there a table also tells how fast methods learn."""
    results = data["results"]
    last = sum(min(r["curve"], key=lambda point: point[3])[0] == r["curve"][-1][0] for r in results)
    said = f"In {last} of {len(results)} runs the best evaluation was the last"
    if 2 * last > len(results):
        said += ": most were still learning, so that the order is one of how fast they learn as much as of how well"
    tried = {t["base"]["lr"] for t in data["tried"]}
    if len(tried) > 1 and data["base"]["lr"] in (min(tried), max(tried)):
        end = "least" if data["base"]["lr"] == min(tried) else "largest"
        said += f". The learning rate is the {end} of those that were tried, for the network without a regularizer"
    return f"{said}."


def where_it_is(results: Sequence[dict[str, Any]]) -> str:
    """Whether the network without a regularizer still learns or overfits: its last losses beside that of a guess."""
    none = next(r for r in results if r["method"] == "none")
    _, train, _, _, valid = none["curve"][-1]
    guess = math.log(none["classes"])
    if train > guess / 2:
        reading = "it is still learning, and more steps may help"
    elif valid > guess / 2:
        reading = "it fits its labelled texts and not others, which more of them or a regularizer may help"
    else:
        reading = "both are low, so that neither short training nor overfitting shows"
    return (
        f"After {none['epochs']:.1f} epochs its training loss is {train:.2f} and its validation loss {valid:.2f}, "
        f"where a guess among {none['classes']} classes has {guess:.2f}: {reading}."
    )


def heading(preset: Preset, about: dict[str, Any], data: dict[str, Any]) -> str:
    """The paragraph that says what the numbers are and how they were made."""
    corpus, lm = data["lm"]["facts"], data["lm"]
    read = "all words" if preset.max_tokens is None else f"the last {preset.max_tokens} words"
    search = (
        f"three settings a method, of which that of least validation loss after {preset.compared * preset.eval_every} "
        "steps (first seed) goes on to the end"
        if preset.compared
        else "the paper's settings"
    )
    sums, taken, evaluations = " and ".join(SUMS), bases(data), len(data["results"][0]["curve"])
    runs = {"lm": lm} | {r["run"]: r for r in (*data["tried"], *data["search"], *data["results"])}
    hours = {what: seconds / 3600 for what, seconds in data["seconds"].items()}
    return f"""# Table 2, {preset.name}

{preset.about}: {corpus["train"]:,} training, {corpus["valid"]:,} validation, {corpus["test"]:,} test and
{corpus["unlabelled"]:,} unlabelled texts, a vocabulary of {corpus["words"]:,} words, {read} of a text. Embeddings of
{preset.embed} with dropout {preset.dropout:g} (the paper's: 0.5), an LSTM of {preset.hidden} units with a forget bias
of {preset.forget_bias:g} at first (the paper's: 0), a ReLU layer of 30. Language model: {preset.lm_steps:,} steps of
{preset.lm_batch} x {preset.lm_window} words on training and unlabelled texts, held-out perplexity
{lm["valid"]["perplexity"]:.1f}; every run begins with it. Classifier: {preset.steps:,} steps of {preset.batch} labelled
and, where a method can use them, {preset.batch} unlabelled texts, Adam at {data["base"]["lr"]:g}, averaged weights,
those of the best of {evaluations} validation errors. Taken over from the language model: {taken}.
Settings: {search}; {sums} take those of their parts. AdD searches
{FORMS[preset.variant]}. Texts: fingerprint {corpus["fingerprint"][:12]}.
`{about["command"]}`, written at {reporting.at_commit(about)}; the runs were made on:
{reporting.made_by(runs.values())}.
Training took {hours["lm"]:.2f} hours of a core for the language model and {hours["runs"]:.2f} for the
{data["n_runs"]} other runs by their logs, the last part of it on {about["cores"]} cores ({about["cpu"]}),
NumPy {about["numpy"]}.

"""


def bases(data: dict[str, Any]) -> str:
    """What all rows took over from the language model, and what was tried."""
    names = {"all": "embeddings and LSTM", "embeddings": "the embeddings alone"}
    taken = names[data["base"]["take"]]
    if not data["tried"]:
        return f"{taken}, as the paper does"
    tried = [f"{names[t['base']['take']]} at {t['base']['lr']:g}: {t['valid']['loss']:.3f}" for t in data["tried"]]
    return f"{taken}, of least validation loss without a regularizer ({'; '.join(tried)})"


def figure(preset: Preset, results: Sequence[dict[str, Any]], bayes: dict[str, Any]) -> Any:
    """Test errors of every seed beside the paper's, and mean validation curves."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    listed = [m for m in AVAILABLE if errors(results, m)]
    drawn, (left, right) = plt.subplots(1, 2, figsize=(13, 5))
    for n, method in enumerate(listed):
        color = f"C{n % 10}"
        left.plot([n] * len(errors(results, method)), errors(results, method), "o", color=color)
        curves = [r["curve"] for r in results if r["method"] == method]
        steps = [point[0] for point in curves[0]]
        style = "-" if n < 10 else "--"
        right.plot(steps, np.mean([[p[3] for p in c] for c in curves], axis=0), style, label=method, color=color)
    left.axhline(bayes["test"]["error"], color="tab:gray", linestyle=":", label="naive Bayes")
    known = [(n, paper(preset, m)) for n, m in enumerate(listed) if paper(preset, m) is not None]
    if known:
        left.plot([n for n, _ in known], [p for _, p in known], "x", color="black", label="paper (its sizes)")
    left.set_xticks(range(len(listed)), listed, rotation=40, ha="right")
    left.set(title=f"{preset.name}: test error", ylabel="%")
    right.set(title="validation error", xlabel="step", ylabel="%")
    for axis in (left, right):
        axis.legend(fontsize=8)
        axis.grid(alpha=0.3)
    drawn.tight_layout()
    return drawn

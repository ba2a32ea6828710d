r"""Methods against each other on texts: the machinery of `table2`.

One language model is pre-trained, and every run begins with it. What is common to all rows, the learning rate and what
is taken over from the language model, is chosen by the validation loss of the network without a regularizer, in runs of
full length. Then each method has a run in each of the same number of settings (the first seed); after some steps the
best of them on validation data goes on to the end, and its setting to all other seeds. The best is that of least
validation loss: the errors of a few hundred texts tie, or differ by a text. A sum of two regularizers takes the
settings that its parts were given. All of this is recorded. Runs are ordinary runs of minadv in folders of their own,
so that a comparison that is killed goes on where it stopped when the same command is given again, and ``minadv eval``,
``predict`` and ``show`` work on every one of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from experiments.parts import reporting
from experiments.parts.text_jobs import COMPARED, RESULT, Base, Job, Preset, found_result, look, work
from experiments.parts.text_methods import AVAILABLE, SUMS, Setting, settings
from minadv.backend import DeviceName

BASE_SEED = 1000


def choose_base(preset: Preset, *, workers: int, root: Path, data_dir: str | None, device: DeviceName) -> Base:
    """The base of all rows, chosen by runs of full length without a regularizer."""
    jobs = [
        Job(preset, "none", BASE_SEED, Setting(), Base(lr, take), "base", root, data_dir, device)
        for take in preset.takes
        for lr in preset.lrs
    ]
    if len(jobs) == 1:
        return jobs[0].base
    return best_base(preset, _all(jobs, workers, f"{preset.name}: base"))


def best_base(preset: Preset, tried: Sequence[dict[str, Any]]) -> Base:
    """The base of least validation loss among those that were tried."""
    if not tried:
        return Base(preset.lrs[0], preset.takes[0])
    return Base(**min(tried, key=_score)["base"])


def search(
    preset: Preset,
    base: Base,
    *,
    methods: Sequence[str],
    workers: int,
    root: Path,
    data_dir: str | None,
    device: DeviceName,
) -> list[dict[str, Any]]:
    """Begin a run of each method in each of its settings, with the first seed; no runs if the preset has no search."""
    wanted = [m for m in AVAILABLE if m in methods or any(m in SUMS[s] for s in methods if s in SUMS)]
    jobs = [
        Job(preset, method, 0, setting, base, "final", root, data_dir, device)
        for method in wanted
        for setting in settings(method)
        if preset.compared and method not in SUMS and len(settings(method)) > 1
    ]
    return _all(jobs, workers, f"{preset.name}: settings", look, COMPARED) if jobs else []


def final(
    preset: Preset,
    base: Base,
    searched: Sequence[dict[str, Any]],
    *,
    methods: Sequence[str],
    seeds: int,
    workers: int,
    root: Path,
    data_dir: str | None,
    device: DeviceName,
) -> list[dict[str, Any]]:
    """Every method in its best setting, for all seeds, at full length."""
    jobs = [
        Job(preset, method, seed, best_setting(searched, method), base, "final", root, data_dir, device)
        for seed in range(seeds)
        for method in methods
    ]
    return _all(jobs, workers, f"{preset.name}: rows")


def _all(
    jobs: Sequence[Job],
    workers: int,
    title: str,
    do: Callable[[Job], dict[str, Any]] = work,
    file: str = RESULT,
) -> list[dict[str, Any]]:
    """Do the jobs, the long ones first, so that no worker is left with one at the end; results in the jobs' order."""
    there = [job for job in jobs if found_result(job.folder / file, job.preset) is not None]
    if there:
        folder = there[0].root / there[0].preset.name
        said = f"{len(there)} of {len(jobs)} runs are in {folder} already and are used as they are"
        print(f"{said}; delete the folder to train anew", file=sys.stderr)
    order = sorted(range(len(jobs)), key=lambda n: (jobs[n].seed, -AVAILABLE[jobs[n].method]))
    done = reporting.run_all(do, [jobs[n] for n in order], workers=workers, title=title)
    return [done[order.index(n)] for n in range(len(jobs))]


def best_setting(searched: Sequence[dict[str, Any]], method: str) -> Setting:
    """A method's setting of least validation loss; of a sum of two methods, the settings of both."""
    if method in SUMS:
        add, vat = (best_setting(searched, part) for part in SUMS[method])
        return replace(add, norm=vat.norm)
    found = [r for r in searched if r["method"] == method]
    return Setting(**min(found, key=_score)["setting"]) if found else settings(method)[0]


def _score(result: dict[str, Any]) -> float:
    """The validation loss, which tells settings apart where the errors of a few hundred texts tie."""
    return float(result["valid"]["loss"])


def everything(preset: Preset, root: Path) -> dict[str, Any]:
    """All finished runs, whichever command made them: those that chose the base and the settings, and the rows.

    They stand in the order of the table. Runs on another base, or in another setting, than was chosen are left out.
    ``seconds`` is how long a core would have trained for them, and for the language model.
    """
    where = (("base", RESULT), ("final", COMPARED), ("final", RESULT))
    tried, searched, found = (_results(preset, root / preset.name / part, file) for part, file in where)
    tried.sort(key=lambda r: (preset.takes.index(r["base"]["take"]), preset.lrs.index(r["base"]["lr"])))
    base = best_base(preset, tried)
    searched = [r for r in searched if Base(**r["base"]) == base and Setting(**r["setting"]) in settings(r["method"])]
    searched.sort(key=lambda r: (_place(r), settings(r["method"]).index(Setting(**r["setting"]))))
    chosen = [
        r for r in found if Base(**r["base"]) == base and Setting(**r["setting"]) == best_setting(searched, r["method"])
    ]
    rows = sorted(chosen, key=lambda r: (_place(r), r["seed"]))
    runs = {root / preset.name / r["run"] for r in (*tried, *searched, *rows)}
    took = reporting.trained(root / preset.name / "lm"), sum(map(reporting.trained, sorted(runs)))
    times = {"seconds": {"lm": took[0], "runs": took[1]}, "n_runs": len(runs)}
    return {"base": asdict(base), "tried": tried, "search": searched, "results": rows, **times}


def _place(result: dict[str, Any]) -> int:
    return list(AVAILABLE).index(result["method"])


def _results(preset: Preset, folder: Path, file: str) -> list[dict[str, Any]]:
    """The results in a folder of runs, each with a description of its run."""
    return [
        {"run": f"{folder.name}/{path.parent.name}", **result}
        for path in sorted(folder.glob(f"*/{file}"))
        if (result := found_result(path, preset)) is not None
    ]

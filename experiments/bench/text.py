r"""Texts: tokens a second and peak memory of pre-training and of each method, and what padding costs.

``python -m experiments.bench.text`` measures at the sizes of `table2`'s preset ``imdb-small``, on IMDB
(``--data-dir``), or with ``--preset docstrings`` at its sizes and without a download. Every row is measured in a
process of its own, once with that process alone and once with workers on all cores, as ``minadv train`` would choose.
Writes bench_text.json and .md under experiments/results; other rows that are there already stay.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from experiments import table2
from experiments.bench.contenders import memory
from experiments.bench.contenders.processes import call
from experiments.parts import records, reporting, text_jobs
from experiments.parts.text_jobs import Preset
from experiments.parts.text_methods import METHODS, Setting, regularizer
from minadv.base.machine import cores
from minadv.commands.numbers import folder, positive
from minadv.commands.parsing import Parser
from minadv.data.texts.buckets import LIMIT, Buckets, density
from minadv.data.texts.documents import Corpus
from minadv.fast import limit_threads
from minadv.models.pretraining import TextLM
from minadv.models.text import TextClassifier
from minadv.tasks.family import of_model
from minadv.tasks.pretrain.task import PretrainTask
from minadv.tasks.text.corpus import open_data, with_words
from minadv.tasks.text.task import TextTask
from minadv.training.loop import Recipe, advance, start
from minadv.training.parallel.choose import start_workers

PRETRAINING = "pre-training"
PADDING = ("groups", "buckets", "worst", "as they come")


def make_task(preset: Preset, corpus: Corpus, row: str) -> TextTask | PretrainTask:
    """The task of a row, with weights as they are at first: what a step costs does not depend on them."""
    sizes = text_jobs.encoder(preset, corpus)
    if row == PRETRAINING:
        model = with_words(TextLM(**sizes, n_candidates=preset.candidates), corpus.vocabulary)
        return PretrainTask(model, corpus, preset.lm_batch, preset.lm_window)
    classifier = TextClassifier(**sizes, n_classes=len(corpus.classes), truncate=preset.truncate)
    return TextTask(
        with_words(classifier, corpus.vocabulary),
        corpus,
        regularizer(row, Setting(), preset.variant),
        batch_size=preset.batch,
        unlabelled_size=preset.batch,
        max_tokens=preset.max_tokens,
    )


def tokens_of(task: TextTask | PretrainTask, step: int) -> tuple[int, int]:
    """The tokens of a step, without and with padding."""
    if isinstance(task, PretrainTask):
        return task.units_per_step, task.units_per_step
    rows = [(reading.buckets.steps, group) for reading in task.readings for group in reading.buckets.groups(step)]
    return sum(int(s[r].sum()) for s, r in rows), sum(int(s[r].max()) * len(r) for s, r in rows)


def measure(preset: Preset, data_dir: str | None, row: str, workers: int, rounds: int) -> dict[str, Any]:
    """Whole training steps (gradient, clip, update, average) after one that is not counted, and the peak of memory.

    Which labelled texts a step reads depends on the step alone: they are the same for every method.
    """
    corpus = open_data(text_jobs.about_data(preset, data_dir))
    task = make_task(preset, corpus, row)
    recipe = Recipe(rounds + 1, **of_model(task.model).recipe)
    before = memory.resident()
    seconds, tokens = [], []
    with limit_threads(1), start_workers(task, workers) as sharing:
        state, _ = advance(task, recipe, start(task, recipe), sharing)
        memory.reset([os.getpid()])
        for step in range(1, rounds + 1):
            begun = time.perf_counter()
            state, _ = advance(task, recipe, state, sharing)
            seconds.append(time.perf_counter() - begun)
            tokens.append(tokens_of(task, step))
        peak = memory.peak([os.getpid()])
    real, padded = ([int(step[n]) for step in tokens] for n in range(2))
    return {"seconds": seconds, "real": real, "padded": padded, "before": before, "peak": peak, "workers": workers}


def padding(preset: Preset, data_dir: str | None) -> dict[str, Any]:
    """Steps with padding for each real one: in the batches of a run, the worst of them, and in texts as they come."""
    corpus = open_data(text_jobs.about_data(preset, data_dir))
    task = make_task(preset, corpus, "FD")
    assert isinstance(task, TextTask)
    found = {}
    for name, reading in zip(("labelled", "unlabelled"), task.readings, strict=False):
        b = reading.buckets
        batches = [b.groups(step) for step in range(2 * b.per_epoch)]
        groups = [group for batch in batches for group in batch]
        shuffled = Buckets(b.steps, b.size, b.seed, 1, b.name)
        found[name] = {
            "buckets": 1 / density(b.steps, groups),
            "worst": max(1 / density(b.steps, batch) for batch in batches),
            "groups": len(groups) / len(batches),
            "as they come": float(shuffled.costs().mean()),
            "pool": b.pool,
            "shortest": int(b.steps.min()),
            "longest": int(b.steps.max()),
        }
    return found


def speed(found: dict[str, Any]) -> str:
    """Real tokens a second over all steps, and those of the slowest and the fastest step."""
    each = [real / seconds for real, seconds in zip(found["real"], found["seconds"], strict=True)]
    return f"{sum(found['real']) / sum(found['seconds']):,.0f} ({min(each):,.0f} to {max(each):,.0f})"


def text(results: dict[str, Any]) -> str:
    """The tables, and whether padding keeps to its limit."""
    about, rows = results["facts"], []
    for row, found in results["rows"].items():
        alone, shared = found["alone"], found.get("shared")
        cells = [row, f"{np.mean(alone['seconds']):.3f}", speed(alone), f"{alone['peak']:,.0f}"]
        rows.append([*cells, *(("", "") if shared is None else (speed(shared), f"{shared['peak']:,.0f}"))])
    n = max((found["shared"]["workers"] for found in results["rows"].values() if "shared" in found), default=1)
    head = ["row", "seconds a step", "tokens/s", "peak MB", f"tokens/s, {n} processes", f"peak MB, {n} processes"]
    pads = [
        [name, f"{p['shortest']} to {p['longest']}", str(p["pool"]), *(f"{p[key]:.3f}" for key in PADDING)]
        for name, p in results["padding"].items()
    ]
    columns = ["texts", "steps", "batches a pool", "groups a batch", "in two epochs", "in the worst batch", "unsorted"]
    worst = max(p["worst"] for p in results["padding"].values())
    held = "within" if worst <= LIMIT else "beyond"
    preset = about["preset"]
    return f"""# Texts: speed and memory

Whole training steps in float32, the tokens counted without padding; sizes of the preset {preset["name"]}: a vocabulary
of {results["words"]:,} words, embeddings of {preset["embed"]}, an LSTM of {preset["hidden"]} units; pre-training reads
{preset["lm_batch"]} x {preset["lm_window"]} words a step, a classifier {preset["batch"]} labelled and, where its method
can use them, {preset["batch"]} unlabelled texts; the labelled ones are the same in all rows. Tokens a second are those
of all steps of a row together, in brackets those of its slowest and its fastest step. The peak is the sum over
processes, of which the text takes a part.

{reporting.markdown(head, rows)}

## Padding

Steps with padding for each real one; a batch that would cost more than {LIMIT} is run in groups of like length.
"Unsorted" are batches of texts as they come.

{reporting.markdown(columns, pads)}

No batch costs more than {worst:.3f} times its real tokens: {held} the limit of {LIMIT}.

`{about["command"]}`, {about["seconds"]} s on {about["cores"]} cores ({about["cpu"]}), load {about["load"]:.1f} at the
start, NumPy {about["numpy"]}, {", ".join(about["blas"])}.
"""


@reporting.one_line_errors
def main(argv: Sequence[str] | None = None) -> None:
    """The command line."""
    rows = [PRETRAINING, *METHODS]
    parser = Parser(prog="python -m experiments.bench.text", description=__doc__)
    parser.add_argument("--preset", choices=table2.PRESETS, default="imdb-small", help="sizes (default imdb-small)")
    parser.add_argument(
        "--rows", nargs="+", choices=rows, default=rows, metavar="ROW", help="rows to measure (default: all)"
    )
    parser.add_argument("--rounds", type=positive, default=8, help="steps that are timed (default 8)")
    parser.add_argument("--workers", type=positive, default=cores(), help="processes of the second measure")
    parser.add_argument("--data-dir", type=folder, help="folder of the texts (default: MINADV_DATA, then the cache)")
    parser.add_argument("--out", type=Path, default=reporting.RESULTS, help="folder for the results")
    args = parser.parse_args(argv)
    preset, started, load = table2.PRESETS[args.preset], time.time(), os.getloadavg()[0]
    path = args.out / "bench_text.json"
    kept = reporting.read_results(path) if path.exists() else {}
    same = kept.get("facts", {}).get("preset") == json.loads(json.dumps(asdict(preset)))
    results: dict[str, Any] = {"facts": {}, "rows": kept["rows"] if same else {}}
    where = {"preset": preset, "data_dir": args.data_dir}
    module = "experiments.bench.text"
    for row in args.rows:
        print(f"{row} ...", file=sys.stderr, flush=True)
        how = {**where, "row": row, "rounds": args.rounds}
        results["rows"][row] = {"alone": call(f"{module}:measure", threads=1, **how, workers=1)}
        if args.workers > 1:
            results["rows"][row]["shared"] = call(f"{module}:measure", threads=1, **how, workers=args.workers)
    results["rows"] = {row: results["rows"][row] for row in rows if row in results["rows"]}
    results["padding"] = padding(**where)
    results["words"] = len(open_data(text_jobs.about_data(preset, args.data_dir)).vocabulary)
    told = reporting.command("bench.text", argv)
    results["facts"] = reporting.facts(started, command=told, preset=asdict(preset), load=load, rounds=args.rounds)
    said = text(records.plain(results))
    paths = [reporting.write_results(path, results), reporting.write(args.out / "bench_text.md", said)]
    print(said)
    print("written:", *paths, sep="\n  ")


if __name__ == "__main__":
    main()

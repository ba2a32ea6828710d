r"""Table 2: semi-supervised text classification, every method, beginning with one pre-trained language model.

``python -m experiments.table2`` (docstrings: minutes, no download), ``--preset imdb-small`` (real IMDB at a reduced
size, about three hours of two cores), ``imdb`` or ``elec`` (the paper's sizes, for a GPU). Killed, it goes on where it
stopped when the same command is given again; ``--until pretrain``, ``base`` or ``search`` stops after that part. Writes
table2-PRESET.json, .md and .png under experiments/results; while rows are missing, beside the runs instead.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from experiments.parts import records, reporting, text_comparison, text_jobs, text_verdicts
from experiments.parts.naive_bayes import naive_bayes
from experiments.parts.text_jobs import Preset
from experiments.parts.text_methods import AVAILABLE, METHODS
from minadv.commands.numbers import folder, positive
from minadv.commands.parsing import Parser
from minadv.tasks.family import of_kind
from minadv.tasks.text.corpus import fingerprint, open_data
from minadv.training.parallel.ranks import only_first_prints
from minadv.training.runs.folder import RunError


def of_paper(name: str, **more: Any) -> Preset:
    """A preset of the paper's sizes, read from those of ``minadv train NAME``, so that they stand in one place only."""
    theirs, lm = (of_kind(kind).presets[name].values for kind in ("text", "pretrain"))
    same = {f.name: theirs[f.name] for f in fields(Preset) if f.name in theirs}
    same |= {f"lm_{value}": lm[value] for value in ("batch", "window", "lr", "lr_decay")}
    same |= {"corpus": of_kind("text").presets[name].data, "candidates": lm["candidates"]}
    long = {"steps": theirs["train_steps"], "lm_steps": lm["train_steps"], "lrs": (theirs["lr"],)}
    return Preset(**{**same, **long, "name": name, "takes": ("all",), "seeds": 5, **more})


PRESETS = {
    preset.name: preset
    for preset in (
        Preset(
            "docstrings",
            "docstrings",
            vocab_size=8000,
            embed=64,
            hidden=100,
            dropout=0.2,
            max_tokens=100,
            truncate=None,
            forget_bias=3.0,
            lm_steps=2000,
            lm_batch=32,
            lm_window=35,
            lm_lr=3e-3,
            lm_lr_decay=0.9988,
            candidates=500,
            steps=600,
            batch=32,
            lrs=(5e-3, 1e-2),
            lr_decay=0.995,
            takes=("all", "embeddings"),
            compared=2,
            seeds=1,
            evaluations=6,
            about="which of six libraries a docstring is from, most labels hidden",
        ),
        Preset(
            "imdb-small",
            "imdb",
            vocab_size=10_000,
            embed=64,
            hidden=128,
            dropout=0.3,
            max_tokens=200,
            truncate=None,
            forget_bias=2.0,
            lm_steps=6000,
            lm_batch=128,
            lm_window=70,
            lm_lr=3e-3,
            lm_lr_decay=0.9996,
            candidates=1024,
            steps=1200,
            batch=32,
            lrs=(2e-3, 5e-3),
            lr_decay=0.9975,
            takes=("all", "embeddings"),
            compared=2,
            seeds=1,
            evaluations=6,
            about="IMDB at a reduced size",
        ),
        of_paper("imdb", compared=6, evaluations=30, about="IMDB at the paper's sizes"),
        of_paper("elec", compared=4, evaluations=20, about="Elec at the paper's sizes"),
    )
}


@only_first_prints()
@reporting.one_line_errors
def main(argv: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = Parser(prog="python -m experiments.table2", description=__doc__)
    parser.add_argument("--preset", choices=PRESETS, default="docstrings", help="size (default docstrings)")
    parser.add_argument(
        "--methods", nargs="+", choices=AVAILABLE, default=list(METHODS), help="rows (default: all but RDrop)"
    )
    parser.add_argument("--seeds", type=positive, help="networks for each of these methods (default: the preset's)")
    parser.add_argument(
        "--until", choices=("pretrain", "base", "search", "rows"), default="rows", help="the last part to do"
    )
    parser.add_argument("--data-dir", type=folder, help="folder of the texts (default: MINADV_DATA, then the cache)")
    reporting.add_device(parser)
    parser.add_argument("--runs", type=Path, default=Path("runs/table2"), help="folder of the runs (runs/table2)")
    parser.add_argument("--out", type=Path, help="folder for the results (default: see above)")
    args = parser.parse_args(argv)
    preset, started, placed = PRESETS[args.preset], time.time(), reporting.place(args)
    workers = placed["workers"]
    where: dict[str, Any] = {"root": args.runs, "data_dir": args.data_dir, "device": placed["device"]}
    corpus = open_data(text_jobs.about_data(preset, args.data_dir))
    lm = text_jobs.pretrain(preset, **where, workers=None if workers > 1 else 1)
    if (now := fingerprint(corpus)["fingerprint"]) != lm["facts"]["fingerprint"]:
        raise RunError(
            f"{args.runs / preset.name} was made of other texts: they have the fingerprint "
            f"{lm['facts']['fingerprint'][:12]}, expected {now[:12]}, that of the texts as they are now"
        )
    print(f"language model: held-out perplexity {lm['valid']['perplexity']:.1f}", file=sys.stderr)
    if args.until == "pretrain":
        return
    base = text_comparison.choose_base(preset, workers=workers, **where)
    print(f"all rows: Adam at {base.lr:g}, taking over from it: {base.take}", file=sys.stderr)
    if args.until == "base":
        return
    searched = text_comparison.search(preset, base, methods=args.methods, workers=workers, **where)
    if args.until == "search":
        return
    seeds = args.seeds or preset.seeds
    text_comparison.final(preset, base, searched, methods=args.methods, seeds=seeds, workers=workers, **where)
    bayes = naive_bayes(corpus, preset.max_tokens)
    about = reporting.facts(started, command=reporting.command("table2", argv), preset=asdict(preset))
    runs = text_comparison.everything(preset, args.runs)
    data = records.plain({"facts": about, "lm": lm, "bayes": bayes, **runs})
    counts = [len(text_verdicts.errors(data["results"], method)) for method in METHODS]
    whole = min(counts) >= preset.seeds
    write(data, args.out or (reporting.RESULTS if whole else args.runs))


def write(data: dict[str, Any], out: Path) -> None:
    """Write the numbers, the table with its verdict, and the figure."""
    name = f"table2-{preset_of(data).name}"
    paths = [
        reporting.write_results(out / f"{name}.json", data),
        reporting.write(out / f"{name}.md", page(data)),
        reporting.save_figure(figure(data), out / f"{name}.png"),
    ]
    print(tables(data))
    print("written:", *paths, sep="\n  ")


def preset_of(data: dict[str, Any]) -> Preset:
    """The preset of the results."""
    return Preset(**records.tuples(data["facts"]["preset"]))


def tables(data: dict[str, Any]) -> str:
    """The table with its verdict."""
    table = text_verdicts.table(preset_of(data), data["results"], data["bayes"])
    return f"{table}\n\n{text_verdicts.verdict(preset_of(data), data)}\n"


def page(data: dict[str, Any]) -> str:
    """The whole page of results, made from the numbers alone."""
    return text_verdicts.heading(preset_of(data), data["facts"], data) + tables(data)


def figure(data: dict[str, Any]) -> Any:
    """Test errors of every seed beside the paper's, and mean validation curves."""
    return text_verdicts.figure(preset_of(data), data["results"], data["bayes"])


if __name__ == "__main__":
    main()

r"""Table 3: word-level language models, every method.

``python -m experiments.table3 --preset pydoc`` (CPython's documentation, minutes, no download), ``ptb-small`` (200
units on all of the Penn Treebank, hours), ``ptb-fd1`` (one layer of 655 units, the anchor of fraternal dropout), or
``ptb`` and ``wikitext2``, the paper's sizes, for a GPU and days. Killed, it goes on where it stopped when the same
command is given again. Writes table3-PRESET.json, .md and .png under experiments/results.

The table can be made in pieces, on several machines: ``--methods`` names the rows to make, and rows of other methods
and seeds that are in OUT's table already stay if they were made with the very same preset. With ``--seeds N``, N seeds
are run for none, FD, AdD K=1 and AdD reselect, and one for the others.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from experiments.parts import language_report, records, reporting
from experiments.parts.language_comparison import AVAILABLE, REPEATED, Preset, compare, with_earlier
from minadv.commands.numbers import folder, positive
from minadv.commands.parsing import Parser
from minadv.models.language.noise import PARTS
from minadv.tasks.language.presets import DROPOUTS
from minadv.tasks.language.presets import PRESETS as TASKS
from minadv.tasks.methods import LM_DELTA
from minadv.training.parallel.ranks import only_first_prints

FINETUNE = 500  # epochs of fine-tuning, after 750 of training


def awd(task: str) -> dict[str, Any]:
    """The sizes and settings of ``minadv train ptb`` and ``wikitext2``, which are the paper's."""
    own = TASKS[task].values
    same = ("hidden", "optimizer", "lr", "weight_decay", "epochs", "ramp_down", "batch", "bptt")
    return {
        **{name: own[name] for name in same},
        "corpus": TASKS[task].data,
        "dropouts": tuple(own[name] for name in DROPOUTS),
        "columns": own["eval_columns"],
        "delta": LM_DELTA,
        "finetune": FINETUNE,
    }


PRESETS = {
    preset.name: preset
    for preset in (
        Preset(
            "pydoc",
            "CPython's documentation, about 63,000 words and marks to train on",
            "pydoc",
            hidden=(64,),
            epochs=8,
            dropouts=(0.1, 0.2, 0.0, 0.2, 0.2),
            lr=30.0,
            every=7,
            columns=10,
            search=True,
        ),
        Preset(
            "ptb-small",
            "the Penn Treebank, whole",
            "ptb",
            hidden=(200,),
            epochs=10,
            dropouts=(0.1, 0.2, 0.0, 0.2, 0.2),
            lr=30.0,
            every=14,
            columns=10,
            reach=120,
        ),
        Preset(
            "ptb-fd1",
            "the Penn Treebank, one layer",
            "ptb",
            hidden=(655,),
            epochs=500,
            dropouts=(0.1, 0.65, 0.0, 0.4, 0.5),
            lr=30.0,
            batch=64,
            bptt=35,
            columns=10,
            kappa=0.15,
            fresh=PARTS,
            methods=("none", "FD", "AdD K=1"),
            paper=(("FD", "67.5 / 64.9"),),
        ),
        Preset(
            "ptb",
            "the Penn Treebank at the paper's size",
            **awd("ptb"),
            paper=(("none", "60.0 / 58.3"), ("FD", "58.9 / 56.8"), ("AdD K=1", "58.7 / 56.4")),
        ),
        Preset(
            "wikitext2",
            "WikiText-2 at the paper's size",
            **awd("wikitext2"),
            paper=(("none", "68.6 / 65.8"), ("FD", "66.8 / 64.1"), ("AdD K=1", "66.5 / 63.4")),
        ),
    )
}

PAPER = """The paper's Table 3 (AWD-LSTM 1150-1150-400, 750 epochs and fine-tuning; validation / test):

| method              | PTB         | WikiText-2  |
|---------------------|-------------|-------------|
| AWD-LSTM (`none`)   | 60.0 / 58.3 | 68.6 / 65.8 |
| fraternal dropout   | 58.9 / 56.8 | 66.8 / 64.1 |
| adversarial dropout | 58.7 / 56.4 | 66.5 / 63.4 |
"""


@only_first_prints()
@reporting.one_line_errors
def main(argv: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = Parser(prog="python -m experiments.table3", description=__doc__)
    parser.add_argument("--preset", choices=PRESETS, default="pydoc", help="size (default pydoc)")
    parser.add_argument("--seeds", type=positive, help=f"networks for {', '.join(REPEATED)} (default: the preset's)")
    parser.add_argument("--methods", nargs="+", choices=AVAILABLE, help="rows of the table (default: the preset's)")
    parser.add_argument("--data-dir", type=folder, help="folder of the text")
    reporting.add_device(parser)
    parser.add_argument("--runs", type=Path, default=Path("runs/table3"), help="folder of the runs (runs/table3)")
    parser.add_argument("--out", type=Path, default=reporting.RESULTS, help="folder for the results")
    args = parser.parse_args(argv)
    preset = PRESETS[args.preset]
    methods, seeds = args.methods or list(preset.methods), args.seeds or preset.seeds
    started = time.time()
    searched, results = compare(
        preset,
        methods=methods,
        seeds=seeds,
        root=args.runs,
        data_dir=args.data_dir,
        **reporting.place(args),
    )
    about = {
        **reporting.facts(started, seeds=seeds, preset=asdict(preset)),
        "command": reporting.command("table3", argv),
    }
    path = args.out / f"table3-{preset.name}.json"
    searched, results = with_earlier(path, preset, results[0]["text"], searched, results)
    data = records.plain({"facts": about, "search": searched, "results": results})
    paths = [
        reporting.write_results(path, data),
        reporting.write(path.with_suffix(".md"), page(data)),
        reporting.save_figure(figure(data), path.with_suffix(".png")),
    ]
    print(tables(data))
    print("written:", *paths, sep="\n  ")


def shown(data: dict[str, Any]) -> tuple[Preset, list[dict[str, Any]], list[str]]:
    """The preset of the results, the results of its runs, and their methods in the order of the table."""
    results = data["results"]
    methods = [method for method in AVAILABLE if any(r["method"] == method for r in results)]
    return Preset(**records.tuples(data["facts"]["preset"])), results, methods


def tables(data: dict[str, Any]) -> str:
    """The table with its verdict."""
    return f"{language_report.table(*shown(data))}\n\n{language_report.verdict(*shown(data))}\n"


def page(data: dict[str, Any]) -> str:
    """The whole page of results, made from the numbers alone."""
    preset, results, _ = shown(data)
    return f"{heading(preset, results, data['facts'])}{tables(data)}\n{PAPER}"


def figure(data: dict[str, Any]) -> Any:
    """Validation perplexity by epoch, and the test perplexity of every seed."""
    return language_report.figure(*shown(data))


def heading(preset: Preset, results: Sequence[dict[str, Any]], about: dict[str, Any]) -> str:
    """The paragraph that says what the numbers are and how they were made."""
    p = dict(zip(("words", "inputs", "between layers", "outputs", "recurrent weights"), preset.dropouts, strict=True))
    dropouts = ", ".join(f"{name} {rate:g}" for name, rate in p.items())
    chosen = "chosen on validation data from three settings a method (one seed)" if preset.search else "not searched"
    rate = f"falling over the last {preset.ramp_down:.0%} of them" if preset.ramp_down else "averaged (NT-ASGD)"
    decay = f"weight decay {preset.weight_decay:g}"
    tuned = f", then {preset.finetune:g} epochs of averaged SGD without the regularizer" if preset.finetune else ""
    thin = f" Predictions are compared at one step in {preset.every} (λ = {preset.every}/T there), in AdD's search too."
    thin *= preset.every > 1
    both = """FD's two passes draw all noise apart, as published, and have no recurrent mask unless p says so (in the
published run dropout is not locked in time, the rate falls when validation stops improving, and the state is set to
zero in one window of a hundred)"""
    twice = both if preset.fresh else "FD's two passes share all noise but their recurrent masks"
    after = " of the tuning" if preset.finetune else ""
    return f"""# Table 3, {preset.name}

LSTM {"-".join(map(str, preset.hidden))} with a tied embedding, {results[0]["weights"]:,} weights, on {preset.about}
(fingerprint {results[0]["text"][:12]}).
{preset.epochs:g} epochs of SGD at {preset.lr:g}, {rate}, {decay}{tuned}; batches of {preset.batch} columns,
windows of about {preset.bptt} words; the dropouts of every row, `none` too: {dropouts}.{thin}
Strength (p of VD, EL and FD, δ of AdD) and weight: {chosen}. {twice};
EL's passes differ in the mask alone, AdD's also drop words apart. Perplexity of the weights that are best on
validation, the state carried over the whole text, without noise; of the training text its beginning, as many words as
there are to validate on. "Noisy" is the training loss of the last epoch{after}, a mean over windows, under dropout.
`{about["command"]}`, last part {about["seconds"]} s on {about["cores"]} cores ({about["cpu"]}), NumPy {about["numpy"]}.
{language_report.made_by(results)}

"""


if __name__ == "__main__":
    main()

r"""``minadv attack``: accuracy or perplexity of a run under the masks that each search finds."""

from __future__ import annotations

import argparse
import sys

from minadv.commands.numbers import count, finite, positive, seed
from minadv.commands.running import add_device, add_run, add_workers, open_for
from minadv.distances import DISTANCES
from minadv.tasks.attack import SEARCHES, table
from minadv.training.parallel.inference import ask_for

MANY = 1000
"""Masks of an exact search that are worth a word: it takes longer than all other rows then."""


def add_options(parser: argparse.ArgumentParser, arguments: list[str]) -> None:
    """The options of ``minadv attack``."""
    add_run(parser)
    add_workers(parser)
    add_device(parser)
    parser.add_argument(
        "--delta",
        type=finite,
        nargs="+",
        help="share of units that may flip; for a language model also one for each layer, 0: no flips in it (default: "
        "the run's own, else 0.03 but at least three units, 0.04 for texts and 0.06 for language models)",
    )
    parser.add_argument(
        "--budget", type=count, nargs="+", metavar="N", help="number of units that may flip, instead of --delta"
    )
    parser.add_argument(
        "--distance", choices=DISTANCES, default="js", help="distance between predictions that the searches raise"
    )
    parser.add_argument(
        "--scale",
        choices=("none", "kept"),
        default="none",
        help="scale of the masks; kept: 1 / the share of units kept",
    )
    parser.add_argument("--examples", type=positive, default=1000, metavar="N", help="number of test sequences")
    parser.add_argument(
        "--max-masks",
        type=positive,
        default=20_000,
        metavar="N",
        help="leave out the exact search if it has more masks",
    )
    parser.add_argument("--seed", type=seed, default=0, metavar="N", help="seed of the random starts")


def work(args: argparse.Namespace) -> None:
    """Print a table with a row for each search."""
    run, make_target = open_for("attack", args)
    target = make_target(run, args.examples, delta=args.delta, budget=args.budget, seed=args.seed)
    print(target.headline)
    if 1 in target.budgets.values():  # training with this budget warns of the same
        print("one flip is spent by greedy's random start itself, so that its masks are almost random", file=sys.stderr)
    print(f"{'mask':14} {target.column:>10} {'mean D':>10}")
    how = {name: getattr(args, name) for name in ("seed", "distance", "scale", "max_masks")}
    names = [name for name in ("none", *SEARCHES) if name != "exact"]
    too_many = target.exact and target.n_masks > args.max_masks
    if target.exact and not too_many:
        names.append("exact")
        if target.n_masks > MANY:
            said = f"exact, the last row, runs {target.n_masks:,} masks for each example and takes longest"
            print(f"{said}: --max-masks {MANY} leaves it out", file=sys.stderr)

    def tell(name: str, result: float, distance: float) -> None:
        print(f"{name:14} {result:10.2f} {distance:{target.number}}", flush=True)

    with ask_for(args.workers):
        table(target, names, tell, **how)
    if too_many:
        print(f"{'exact':14} left out: {target.n_masks:,} masks, more than --max-masks {args.max_masks:,}")

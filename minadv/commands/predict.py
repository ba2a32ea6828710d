r"""``minadv predict``: the class and the probability of each image, or of each text, a line each."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from minadv.backend import Array
from minadv.base.checks import expect_shape, shape_text
from minadv.base.pulse import doing
from minadv.commands.numbers import positive
from minadv.commands.running import add_device, add_run, add_workers, device_of
from minadv.data.files import arrays, bounded, content, expect_no_nul
from minadv.data.images.own import expect_lengths
from minadv.data.images.scaling import Scaling
from minadv.data.texts import tables
from minadv.tasks.family import of_run
from minadv.tasks.run import Run, load, open_run
from minadv.training.parallel.inference import alone

EMPTY = "(empty)\t"  # what stands for the answer to a line without words
UNITS = 5  # how many units --explain names if --units does not say
EXAMPLES = 20  # how many test examples are answered if --examples does not say


def add_options(parser: argparse.ArgumentParser, arguments: list[str]) -> None:
    """The options of ``minadv predict``."""
    add_run(parser)
    add_workers(parser)
    add_device(parser)
    parser.add_argument(
        "images",
        nargs="?",
        metavar="FILE",
        help="images (N, rows, columns) or arrays (N, T, I) as .npy, or as .npz with x and, if their lengths differ, "
        "lengths; default: the test set. With a run of texts, a file with a text in each line, or a table (.csv, .tsv, "
        ".jsonl) with a column of texts; default: standard input",
    )
    parser.add_argument(
        "--examples", type=positive, metavar="N", help=f"number of test examples, without FILE (default: {EXAMPLES})"
    )
    parser.add_argument(
        "--explain", action="store_true", help="for texts: also print the units that the answer hangs on"
    )
    parser.add_argument(
        "--units", type=positive, metavar="N", help="number of units that --explain prints (default: 5)"
    )


def work(args: argparse.Namespace) -> None:
    """Print the lines, tab-separated."""
    family = of_run(args.run)
    family.can("predict", args.run)
    if args.examples is not None and (args.images is not None or family.kind == "text"):
        beside = (
            f"the file {args.images}" if args.images is not None else "a run of texts, whose lines are all answered"
        )
        raise ValueError(f"--examples is {args.examples}, the number of test examples, beside {beside}: leave it out")
    for line in (of_texts if family.kind == "text" else of_images)(args):
        print(line, flush=True)


def of_images(args: argparse.Namespace) -> Iterator[str]:
    """Number, class and probability of each image or sequence of a file, or of the test data with their labels."""
    if args.explain or args.units is not None:
        raise ValueError(f"{args.run} is a run of images, and --explain is for texts: leave out --explain and --units")
    if args.images is None:
        run = open_run(args.run, args.data_dir)
        test = run.data.test[: args.examples or EXAMPLES]
        labels = test.y
        x, lengths = test.x, test.lengths
    else:
        with doing("loading the run"):
            run = load(args.run)
        (x, lengths), labels = read_images(Path(args.images), run), None
    given = x if lengths is None else [one[:n] for one, n in zip(x, lengths, strict=True)]
    p, names = run.on(device_of(args)).predict(given, workers=args.workers), run.classes
    what = "sequence" if "scaling" in run.config else "image"
    yield f"{what}\tclass\tprobability" + ("\tlabel" if labels is not None else "")
    for n, row in enumerate(p):
        label = "" if labels is None else f"\t{names[labels[n]]}"
        yield f"{n}\t{names[row.argmax()]}\t{row.max():.4f}{label}"


def read_images(path: Path, run: Run) -> tuple[Array, Array | None]:
    """Images (N, rows, columns) or arrays (N, T, I) of a file as the run's sequences, and the steps of each.

    The steps are None if all have T of them.
    """
    from minadv.data.images.sequences import sequences

    images, lengths = read_arrays(path)
    about = run.config["about"]
    if "images" not in about:
        raise ValueError(f"{run.path} was made in Python and does not say how it reads images: predict there")
    own, side = about["images"] == "folder", 8 if about["images"] == "digits" else 28
    white, shape = 16 if side == 8 else 255, ("N", "T", run.model.n_in) if own else ("N", side, side)
    if images.dtype.kind not in "uif":
        raise ValueError(f"{path} holds no array of numbers, expected {shape_text(shape)}")
    if "scaling" in run.config:
        images = images if images.ndim == 3 else images[..., None]
        expect_shape(str(path), images, shape, "as the arrays that the run was trained on")
        if lengths is not None:
            expect_lengths(lengths, f"lengths of {path}", images)
        scaled = Scaling(*(tuple(run.config["scaling"][name]) for name in ("mean", "deviation")))(images)
        return scaled.astype(about["dtype"]), lengths
    if lengths is not None:
        raise ValueError(f"{path} has lengths, and {run.path} reads images, which all have one size: leave them out")
    expect_shape(str(path), images, ("N", "rows", "columns") if own else shape, f"as in {about['images']}")
    span = f"from {images.min():g} to {images.max():g}"
    images = images / white if images.dtype == np.uint8 else images
    if not (images.min() >= 0 and images.max() <= 1):
        raise ValueError(f"{path} holds values {span}, expected bytes from 0 to {white} (uint8) or numbers from 0 to 1")
    how = {"by": about["by"], "pool": about["pool"], "permute": about["permuted"]}
    return sequences(images.astype(about["dtype"]), **how), None


def read_arrays(path: Path) -> tuple[Any, Array | None]:
    """The array of a .npy file, or ``x`` and perhaps ``lengths`` of a .npz file."""
    held = arrays(path)
    if "x" not in held:
        names = ", ".join(held)
        raise ValueError(f"{path} lacks x, expected arrays x and, if their lengths differ, lengths; it has {names}")
    return held["x"], held.get("lengths")


def of_texts(args: argparse.Namespace) -> Iterator[str]:
    """Label and probability of each line of a file or standard input, or of each text of a table.

    With --explain, the units they hang on as well.
    """
    run = load(args.run)
    if args.units is not None and not args.explain:
        raise ValueError(f"--units is {args.units} without --explain, which it belongs to: give both or neither")
    where = "standard input" if args.images is None else args.images
    if args.images is None and sys.stdin.isatty():
        run = run.on(device_of(args))
        print("a text a line; Ctrl-D ends", file=sys.stderr)
        for line in sys.stdin:  # each is answered before the next is read
            yield from answers(run, [line], args)
        return
    if Path(where).suffix.lower() in tables.SUFFIXES:
        lines = tables.texts(Path(where))
    else:
        given = bounded(sys.stdin.buffer, where) if args.images is None else content(Path(where))
        lines = read_lines(given, where)
    yield from answers(run.on(device_of(args)), lines, args)


def answers(run: Run, lines: list[str], args: argparse.Namespace) -> Iterator[str]:
    """The answer to each line, in their order; a line without words is marked as `EMPTY`."""
    texts = [line for line in lines if line.strip()]
    if args.explain:
        said = explained(run, texts, args.units or UNITS)
    else:
        found = run.predict(texts, workers=args.workers) if texts else ()
        said = (f"{run.classes[p.argmax()]}\t{p.max():.4f}" for p in found)
    for line in lines:
        yield next(said) if line.strip() else EMPTY


def read_lines(held: bytes, where: str) -> list[str]:
    """The texts, one a line; the ValueError for a line that is not UTF-8 says its number."""
    expect_no_nul(held, where)
    lines = []
    for n, line in enumerate(held.removeprefix(b"\xef\xbb\xbf").splitlines(), 1):
        try:
            lines.append(line.decode())
        except UnicodeDecodeError as error:
            byte = f"0x{line[error.start]:02x}"
            raise ValueError(f"line {n} of {where} is not UTF-8: byte {byte} at offset {error.start}") from error
    return lines


def explained(run: Run, lines: list[str], top: int) -> Iterator[str]:
    """Label and probability of each text, then ``top`` units: what removing each alone does to the two."""
    from minadv.data.texts.buckets import make_batch
    from minadv.tasks.text.explain import explain
    from minadv.tasks.text.family import encode

    documents = encode(run, lines)
    for n in range(len(documents)):
        tokens = make_batch(documents, np.array([n]), max_tokens=run.config["max_tokens"]).tokens[:, 0]
        with alone(run.params):
            explanation: Any = explain(run.model, run.params, tokens, top=top)
        answer = int(explanation.p.argmax())
        cells = [run.classes[answer], f"{explanation.p[answer]:.4f}"]
        for removal in explanation.removals:
            site = f"{removal.site}." if run.model.n_layers > 1 else ""
            other = int(removal.p.argmax())
            turned = "" if other == answer else f" {run.classes[other]}"
            cells.append(f"{site}{removal.unit}:{removal.p[answer] - explanation.p[answer]:+.4f}{turned}")
        yield "\t".join(cells)

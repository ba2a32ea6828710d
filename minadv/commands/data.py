r"""``minadv data``: list the data sets, download them, and check the files that are there."""

from __future__ import annotations

import argparse

from minadv.base.errors import DataError
from minadv.data import fetch
from minadv.data.language import published

INSTALLED = {
    "digits": "scikit-learn's 1,797 digits of 8 x 8 pixels",
    "docstrings": "which of six libraries a docstring is from",
    "pydoc": "CPython's own documentation, about 78,000 words and marks",
}
"""Data that comes with Python and its packages."""


def add_options(parser: argparse.ArgumentParser, arguments: list[str]) -> None:
    """The options of ``minadv data``."""
    parser.add_argument(
        "action", choices=("list", "get", "check"), help="list the data sets, get (download) one, or check its files"
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="the data set to get or to check")
    parser.add_argument("--data-dir", metavar="DIR", help="data directory (default: MINADV_DATA, then the cache)")


def work(args: argparse.Namespace) -> None:
    """List, download or check data sets."""
    if args.action == "list":
        if args.name is not None:
            raise ValueError(f"list takes no name: leave out {args.name}, or give get or check")
        print(f"data directory: {fetch.data_root(args.data_dir)}")
        for name, about in INSTALLED.items():
            print(f"{name:10} {about}, no download")
        for name, remote in fetch.REMOTES.items():
            there = (published if name in published.PUBLISHED else fetch).there(name, args.data_dir)
            print(f"{name:10} {remote.about}{' (there)' if there else ''}")
        return
    if args.name is None:
        raise ValueError(f"give a name, one of {', '.join([*INSTALLED, *fetch.REMOTES])}")
    if args.name in INSTALLED:
        print(f"{args.name}: {INSTALLED[args.name]}: nothing needs downloading")
        return
    if args.action == "get" and args.name in published.PUBLISHED and published.there(args.name, args.data_dir):
        print(next(iter(published.find(args.name, args.data_dir).values())).parent)
        return
    if args.action == "get":
        print(fetch.get(args.name, args.data_dir))
        return
    results = (published.check if args.name in published.PUBLISHED else fetch.check)(args.name, args.data_dir)
    for result in results:
        print(f"{result.path or result.file}: {result.says}")
    if any(result.sound is False for result in results):
        raise DataError(f"{args.name} is not complete and sound")

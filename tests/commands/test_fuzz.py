"""Options and arguments at random, hundreds of calls: no traceback, no exit code but 0, 1, 2 and 130, and an end.

The options are those that the parsers have, so that a new one is tried without being named here. Calls are made in this
process, each under an alarm; `HYPOTHESIS_PROFILE=deep`, as `.ci/run --deep` sets it, makes thousands of them. Nothing
depends on the machine: time is a processor's, memory is the same few MB, and what is compiled is compiled before.
"""

import argparse
import os
import random
import shutil
import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minadv.base import machine
from minadv.cli import main
from minadv.fast import describe
from tests.support.commands import command
from tests.support.idxfiles import write_four

pytest.importorskip("safetensors")

OLD = Path(__file__).parents[1] / "tasks" / "old_runs"
SEEDS = range(100 if os.environ.get("HYPOTHESIS_PROFILE") == "deep" else 10)
CALLS = 40  # a seed
SECONDS = 60  # of a processor's time that a call may take
MEMORY = 2**28  # bytes that it may take: a large network is refused, and not tried for a long time
SMALL = ("1", "2", "3", "0.5", "0.25", "1e-3")
ABSURD = ("0", "-1", "-0", "1.5", "nan", "inf", "-inf", "1e30", "1" + "0" * 30, "1" + "0" * 5000, "1e308", "1e-320")
ABSURD += ("", " ", "x", "0x10", "١", "1_0", "None", "[]", "--", "-", "é", "a\nb", "1,000")
LARGE = ("10000000", "1000000000")
NEVER = ("resume", "out", "help", "cuda_aware_mpi", "epochs", "train_steps", "workers", "data_dir", "pretrained")
"""Options that the calls give themselves, or that would train for long; numbers of theirs are tried as absurd ones."""


class TooLongError(BaseException):
    """No handler of minadv may take it for an error of its own."""


@contextmanager
def alarm(seconds: int) -> Iterator[None]:
    """Ends what takes longer by a processor's clock, or, where it does nothing but wait, many times longer by any."""

    def ring(*_: object) -> None:
        raise TooLongError(f"more than {seconds} s")

    clocks = {signal.SIGPROF: (signal.ITIMER_PROF, seconds), signal.SIGALRM: (signal.ITIMER_REAL, 60 * seconds)}
    before = {number: signal.signal(number, ring) for number in clocks}
    for clock, most in clocks.values():
        signal.setitimer(clock, most)
    try:
        yield
    finally:
        for clock, _ in clocks.values():
            signal.setitimer(clock, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: Any) -> Path:
    """A folder with tiny data and runs of every family, and files that are nothing of the kind."""
    if device.name == "gpu":
        pytest.skip("the command line chooses its device itself: the parsing of options is the same on both")
    if not hasattr(signal, "setitimer"):
        pytest.skip("there is no alarm here that could end a call without end")
    pytest.importorskip("sklearn")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("MINADV_DATA", raising=False)
    monkeypatch.setattr(machine, "available_memory", lambda: MEMORY)
    monkeypatch.chdir(tmp_path)
    describe()
    write_four(tmp_path / "idx", n_train=24, n_test=8)
    shutil.copytree(OLD / "data", tmp_path / "data")
    for name in ("images", "text", "language", "pretraining"):
        shutil.copytree(OLD / name / "finished", tmp_path / name)
    np.save(tmp_path / "images.npy", np.zeros((2, 8, 8)))
    (tmp_path / "texts.txt").write_text("the rain came\nthe sun\n")
    (tmp_path / "nul.txt").write_bytes(b"the rain\0came\n")
    (tmp_path / "binary").write_bytes(random.Random(0).randbytes(500))
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "table.csv").write_text("text,label\n" + "it is good,a\nit is bad,b\n" * 6)
    np.savez(tmp_path / "arrays.npz", x=np.arange(72.0).reshape(12, 3, 2), y=np.arange(12) % 2)
    return tmp_path


TINY = "--hidden 4 --train-steps 1 --device cpu --workers 1"
BASES = [
    f"train smnist --data-dir idx --rows --pool 7 --delta 0.5 --batch 4 {TINY} --out OUT",
    f"train text --data-dir data/texts --embed 3 --relu 3 --min-count 1 --delta 0.5 --batch 2 {TINY} --out OUT",
    f"train lm --data-dir data/words --embed 4 --delta 0.5 --batch 2 --bptt 3 {TINY} --out OUT",
    f"pretrain data/texts --embed 3 --window 3 --candidates 2 --min-count 1 --batch 2 {TINY} --out OUT",
    f"train table.csv --embed 3 --relu 3 --delta 0.5 {TINY} --out OUT",
    f"train ./arrays.npz --delta 0.5 {TINY} --out OUT",
    f"train data/words --delta 0.5 {TINY} --out OUT",
    "finetune language --data-dir data/words --epochs 0.1 --device cpu --workers 1 --out OUT",
    "eval images",
    "eval text --data-dir data/texts",
    "attack images --examples 4",
    "attack text --data-dir data/texts --examples 4",
    "attack language --data-dir data/words --examples 2",
    "predict images images.npy",
    "predict text texts.txt",
    "generate language --words 3",
    "data list",
    "data check ptb --data-dir data",
    f"train --rows --no-track --delta 0.5 {TINY} --out OUT",
    "train --resume images",
    "doctor",
]
PATHS = (
    "nothing",
    "idx",
    "empty",
    "binary",
    "nul.txt",
    "/dev/null",
    "images",
    "text",
    "language",
    "images.npy",
    "table.csv",
    "arrays.npz",
    ".",
    "",
)


def value(rng: random.Random, action: argparse.Action) -> list[str]:
    """A value for an option, or several: what it takes, what is too large, or nonsense."""
    if action.nargs == 0 or isinstance(action, argparse.BooleanOptionalAction):
        return []
    pool = rng.choice([SMALL, SMALL, LARGE, ABSURD, PATHS])
    if action.dest in NEVER:
        pool = rng.choice([ABSURD, PATHS])
    if action.choices is not None and rng.random() < 0.7:
        pool = tuple(map(str, action.choices))
    n = rng.choice([1, 1, 2]) if action.nargs in ("+", "*") else 1
    return [rng.choice(pool) for _ in range(n)]


def call(rng: random.Random, out: str) -> list[str]:
    """A command with some options, most of them its own, or with another argument than it needs."""
    given = [out if word == "OUT" else word for word in rng.choice(BASES).split()]
    verb = command(given[0], *given[1:])
    options = [a for a in verb._actions if a.option_strings and a.dest not in ("help", "out", "resume")]
    for action in rng.sample(options, min(len(options), rng.choice([0, 1, 1, 2, 3]))):
        given += [rng.choice(action.option_strings), *value(rng, action)]
    if rng.random() < 0.25 and len(given) > 1:
        given[rng.randrange(1, len(given))] = rng.choice([*PATHS, *ABSURD])
    return given


@pytest.mark.parametrize("seed", SEEDS)
def test_no_call_ends_in_a_traceback(seed: int, place: Path, capsys: Any) -> None:
    rng, codes = random.Random(seed), set()
    for n in range(CALLS):
        given = call(rng, f"out{n}")
        if given[0] == "doctor" and n > 10:  # it takes long, and has one option
            continue
        try:
            with alarm(SECONDS), warnings.catch_warnings():
                warnings.simplefilter("default")
                code = main(given)
        except SystemExit as stopped:  # the parser's own
            code = stopped.code
        except BaseException as error:
            raise AssertionError(f"seed {seed}: minadv {given} ends in {error!r}") from error
        said = capsys.readouterr().err
        codes.add(code)
        assert code in (0, 1, 2, 130), f"seed {seed}: minadv {given} exits with {code}"
        assert code == 0 or said.strip(), f"seed {seed}: minadv {given} exits with {code} and says nothing"
    assert {0, 2} <= codes  # some calls do their work, and some are refused

"""Plants every mistake of `tests.support.mutator` in a copy, one at a time, and runs the tests that should notice.

::

    python -m tests.support.mutation --sample 100                # the same 100 each time: CI
    python -m tests.support.mutation --kept FILE                 # all: CI, --deep; FILE keeps verdicts, to go on from
    python -m tests.support.mutation masks.py flip.py            # all of some files

A mutant that no test notices must be explained in `tests.support.survivors`; otherwise the run fails and lists it. A
verdict is kept as long as the mutated file and its tests are unchanged. The tests of a mutant are cut off after
`CPU_SECONDS` of processor time, which do not depend on what else the machine does, or when none of their processes had
any for `IDLE_SECONDS`, or after `WALL_SECONDS`: a mutant that does not come to an end is noticed too.
"""

import argparse
import compileall
import contextlib
import hashlib
import json
import os
import resource
import signal
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from tests.support.copies import QUIET, ROOT, copy_tree, environment
from tests.support.mutation_targets import FURTHER, SLOW, TARGETS
from tests.support.mutator import Change, changes
from tests.support.survivors import explained

CPU_SECONDS, IDLE_SECONDS, WALL_SECONDS = 60, 60, 1800
SOUND_SECONDS = 3600  # for all tests together, without a mutant
CAUGHT, SURVIVED, CUT_OFF = "caught", "survived", "cut off"
NO_TESTS = 5  # pytest's exit code


@dataclass(frozen=True)
class Planted:
    """A change of a file of minadv/, with the line as it was and as it is then."""

    file: str
    change: Change
    old: str
    new: str

    @property
    def key(self) -> str:
        return "\n".join((self.file, str(self.change.line), str(self.change.start), self.old, self.new))

    def __str__(self) -> str:
        place = f"minadv/{self.file}:{self.change.line} in {self.change.where or 'the file'}"
        return f"{place}\n  - {self.old}\n  + {self.new}"


@cache
def planted(file: str) -> tuple[Planted, ...]:
    """All mutants of a file."""
    text = (ROOT / "minadv" / file).read_text()
    return tuple(Planted(file, change, *change.told(text)) for change in changes(text))


def sample(mutants: Sequence[Planted], n: int, seed: int) -> list[Planted]:
    """The n mutants whose names have the least checksums: a change elsewhere leaves the choice as it is."""
    ranked = sorted(mutants, key=lambda m: zlib.crc32(f"{seed} {m.file} {m.change.where} {m.old} {m.new}".encode()))
    return sorted(ranked[:n], key=lambda m: (m.file, m.change.start))


class Bench:
    """A copy of the tree in which mutants are run one after the other, each in a fork of this process."""

    def __init__(self, folder: Path) -> None:
        self.copy = folder.resolve()
        self.copy.mkdir()
        copy_tree(self.copy)
        compileall.compile_dir(self.copy, quiet=2)  # once, not again for each mutant

    def verdict(self, mutant: Planted | None, tests: tuple[str, ...]) -> tuple[str, str]:
        """Whether these tests notice the mutant, and what pytest said."""
        if mutant is None:
            return self._run(tests, SOUND_SECONDS)
        source = self.copy / "minadv" / mutant.file
        text, times = source.read_text(), (source.stat().st_atime_ns, source.stat().st_mtime_ns)
        source.write_text(mutant.change.apply(text))
        os.utime(source, ns=(times[0], times[1] + 10**10))  # Python knows by the time that what it compiled is of old
        try:
            return self._run(tests)
        finally:
            source.write_text(text)
            os.utime(source, ns=times)

    def _run(self, tests: tuple[str, ...], seconds: int = CPU_SECONDS) -> tuple[str, str]:
        said = self.copy / "said.txt"
        child = os.fork()
        if child == 0:
            _run_tests(self.copy, tests, said, seconds)
        status = _wait(child, max(seconds, WALL_SECONDS))
        words = said.read_text(errors="replace")
        if status is None or os.WIFSIGNALED(status):
            return CUT_OFF, words
        code = os.WEXITSTATUS(status)
        if code == NO_TESTS:
            raise RuntimeError(f"no test was run of {', '.join(tests)}:\n{words}")
        return (CAUGHT if code else SURVIVED), words


def _run_tests(copy: Path, tests: tuple[str, ...], said: Path, seconds: int) -> None:
    """Of a fork: become pytest on the copy, in a process group of its own."""
    code = 70
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
        out = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.chdir(copy)
        ours = environment(copy)
        os.environ.clear()
        os.environ.update(ours)
        tempfile.tempdir = None
        for name in [name for name in sys.modules if name.split(".")[0] in ("minadv", "tests")]:
            del sys.modules[name]
        sys.path[:] = [str(copy), *(p for p in sys.path if p not in ("", str(ROOT)))]
        import pytest

        import minadv

        assert Path(minadv.__file__ or "").is_relative_to(copy), minadv.__file__
        code = int(pytest.main([*QUIET, *(f"tests/{file}" for file in tests)]))
    except SystemExit as stopped:
        code = stopped.code if isinstance(stopped.code, int) else 1
    except BaseException as error:
        os.write(2, repr(error).encode())
    finally:
        os._exit(code)


def _wait(child: int, most: int) -> int | None:
    """The status of a process at its end; None if it had to be ended by then, with all that it started."""
    status: int | None = None
    began = looked = busy = time.monotonic()
    spent: int | None = 0
    while (now := time.monotonic()) < min(began + most, busy + IDLE_SECONDS):
        done, found = os.waitpid(child, os.WNOHANG)
        if done:
            status = found
            break
        if now > looked + 1:
            before, spent, looked = spent, _spent(child), now
            busy = now if spent is None or spent != before else busy
        time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    if status is None:
        os.waitpid(child, 0)
    return status


def _spent(session: int) -> int | None:
    """The processor time of a session's processes, in ticks; None where the system does not tell."""
    told = None
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            numbers = path.read_text().rpartition(")")[2].split()
            if int(numbers[3]) == session:
                told = (told or 0) + int(numbers[11]) + int(numbers[12])
    return told


def all_tests(file: str) -> tuple[str, ...]:
    """The tests that should notice the mutants of a file."""
    return (*TARGETS[file], *FURTHER.get(file, ()))


def first_tests(files: Sequence[str], *, whole: bool) -> tuple[str, ...]:
    """The tests that must pass without a mutant: of a sample, which is to be quick, those of the files themselves."""
    return tuple(dict.fromkeys(test for file in files for test in (all_tests(file) if whole else TARGETS[file])))


def digest(file: str, tests: tuple[str, ...]) -> str:
    """Of what a verdict is kept for: the mutated file and its tests."""
    whole = hashlib.sha256()
    for path in (ROOT / "minadv" / file, *(ROOT / "tests" / test.split("::")[0] for test in tests)):
        whole.update(path.read_bytes())
    return whole.hexdigest()[:16]


def kept_verdicts(path: Path | None) -> dict[tuple[str, str], str]:
    """The verdicts of earlier runs; a last line that a kill cut short is left out."""
    found: dict[tuple[str, str], str] = {}
    if path is not None and path.exists():
        for line in path.read_text().splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                record = json.loads(line)
                found[record["key"], record["digest"]] = record["verdict"]
    return found


def verdicts(mutants: list[Planted], kept: Path | None, jobs: int, folder: Path) -> Iterator[tuple[Planted, str, bool]]:
    """Each mutant, its verdict, and whether that was known; in the order in which they come to an end."""
    known = kept_verdicts(kept)
    digests = {file: digest(file, all_tests(file)) for file in {m.file for m in mutants}}
    benches: SimpleQueue[Bench] = SimpleQueue()
    for n in range(jobs):
        benches.put(Bench(folder / f"bench-{n}"))
    todo = [m for m in mutants if (m.key, digests[m.file]) not in known]
    yield from ((m, known[m.key, digests[m.file]], True) for m in mutants if (m.key, digests[m.file]) in known)

    def one(mutant: Planted) -> str:
        bench = benches.get()
        try:
            verdict, _ = bench.verdict(mutant, TARGETS[mutant.file])
            further = FURTHER.get(mutant.file, ())
            return bench.verdict(mutant, further)[0] if verdict == SURVIVED and further else verdict
        finally:
            benches.put(bench)

    with ThreadPoolExecutor(jobs) as pool:
        for mutant, verdict in zip(todo, pool.map(one, todo), strict=True):
            if kept is not None:
                with kept.open("a") as file:
                    record = {"key": mutant.key, "digest": digests[mutant.file], "verdict": verdict}
                    file.write(json.dumps(record) + "\n")
            yield mutant, verdict, False


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*", help="files of minadv/ (default: all of tests.support.mutation_targets)")
    parser.add_argument("--sample", type=int, help="this many of the mutants instead of all")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--kept", type=Path, help="a file that keeps verdicts, to go on from")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args(arguments)
    unknown = [file for file in options.files if file not in TARGETS]
    if unknown:
        parser.error(f"{', '.join(unknown)}: expected files among {', '.join(TARGETS)}")
    files = options.files or [file for file in TARGETS if options.sample is None or file not in SLOW]
    mutants = [mutant for file in files for mutant in planted(file)]
    if options.sample is not None:
        mutants = sample(mutants, options.sample, options.seed)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # each job has one core
    _load_libraries()
    with tempfile.TemporaryDirectory() as folder:
        used = [file for file in files if any(m.file == file for m in mutants)]
        tests = first_tests(used, whole=options.sample is None)
        for verdict, said in _sound(tests, options.jobs, Path(folder)):
            if verdict != SURVIVED:
                print(f"tests fail without any mutant ({verdict}):\n{said}")
                return 1
        return _report(mutants, verdicts(mutants, options.kept, options.jobs, Path(folder)))


def _sound(tests: tuple[str, ...], jobs: int, folder: Path) -> Iterator[tuple[str, str]]:
    """What the tests say without a mutant: a verdict means something only where they pass."""
    jobs = min(jobs, len(tests))  # given no tests, pytest would run all there are
    benches = [Bench(folder / f"sound-{n}") for n in range(jobs)]
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(lambda n: benches[n].verdict(None, tests[n::jobs]), range(jobs))


def _report(mutants: Sequence[Planted], found: Iterator[tuple[Planted, str, bool]]) -> int:
    counts = {CAUGHT: 0, CUT_OFF: 0, "explained": 0, SURVIVED: 0}
    survivors = []
    for n, (mutant, verdict, known) in enumerate(found, 1):
        if verdict == SURVIVED and explained(mutant.file, mutant.change.where, mutant.old, mutant.new):
            verdict = "explained"
        counts[verdict] += 1
        if verdict == SURVIVED:
            survivors.append(mutant)
            print(f"SURVIVED {mutant}", flush=True)
        if not known and (n % 50 == 0 or n == len(mutants)):
            told = ", ".join(f"{count} {name}" for name, count in counts.items())
            print(f"{n} of {len(mutants)}: {told} ({mutant.file})", flush=True)
    print(f"{len(mutants)} mutants: " + ", ".join(f"{count} {name}" for name, count in counts.items()))
    if survivors:
        print("write a test that notices each survivor, or explain it in tests/support/survivors.py")
    return 1 if survivors else 0


def _load_libraries() -> None:
    """Load what every fork needs, but nothing of minadv that a mutant could change."""
    loaded: list[Any] = []
    for name in ("numpy", "scipy.linalg", "scipy.special", "scipy.stats", "hypothesis.extra.numpy", "pytest"):
        loaded.append(__import__(name))


if __name__ == "__main__":
    sys.exit(main())

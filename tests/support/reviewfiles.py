"""Small corpora in files: the layout of IMDB as a folder and as an archive, and Elec."""

import io
import tarfile
from pathlib import Path

REVIEWS = {
    "train/pos/0_9.txt": "A great film, really great!<br /><br />I liked it.",
    "train/pos/1_8.txt": "Great fun. The actors were good and the film is good.",
    "train/pos/10_10.txt": "I liked the film.",
    "train/neg/0_1.txt": "A bad film, really bad. I didn't like it.",
    "train/neg/1_2.txt": "Bad acting. The film is boring.",
    "train/neg/2_3.txt": "Boring, boring, boring!",
    "train/unsup/0_0.txt": "A film about a film about it. It's good or bad.",
    "train/unsup/1_0.txt": "Who liked this film? I did.",
    "test/pos/0_7.txt": "What a good, unexpectedly great film.",
    "test/neg/0_4.txt": "What a boring film. Unexpectedly bad.",
}
OTHER = {  # what else the official archive holds
    "README": "Large Movie Review Dataset",
    "imdb.vocab": "the\nand",
    "train/urls_pos.txt": "http://www.example.com/",
    "train/labeledBow.feat": "9 0:9 1:1",
    "train/pos/._0_9.txt": "\0\5\26\7",
}


def write_folder(root: Path, reviews: dict[str, str] = REVIEWS) -> Path:
    for name, text in reviews.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


def write_archive(path: Path, reviews: dict[str, str] = REVIEWS, *, mode: str = "w:gz") -> Path:
    """The reviews under ``aclImdb/``, in no order."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name, text in sorted({**reviews, **OTHER}.items(), key=lambda item: item[0][::-1]):
            add(tar, f"aclImdb/{name}", text.encode())
    return path


def add(tar: tarfile.TarFile, name: str, content: bytes = b"", **fields: object) -> None:
    """A member with any fields, also such as no honest archive has."""
    member = tarfile.TarInfo(name)
    member.size = len(content)
    for field, value in fields.items():
        setattr(member, field, value)
    tar.addfile(member, io.BytesIO(content))


def write_elec(root: Path, **changed: bytes | None) -> Path:
    """Six labelled reviews to train, two to test, and unlabelled ones of which three are not new.

    ``changed`` replaces a file, or removes it: ``train_cat`` is ``elec-25k-train.cat``.
    """
    files: dict[str, bytes | None] = {
        "train_tok": b"good phone .\nbad phone !\nthe cable is good\nthe cable broke\nworks well\nnever worked\n",
        "train_cat": b"2\n1\n2\n1\n2\n1\n",
        "test_tok": b"a good cable\na bad battery\n",
        "test_cat": b"2\n1\n",
        "unlab00": b"the battery is ok\ngood  phone .\nsome cable\n",
        "unlab01": b"some cable\na bad battery\nGood phone .\n",
    } | changed
    names = {
        "train_tok": "elec-25k-train.txt.tok",
        "train_cat": "elec-25k-train.cat",
        "test_tok": "elec-test.txt.tok",
        "test_cat": "elec-test.cat",
        "unlab00": "elec-25k-unlab00.txt.tok",
        "unlab01": "elec-25k-unlab01.txt.tok",
    }
    root.mkdir(parents=True, exist_ok=True)
    for key, content in files.items():
        if content is not None:
            (root / names[key]).write_bytes(content)
    return root

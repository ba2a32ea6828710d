r"""The corpus that needs no download: the English of CPython's ``pydoc_data.topics``, split by topic.

These are the 80 or so pages of the language reference that ``help("FOR")`` shows in a Python prompt, about 65,000
words. Many paragraphs stand in several topics ("compound" repeats all of "for"), which would put training text into
the test part: so each paragraph is kept once, in the shortest topic that has it, and about 78,000 tokens are left,
marks and ends of lines included. A topic belongs to train, valid or test by the SHA-256 of its name, whatever Python it
came with: 62,762, 7,293 and 8,336 tokens in Python 3.11.7, 80, 9 and 11 %. The text itself differs from one Python to
the next, so figures can be compared only at the same `corpus.Corpus.fingerprint`.

A paragraph is one line. Its tokens are, all in lower case, words (letters, digits and ``_``, joined by inner ``'`` or
``-``) and marks (one character that is neither, or a run of the same: ``**``, ``...``).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from minadv.base.errors import DataError

MIN_COUNT = 2  # rarer words are read as <unk>: about 2,100 words stay, and 7 to 10 % of valid and test is <unk>

_TOKEN = re.compile(r"\w+(?:['’-]\w+)*|([^\w\s])\1*")
_UNDERLINE = re.compile(r"\s*([*=~^-])\1{2,}\s*")


def lines() -> dict[str, list[str]]:
    """The lines of the parts "train", "valid" and "test"."""
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise DataError(
            "this Python comes without pydoc_data.topics, the text of the corpus pydoc: name a folder with "
            "train.txt, valid.txt and test.txt with --data-dir"
        ) from error
    return {
        part: [" ".join(tokens(paragraph)) for topic in pages.values() for paragraph in topic]
        for part, pages in split(topics).items()
    }


def split(topics: Mapping[str, str]) -> dict[str, dict[str, list[str]]]:
    """The paragraphs of each topic, by part and topic; the topics of a part are in the order of their names."""
    parts: dict[str, dict[str, list[str]]] = {"train": {}, "valid": {}, "test": {}}
    for topic, kept in sorted(distinct(topics).items()):
        parts[part_of(topic)][topic] = kept
    return parts


def part_of(topic: str) -> str:
    """The part that a topic belongs to: its name's SHA-256, read as a number in [0, 1), is below 0.8, 0.9 or 1."""
    fraction = int.from_bytes(hashlib.sha256(topic.encode()).digest()[:8], "big") / 2**64
    return "train" if fraction < 0.8 else "valid" if fraction < 0.9 else "test"


def distinct(topics: Mapping[str, str]) -> dict[str, list[str]]:
    """The paragraphs of each topic, without those that the same or a shorter topic has already."""
    cut = {topic: paragraphs(text) for topic, text in topics.items()}
    seen: set[str] = set()
    kept: dict[str, list[str]] = {}
    for topic in sorted(cut, key=lambda topic: (sum(map(len, cut[topic])), topic)):
        kept[topic] = [paragraph for paragraph in dict.fromkeys(cut[topic]) if paragraph not in seen]
        seen.update(kept[topic])
    return kept


def paragraphs(text: str) -> list[str]:
    """The paragraphs of a text, between empty lines, each on one line; the underlines of headings are left out."""
    joined = []
    for block in re.split(r"\n[^\S\n]*\n", text):
        rows = [row for row in block.split("\n") if not _UNDERLINE.fullmatch(row)]
        joined.append(" ".join(" ".join(rows).split()))
    return [paragraph for paragraph in joined if paragraph]


def tokens(text: str) -> list[str]:
    """The words and marks of a text, in lower case."""
    return [match[0] for match in _TOKEN.finditer(text.lower())]

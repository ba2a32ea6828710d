"""Small made-up corpora in files."""

import gzip
from pathlib import Path

TEXTS = {
    "train": "the cat sat\n\nthe <unk> sat on the mat\nthe end\n",
    "valid": "the dog sat\n",
    "test": "\non the mat",
}


def write_corpus(folder: Path, pattern: str = "{}.txt", compress: bool = False, **texts: str) -> Path:
    """The three files, under the pattern's names; a text given by its part's name takes the place of ours."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, text in {**TEXTS, **texts}.items():
        content = text.encode()
        path = folder / pattern.format(part)
        if compress:
            path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(content))
        else:
            path.write_bytes(content)
    return folder

"""Small idx files, written byte by byte."""

import gzip
from pathlib import Path

import numpy as np


def idx(array: np.ndarray, magic: int | None = None) -> bytes:
    """The bytes of an idx file of unsigned bytes."""
    head = (0x0800 + array.ndim) if magic is None else magic
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return head.to_bytes(4, "big") + sizes + array.astype(np.uint8).tobytes()


def write_four(folder: Path, n_train: int = 60, n_test: int = 20, compress: bool = True, side: int = 28) -> None:
    """The four files of an MNIST folder, filled with noise that tells the images apart."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    for part, n in (("train", n_train), ("t10k", n_test)):
        images, labels = rng.integers(0, 256, (n, side, side)), rng.integers(0, 10, n)
        for kind, content in (("images-idx3", idx(images)), ("labels-idx1", idx(labels))):
            name = f"{part}-{kind}-ubyte" + (".gz" if compress else "")
            (folder / name).write_bytes(gzip.compress(content) if compress else content)

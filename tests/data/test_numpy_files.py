"""Arrays from .npy and .npz files: damage is one error, whatever it was, and a small file cannot fill the memory."""

import io
import random
import zipfile
from pathlib import Path

import numpy as np
import pytest

from minadv.base.errors import DataError
from minadv.data import files

X, Y = np.arange(200.0).reshape(20, 5, 2), np.arange(20) % 2


def stored(save: str) -> bytes:
    buffer = io.BytesIO()
    if save == "save":
        np.save(buffer, X)
    else:
        getattr(np, save)(buffer, x=X, y=Y)
    return buffer.getvalue()


def test_what_is_read(tmp_path: Path) -> None:
    for save, names in (("save", {"x"}), ("savez", {"x", "y"}), ("savez_compressed", {"x", "y"})):
        (tmp_path / "file").write_bytes(stored(save))
        held = files.arrays(tmp_path / "file")
        assert held.keys() == names
        np.testing.assert_array_equal(held["x"], X)


@pytest.mark.parametrize("save", ["save", "savez", "savez_compressed"])
def test_damage_at_random(save: str, tmp_path: Path) -> None:
    """Without the one error: zlib's, the tokenizer's, those of zip's methods and passwords, each a traceback."""
    rng, path, said = random.Random(0), tmp_path / "file", []
    for _ in range(1500):
        content = bytearray(stored(save))
        for _ in range(rng.choice([1, 2, 5])):
            content[rng.choice([rng.randrange(len(content)), rng.randrange(130), -rng.randrange(1, 200)])] = (
                rng.randrange(256)
            )
        path.write_bytes(content[: rng.randrange(len(content))] if rng.random() < 0.2 else content)
        try:
            files.arrays(path)
        except DataError as error:
            said.append(str(error))
    assert len(said) > 300
    assert all(str(path) in line for line in said)


def test_the_limit_holds_for_what_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "zeros.npz"
    np.savez_compressed(path, x=np.zeros(10**6), y=np.zeros(10**6))
    monkeypatch.setattr(files, "LIMIT", 2**23)  # more than one of them, and than the file itself
    monkeypatch.setattr(np, "load", lambda *_, **__: pytest.fail("arrays were unpacked"))
    with pytest.raises(DataError, match=r"zeros\.npz holds 16,000,\d+ bytes, unpacked: expected at most 8 MiB$"):
        files.arrays(path)


def test_a_member_that_is_no_array(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "file", "w") as packed:
        packed.writestr("x", "text")
    assert files.arrays(tmp_path / "file") == {}

"""Trees of either backend as flat dicts of host arrays and scalars, and back."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minadv.training.optimizers import ASGD, Adam
from minadv.training.runs.packing import PackingError, arrays_from_file, pack, safetensors, unpack
from tests.support.compare import assert_same_bits


def test_there_and_back(put: Any, rng: Any) -> None:
    params = {"W": rng.standard_normal((2, 3)).T, "b": np.array(1.5, np.float32)}
    host = {"params": params, "adam": Adam(0.1).init(params), "asgd": ASGD(0.1, interval=2).init(params)}
    tree = {"params": put(params), "adam": Adam(0.1).init(put(params)), "asgd": ASGD(0.1, interval=2).init(put(params))}
    arrays, scalars = pack(tree)
    assert all(isinstance(a, np.ndarray) and a.flags.c_contiguous for a in arrays.values())
    assert arrays["params.W"].shape == (3, 2)
    assert arrays["params.b"].shape == ()
    assert scalars == {
        "adam.steps": 0,
        "asgd.averaged": 0,
        "asgd.started": False,
        "asgd.older": np.inf,
        "asgd.recent.0": np.inf,
        "asgd.recent.1": np.inf,
    }
    assert_same_bits(unpack({**arrays, **scalars}, tree), host)


def test_a_file_of_something_else_is_named(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    path = tmp_path / "arrays.safetensors"
    path.write_bytes(b"something else")
    with pytest.raises(PackingError, match=r"arrays\.safetensors is no file of arrays: "):
        arrays_from_file(path)


def test_without_safetensors_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ImportError, match=r"checkpoints need safetensors: pip install minadv\[experiments\]"):
        safetensors()

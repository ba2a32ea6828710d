"""A number that is not finite is named; finite ones pass, however large."""

from typing import Any

import numpy as np
import pytest

from minadv.training.finite import TrainingError, expect_finite


def test_large_numbers_are_finite(put: Any) -> None:
    expect_finite(0, "the gradient", put({"W": np.full(4, 3e38, np.float32)}))  # their sum in float32 is not


def test_what_is_not_finite_is_named(put: Any) -> None:
    tree = {"V": np.array([1.0, np.nan]), "W": np.ones(3), "b": np.array([-np.inf]), "n": np.array([1])}
    with pytest.raises(TrainingError, match=r"^the gradient is not finite at step 7 \(V, b\)$"):
        expect_finite(7, "the gradient", put(tree))

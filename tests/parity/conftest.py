"""Parity with PyTorch: the CPU build is the reference, so only NumPy is compared; CuPy is held to NumPy elsewhere."""

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def numpy_only(xp):
    if xp is not np:
        pytest.skip("PyTorch is compared with NumPy on the host; every other test holds CuPy to the same values")

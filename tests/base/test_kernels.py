"""The seam for kernels: on the host the text runs; on a device what was provided, unless that declines."""

import pickle

import numpy as np
import pytest

from minadv import distances
from minadv.base import kernels, philox
from minadv.base.kernels import on_device, provide


@on_device
def doubled(a, *, times=2):
    """Twice the array."""
    return a * times


@pytest.fixture
def alone(monkeypatch):
    """Nothing is provided but by the test."""
    monkeypatch.setattr(kernels, "_kernels", {})
    monkeypatch.setattr(kernels, "_providers", [])


def test_the_text_runs_on_the_host(alone):
    provide(doubled, lambda a, **_: pytest.fail("a kernel was called for host arrays"))
    assert doubled(np.ones(2)).tolist() == [2, 2]
    assert doubled(np.ones(2), times=3).tolist() == [3, 3]
    assert doubled.__doc__ == "Twice the array."


def test_what_is_provided_runs_on_a_device(alone, put, xp):
    a = put(np.ones(2))
    assert doubled(a).tolist() == [2, 2]  # nothing is provided
    provide(doubled, lambda a, *, times=2: NotImplemented if times == 3 else a - times)
    kernel = xp is not np
    assert doubled(a).tolist() == ([-1, -1] if kernel else [2, 2])
    assert doubled(a, times=3).tolist() == [3, 3]  # declined
    assert doubled(a, times=4).tolist() == ([-3, -3] if kernel else [4, 4])


def test_providers_are_asked_once_and_only_on_a_device(alone, put, xp):
    asked = []
    kernels.provider(lambda: asked.append(1))
    doubled(np.ones(2))
    assert asked == []
    doubled(put(np.ones(2)))
    doubled(put(np.ones(2)))
    assert asked == ([] if xp is np else [1])


def test_a_provider_that_raises_is_asked_again(alone, put, xp):
    if xp is np:
        pytest.skip("a device asks for kernels")
    asked = []

    def load():
        asked.append(1)
        if len(asked) == 1:
            raise ImportError
        provide(doubled, lambda a, **_: a - 1)

    kernels.provider(load)
    with pytest.raises(ImportError):
        doubled(put(np.ones(2)))
    assert doubled(put(np.ones(2))).tolist() == [0, 0]


def test_only_what_is_decorated_can_be_provided():
    with pytest.raises(TypeError, match=r"philox\.threshold is not decorated with on_device"):
        provide(philox.threshold, abs)


def test_a_decorated_function_can_be_sent_to_another_process():
    assert pickle.loads(pickle.dumps(philox.keeps)) is philox.keeps
    assert pickle.loads(pickle.dumps(distances.js)) is distances.js

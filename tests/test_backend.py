"""The array-module switch: the data decide, nothing moves by itself, and a device that does not work says why."""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from minadv import backend
from minadv.backend import BackendError, as_host, choose_device, namespace, same_place, to_device, to_host
from tests.support import strict
from tests.support.compare import assert_same_bits


class FakeDeviceArray:
    """Stands for a CuPy array where there is no CuPy."""


@pytest.fixture
def host_and_device(xp, monkeypatch):
    """One array of each kind, real or pretended."""
    if xp is not np:
        return np.ones(2), xp.ones(2)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(ndarray=FakeDeviceArray))
    return np.ones(2), FakeDeviceArray()


def test_namespace_is_that_of_the_arrays(xp):
    assert namespace(xp.ones(2)) is xp
    assert namespace(None, xp.ones(2), m=None, x=xp.ones(2)) is xp


def test_an_array_on_the_device_has_the_module_of_the_device(host_and_device):
    _, device = host_and_device
    assert namespace(device) is namespace(None, m=device) is sys.modules["cupy"]


def test_a_numpy_scalar_is_on_the_host():
    assert namespace(np.float64(1)) is np


def test_no_arrays_at_all_are_on_the_host():
    assert namespace(None) is np
    assert namespace() is np


@pytest.mark.parametrize("other", [[1.0, 2.0], 3.0, "x", object()], ids=["list", "float", "str", "object"])
def test_what_is_not_an_array(xp, other):
    with pytest.raises(TypeError, match=f"^x is a {type(other).__name__}, expected a NumPy or CuPy array"):
        namespace(xp.ones(2), x=other)


def test_unnamed_arguments_are_called_by_their_place(xp):
    with pytest.raises(TypeError, match=r"^argument 2 is a list"):
        namespace(xp.ones(2), [1])
    with pytest.raises(TypeError, match=r"^argument 1 is a list"):
        namespace([1])


def test_host_and_device_together(host_and_device):
    host, device = host_and_device
    with pytest.raises(TypeError, match=r"x, valid on the host \(NumPy\) but m on the device \(CuPy\)"):
        namespace(x=host, m=device, valid=host)


def test_unknown_device():
    with pytest.raises(ValueError, match='device is \'tpu\', expected "auto", "cpu" or "gpu"'):
        choose_device("tpu")


def test_cpu_is_numpy():
    device = choose_device("cpu")
    assert device.xp is np
    assert not device.tf32


def test_without_cupy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)  # makes the import fail
    fallback = choose_device("auto")
    assert (fallback.name, fallback.xp) == ("cpu", np)
    assert "because CuPy does not work here (CuPy is not installed: pip install" in fallback.why
    with pytest.raises(BackendError, match=r'^device="gpu" was asked for but .*CuPy is not installed') as error:
        choose_device("gpu")
    assert isinstance(error.value.__cause__, ModuleNotFoundError)


def test_a_cupy_that_imports_but_does_not_work(monkeypatch):
    def no_driver(*_):
        raise RuntimeError("cudaErrorSomething: too old\nsecond line")

    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(asarray=no_driver))
    why = choose_device("auto").why
    assert why == "NumPy, because CuPy does not work here (RuntimeError: cudaErrorSomething: too old)"
    with pytest.raises(BackendError, match="too old"):
        choose_device("gpu")


@pytest.mark.parametrize(
    "wrong", [{"tanh": np.zeros_like}, {"asarray": lambda a: 1.001 * a}], ids=["tanh", "product, by a little"]
)
def test_a_cupy_that_computes_nonsense(monkeypatch, wrong):
    broken = SimpleNamespace(**{"asarray": np.asarray, "tanh": np.tanh, "asnumpy": np.asarray} | wrong)
    monkeypatch.setitem(sys.modules, "cupy", broken)
    with pytest.raises(BackendError, match="a 2 x 2 matrix product came back wrong"):
        choose_device("gpu")


def test_an_error_without_words_is_named(monkeypatch):
    def silent():
        raise OSError

    monkeypatch.setattr(backend, "_try_cupy", silent)
    assert choose_device("auto").why.endswith("(OSError)")


def test_trees_travel_whole(xp, device):
    tree = {"a": np.arange(3), "b": (np.ones((2, 2), np.float32), None)}
    there = to_device(tree, device)
    assert namespace(there["a"], there["b"][0]) is xp
    assert there["b"][1] is None
    assert_same_bits(there, tree)
    assert namespace(to_host(there)["a"]) is np


def test_arrays_travel_there_and_back_and_nothing_else_does(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", strict.module)
    there = to_device({"a": np.ones(2), "b": None, "steps": 3}, "gpu")
    assert namespace(there["a"]) is strict.module
    assert (there["b"], there["steps"]) == (None, 3)
    assert isinstance(there["steps"], int)
    assert to_device(there, "gpu")["a"].tolist() == [1, 1]
    for back in (to_device(there, "cpu"), to_host(there), {"a": as_host(there["a"])}):
        assert namespace(back["a"]) is np
        assert back["a"].tolist() == [1, 1]


class FakeTensor:
    """Stands for a tensor of PyTorch that belongs to a graph and lies on a GPU: NumPy cannot take it as it is."""

    def __init__(self, *done):
        self.done = done

    def detach(self):
        return FakeTensor(*self.done, "detach")

    def cpu(self):
        return FakeTensor(*self.done, "cpu")

    def __array__(self, dtype=None, copy=None):
        assert self.done == ("detach", "cpu")
        return np.ones(2)


def test_as_host_takes_whatever_can_be_made_an_array(xp):
    for value in ([1.0, 1.0], np.ones(2), xp.ones(2), FakeTensor()):
        assert namespace(as_host(value)) is np
        assert as_host(value).tolist() == [1, 1]
    assert as_host(3).shape == ()


def test_same_place_follows_an_array(xp):
    assert namespace(same_place(np.ones(2), like=xp.zeros(1))) is xp


def test_importing_minadv_imports_neither_cupy_nor_torch():
    code = "import sys; before = set(sys.modules); import minadv; print(*sys.modules.keys() - before)"
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert not {"cupy", "torch"} & set(result.stdout.split())

"""What can be known of a GPU only on one: its kernels compute what the CPU does, in as few launches, and it trains."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from experiments.bench import gpu as bench
from experiments.parts.gpu_steps import Setting, planned, steps_of
from minadv.backend import Device, choose_device, to_device, to_host
from minadv.base.trees import leaves, tree_map
from minadv.models import stack
from minadv.regularizers import AdD
from minadv.tasks.fit import fit
from tests.support import cells
from tests.support.problems import MODEL, sequences

pytestmark = pytest.mark.gpu

H_SIZES = (4, 36, 64, 100, 128, 132)
OFF = {"float32": 5e-6, "float64": 1e-12}
PADDING = {"whole": None, "padded": cells.GAPS}


def run(name: str, H: int, valid: Any, dtype: str, device: Device) -> Any:
    """States and all gradients of a pass by the engine that a model would use, with a mask and a first state."""
    problem = cells.make(name, np.random.default_rng(H), lambda tree: tree, H=H, valid=valid)
    params = replace(problem.params, U=problem.params.U / np.sqrt(H))
    given = (params, problem.args["x"], problem.args["state"], problem.args["m"], problem.dh, problem.dstate)
    params, x, state, m, dh, dstate = tree_map(lambda a: a.astype(dtype), given)
    params, x, state, m, dh, dstate, valid = to_device((params, x, state, m, dh, dstate, valid), device)
    [(h, last, cache)] = stack.run_layer(name, params, [stack.Inputs(x, state, m, valid)])
    wanted = {"weights": True, "inputs": True, "masks": True}
    total, [grads] = stack.run_layer_backward(params, [cache], [dh], [dstate], **wanted)
    return to_host({"h": h, "last": last, "params": total, "x": grads.x, "first": grads.state, "m": grads.m})


@pytest.mark.parametrize("padding", PADDING)
@pytest.mark.parametrize("H", H_SIZES)
@pytest.mark.parametrize("name", ["rnn", "lstm", "gru"])
def test_passes(name: str, H: int, padding: str, gpu: Device, note: dict[str, Any]) -> None:
    if H > 4 and "cpuemu" in gpu.why:
        pytest.skip("an emulated device is slow, and tests/fast/test_cuda_engine.py has these sizes")
    expected = run(name, H, PADDING[padding], "float64", choose_device("cpu"))
    for dtype, limit in OFF.items():
        note[dtype] = bench.gap(run(name, H, PADDING[padding], dtype, gpu), expected)
        assert note[dtype] <= limit


SETTINGS = {
    "rnn": Setting("rnn", 6, 3, 2, (12,), "rnn", delta=0.2),
    "lstm": Setting("lstm", 6, 3, 2, (12,), "lstm", delta=0.2, padded=True),
    "gru": Setting("gru", 4, 2, 2, (132,), "gru", delta=0.2),
    "language model": Setting("language model", 5, 3, 8, (12, 8), words=20, delta=0.3),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_steps(name: str, gpu: Device, note: dict[str, Any]) -> None:
    """Search, distance, flip, clipping and the optimizer: two steps end where they end on the CPU."""
    cpu, setting = choose_device("cpu"), SETTINGS[name].at(dtype="float64")
    ends = []
    for device in (cpu, gpu):
        step = steps_of(planned(setting, device))
        step()
        ends.append(to_host(step()))
    note["float64"] = bench.gap(ends[1], ends[0])
    assert note["float64"] <= 1e-9


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_launches(cell: str, gpu: Device, note: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass is one launch however long it is."""
    from minadv.fast import cuda_engine

    calls: list[str] = []

    def counted(make: Any, name: str) -> Any:
        return lambda *given: tuple(
            lambda *args, kernel=kernel, **how: calls.append(name) or kernel(*args, **how) for kernel in make(*given)
        )

    for name in ("pass_kernels", "step_kernels"):
        monkeypatch.setattr(cuda_engine, name, counted(getattr(cuda_engine, name), name))
    seen, H = [], 8 if "cpuemu" in gpu.why else 100  # an emulated device is slow
    for T in (16, 32):
        step = steps_of(planned(Setting("small", T, 2, 1, (H,), cell, delta=0.3), gpu))
        step()
        calls.clear()
        step()
        seen.append(calls.count("pass_kernels"))
        assert calls.count("step_kernels") == 0
    note["launches of passes"] = seen
    assert seen[0] == seen[1]
    assert 0 < seen[0] <= 6


def test_memory_does_not_grow(gpu: Device, note: dict[str, Any]) -> None:
    step, pool = steps_of(planned(SETTINGS["lstm"], gpu)), gpu.xp.get_default_memory_pool()
    held = []
    for _ in range(6):
        step()
        held.append(int(pool.total_bytes()))
    note["bytes held"] = held
    assert held[-1] == held[2]


@pytest.mark.parametrize("dtype", OFF)
def test_a_short_training(dtype: str, gpu: Device, note: dict[str, Any]) -> None:
    how: dict[str, Any] = {"regularizer": AdD(delta=0.34), "epochs": 2, "batch_size": 20, "lr": 0.05, "workers": 1}
    here, there = (
        fit(MODEL, sequences(np.dtype(dtype)), device=device, progress=False, **how)
        for device in (choose_device("cpu"), gpu)
    )
    losses = [record["valid_loss"] for record in there.records]
    note["losses"] = losses
    assert losses[-1] < losses[0]
    assert losses[-1] == pytest.approx(here.records[-1]["valid_loss"], rel=1e-9 if dtype == "float64" else 0.05)
    assert all(np.isfinite(a).all() for _, a in leaves(there.params))

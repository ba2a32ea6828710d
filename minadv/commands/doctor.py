r"""``minadv doctor``: whether the installation is sound."""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

import numpy as np

from minadv import gradcheck, lstm
from minadv.backend import Array, choose_device, namespace, same_place, to_device
from minadv.base import machine
from minadv.base.trees import leaves, tree_map
from minadv.commands.options import DEVICES
from minadv.data import fetch
from minadv.fast import describe
from minadv.models import stack
from minadv.training.runs import packing
from minadv.training.runs.log import versions


def add_options(parser: argparse.ArgumentParser, arguments: list[str]) -> None:
    """The options of ``minadv doctor``."""
    parser.add_argument(
        "--device", choices=DEVICES, default="auto", help="the device to check; auto: the GPU if it works"
    )


def work(args: argparse.Namespace) -> None:
    """Print versions, the device and why it is used, BLAS and threads, memory, and a gradient check on the device."""
    for name, version in versions().items():
        print(f"{name:8} {version}")
    device = choose_device(args.device)
    print(f"{'device':8} {device.why}")
    about = describe(device.name == "gpu")
    print(f"{'cores':8} {_cores()}")
    print(f"{'threads':8} {_threads([library['num_threads'] for library in about.blas])}")
    print(f"{'steps':8} {about.why}")
    print(f"{'compiled':8} {about.compiled}")
    print(f"{'memory':8} {_memory()}")
    print(f"{'data':8} {fetch.data_root()}")
    print(f"{'saving':8} {_saving()}")
    started = time.perf_counter()
    rng = np.random.default_rng(0)
    T, B, I, H = 6, 3, 2, 5
    params, x = to_device((lstm.init(rng, I, H, dtype=np.float64), rng.standard_normal((T, B, I))), device)
    m = same_place((rng.random((B, H)) > 0.3).astype(float), x)
    report = gradcheck.check(
        lambda params, x, m: lstm.forward(params, x, m=m)[0],
        lambda a, dh: _gradients(a, dh),
        {"params": params, "x": x, "m": m},
        rng=rng,
    )
    print(report)
    gap = _single_precision(params, x, m)
    print(f"single precision is within {gap:.0e} of double")
    print(f"in {time.perf_counter() - started:.2f} s")
    report.raise_if_failed()
    if not gap < 1e-5:
        raise gradcheck.GradientError(
            f"single precision is {gap:.0e} off, expected less than 1e-05: set MINADV_COMPILED=0"
        )


def _single_precision(params: lstm.Params, x: Array, m: Array) -> float:
    """The largest gap between single and double precision in states and gradients of an LSTM, run by the engine."""
    outcomes = []
    for dtype in (np.float64, np.float32):
        args: dict[str, Any] = tree_map(lambda a, to=dtype: a.astype(to), {"params": params, "x": x, "m": m})
        [(h, _, cache)] = stack.run_layer("lstm", args["params"], [stack.Inputs(args["x"], m=args["m"])])
        wanted = {"weights": True, "inputs": True, "masks": True}
        back = stack.run_layer_backward(args["params"], [cache], [namespace(h).ones_like(h)], [None], **wanted)
        outcomes.append((h, back))
    both = zip(leaves(outcomes[0]), leaves(outcomes[1]), strict=True)
    return max(float(abs(single - double).max()) for (_, double), (_, single) in both)


def _gradients(args: dict[str, Any], dh: Array) -> dict[str, Any]:
    params, x, m = args["params"], args["x"], args["m"]
    _, _, cache = lstm.forward(params, x, m=m)
    grads = lstm.backward(params, cache, dh)
    return {"params": grads.params, "x": grads.x, "m": grads.m}


def _cores() -> str:
    """How many cores this process may use and what decides that, in words."""
    quota, setting = machine.quota(), os.environ.get(machine.CORES)
    reasons = [f"it may run on {len(machine.affinity())}"]
    reasons += [] if quota is None else [f"its control group grants the time of {quota:g}"]
    reasons += [f"{machine.CORES}={setting}"] if setting else []
    return f"{machine.cores()} of {os.cpu_count()} ({', '.join(reasons)})"


def _threads(blas: list[int]) -> str:
    """How many threads there are at most: workers times BLAS threads of each, in words; ``blas`` has its libraries'."""
    cores, setting = machine.cores(), machine.blas_setting()
    if not blas and machine.blas_most() != 1:
        return "BLAS threads as BLAS decides in each worker: install threadpoolctl to let minadv set them"
    large = min(cores, machine.blas_most() or cores, max(blas, default=1))
    several = "s" * (cores > 1)
    small = f"{cores} worker{several} x 1 BLAS thread = {cores}"
    said = f"{small} for small networks, 1 worker x {large} = {large} for large ones, on {cores} core{several}"
    if setting and machine.blas_most() is None:
        return f"{said}; {setting} is not understood, expected a whole number of at least 1"
    return said + (f"; at most as many BLAS threads as {setting} says" if setting else "")


def _saving() -> str:
    """Whether runs can be saved, in words."""
    try:
        packing.safetensors()
    except ImportError as error:
        return f"{error}; without it nothing can be trained into a folder"
    return "checkpoints by safetensors"


def _memory() -> str:
    """The machine's memory and what this process may still take of it, in words, where the system tells them."""
    total, there = machine.memory().get("MemTotal"), machine.available_memory()
    if total is None or there is None:
        return "unknown"
    return f"{total / 2**30:.1f} GiB, {there / 2**30:.1f} GiB available"

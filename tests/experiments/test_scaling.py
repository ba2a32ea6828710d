"""The cost model of data-parallel training: its fits, its forecasts, and the tasks that it is measured with."""

import math
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("threadpoolctl")
pytest.importorskip("tqdm")

from experiments import scaling
from experiments.parts import scaling_tables
from experiments.parts.scaling_model import Cluster, Compute, Gpu, Network, Size, fit_compute, fit_network, forecast
from minadv.base.trees import leaves, tree_add
from minadv.models.language.model import LanguageModel
from minadv.training.parallel.workers import Part
from tests.support.compare import assert_close

TINY = [
    Size("sMNIST", T=6, B=8, layers=((1, 5),), n_out=3),
    Size("text", T=6, B=8, layers=((4, 5),), n_out=2, n_words=11, n_relu=20),
    Size("PTB", T=6, B=8, layers=((4, 5), (5, 6), (6, 4)), n_out=11, n_words=11, every_step=True),
]


@pytest.mark.parametrize("size", TINY, ids=lambda size: size.name)
def test_a_share_of_the_batch_is_a_share_of_the_step(size: Size) -> None:
    task = scaling.make_task(size, delta=0.5)
    params = task.init()
    assert sum(leaf.size for _, leaf in leaves(params)) == size.n_params
    whole, _ = task.term(params, 2, weight=1.0, carry=None)
    total = None
    for n in range(3):
        part, _ = task.term(params, 2, weight=1.0, carry=None, part=Part(n, 3))
        total = tree_add(total, part.grads)
    assert_close(total, whole.grads, 1e-5)


def test_the_sizes_are_the_papers() -> None:
    smnist, text, ptb = scaling.SIZES
    assert smnist.n_params == 4 * 100 * 102 + 101 * 10
    assert text.n_params == 87_000 * 256 + 4 * 1024 * (256 + 1024 + 1) + 1025 * 30 + 31 * 2
    assert ptb.n_params == LanguageModel(10_000).n_params


def test_the_fits_find_what_is_there() -> None:
    true = Compute(0.2, 3e-3, 5e-5)
    points = [(T, b, true.seconds(T, b)) for T, b in ((70, 20), (70, 5), (35, 20), (35, 1))]
    assert asdict(fit_compute(points)) == pytest.approx(asdict(true))
    for N in (2, 4, 6):
        link = Network(2e-5, 3e9)
        found = fit_network(N, [(n, link.seconds(N, n)) for n in (1000, 10**6, 10**8)])
        assert (found.latency, found.bandwidth) == pytest.approx((link.latency, link.bandwidth))


def test_no_constant_is_negative() -> None:
    found = fit_compute([(10, 4, 1.0), (20, 4, 2.2), (40, 4, 4.6), (40, 1, 1.15)])  # a line with a negative start
    assert min(found.c0, found.c1, found.c2) >= 0


def test_the_sum_of_one_costs_nothing() -> None:
    link = Network(1e-3, 1e9, copies=2e9)
    assert link.seconds(1, 10**9) == 0
    assert link.seconds(2, 10**9) == pytest.approx(2e-3 + 1 + 1)
    assert link.seconds(8, 10**9) == pytest.approx(6e-3 + 1.75 + 1)


def test_forecasts() -> None:
    size, measured = replace(TINY[0], T=10, B=20), Compute(0.5, 0.0, 0.1)
    link = Network(0.0, size.nbytes / 2.0)  # two seconds to send the whole
    f = forecast(size, Cluster("many", 64, link), measured)
    assert f.N == 20  # one example each
    assert (f.alone, f.compute, f.sum) == pytest.approx((20.5, 1.5, 2 * 2 * 19 / 20))
    assert f.speedup == pytest.approx(20.5 / 5.3)
    assert f.efficiency == pytest.approx(20.5 / 24.3)
    three = forecast(size, Cluster("few", 3, link), measured)
    assert three.compute == pytest.approx(0.5 + 10 * 0.1 * 7)  # the rank with the most has seven


def test_a_gpu_waits_for_its_host_or_computes() -> None:
    size = TINY[2]
    slow = Gpu(flops=1.0, launch=0.0, loop=0.0, memory=math.inf).compute(size, 8)
    assert slow.seconds(size.T, 8) == pytest.approx(size.T * size.flops(8))
    loops = Gpu(flops=math.inf, launch=1.0, loop=0.1, memory=10.0 * size.nbytes).compute(size, 8)
    assert loops.seconds(size.T, 8) == pytest.approx(100 + 1 + size.T * 6 * 3 * 0.1)  # three layers, a launch each
    wide = replace(size, layers=((4, 200), (200, 128)))
    waits = Gpu(flops=math.inf, launch=1.0, loop=0.1, memory=10.0 * wide.nbytes).compute(wide, 8)
    assert waits.seconds(size.T, 8) == pytest.approx(100 + 1 + size.T * 6 * (2 + 0.1))


def test_the_page() -> None:
    size = TINY[0]
    measured = Compute(0.1, 1e-3, 1e-4)
    points = [(T, b, measured.seconds(T, b)) for T, b in ((6, 8), (6, 2), (3, 8), (3, 1))]
    sums = [(1000, 1e-4), (10**6, 1e-3)]
    step = {"T": 6, "seconds": 0.09, "sum": 1e-3, "wait": 2e-3}
    results: dict[str, Any] = {
        "facts": {"repeats": 2, "command": "the command", "seconds": 3.0, "cores": 2, "cpu": "a CPU", "numpy": "2"},
        "alone": {"sMNIST": {"points": points, "fit": asdict(fit_compute(points))}},
        "ranks": {"2": {"sums": sums, "steps": {"sMNIST": step}}, "4": {"sums": sums, "steps": {}}},
        "networks": {"2": {"latency": 1e-5, "bandwidth": 1e9}, "4": {"latency": 1e-4, "bandwidth": 2e9}},
        "forecasts": [asdict(forecast(size, cluster, measured)) for cluster in scaling.CLUSTERS],
    }
    text = scaling_tables.page(results, [size], scaling.GPU, scaling.CLUSTERS)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    assert ["bytes", "2 ranks", "4 ranks on 2 cores"] in rows
    assert ["bandwidth β", "1 GB/s", "2 GB/s"] in rows
    [[*_, speedup, model]] = [row for row in rows if row[:2] == ["sMNIST (T=6)", "2"]]
    assert float(speedup) == pytest.approx(points[0][2] / 0.09, abs=0.01)
    assert float(model.split()[0]) == pytest.approx(0.1 + 6 * (1e-3 + 4e-4) + 2e-5 + size.nbytes / 1e9, rel=0.01)
    assert sum(row[0] == cluster.name for row in rows for cluster in scaling.CLUSTERS) == len(scaling.CLUSTERS)


def test_the_time_of_a_step_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(scaling.DELTA, "sMNIST", 0.5)
    monkeypatch.setitem(scaling.LENGTHS, "sMNIST", (8, 4))
    found = scaling.measure_alone(replace(TINY[0], B=20), repeats=1, shorter=2)
    assert [(T, b) for T, b, _ in found["points"]] == [(4, 20), (4, 5), (4, 1), (2, 20), (2, 1)]
    assert all(seconds > 0 for _, _, seconds in found["points"])
    assert np.isfinite(list(found["fit"].values())).all()

r"""The page of `experiments.scaling`: what was measured, what the cost model forecasts, and what it assumes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.parts import reporting
from experiments.parts.scaling_model import BESIDE, LAUNCHES, ONE_LAUNCH, Cluster, Compute, Forecast, Gpu, Network, Size


def page(results: dict[str, Any], sizes: Sequence[Size], gpu: Gpu, clusters: Sequence[Cluster]) -> str:
    """All tables, each under a line that says what it is."""
    parts = [
        HEADING.format(**results["facts"]),
        f"One process, one core:\n\n{alone(results, sizes)}",
        f"The Allreduce between ranks on this machine, over shared memory:\n\n{sums(results)}",
        f"Whole steps on ranks that have a core each:\n\n{steps(results, sizes)}",
        f"Carried further by the model. Assumed, not measured:\n\n{assumptions(gpu, clusters)}",
        forecasts(results),
    ]
    return "\n\n".join(parts) + "\n"


def alone(results: dict[str, Any], sizes: Sequence[Size]) -> str:
    """The constants of each size, and the seconds of a step of the paper's length that they give."""
    rows = []
    for size in sizes:
        found = results["alone"][size.name]
        fit = Compute(**found["fit"])
        worst = max(abs(fit.seconds(T, b) / t - 1) for T, b, t in found["points"])
        measured = ", ".join(f"{t:.3g} s (T={T}, b={b})" for T, b, t in found["points"])
        rows.append(
            [
                f"{size.name} (T={size.T}, B={size.B})",
                f"{size.n_params / 1e6:.3g} M",
                measured,
                f"{fit.c0:.3g} s",
                f"{1e3 * fit.c1:.3g} ms",
                f"{1e3 * fit.c2:.3g} ms",
                f"{100 * worst:.0f} %",
                f"{fit.seconds(size.T, size.B):.3g} s",
            ]
        )
    head = ["size", "parameters", "measured", "c₀", "c₁", "c₂", "largest misfit", "a step of the paper's length"]
    return reporting.markdown(head, rows)


def sums(results: dict[str, Any]) -> str:
    """Seconds of an Allreduce by bytes and ranks, and the latency and bandwidth fitted to them."""
    ranks = results["ranks"]
    sizes = sorted({n for found in ranks.values() for n, _ in found["sums"]})
    rows = [
        [f"{nbytes:,}", *(f"{1e3 * dict(map(tuple, found['sums']))[nbytes]:.3g} ms" for found in ranks.values())]
        for nbytes in sizes
    ]
    links = [Network(**found) for found in results["networks"].values()]
    rows.append(["latency α", *(f"{1e6 * link.latency:.3g} µs" for link in links)])
    rows.append(["bandwidth β", *(f"{link.bandwidth / 1e9:.3g} GB/s" for link in links)])
    cores = results["facts"]["cores"]
    heads = [f"{n} ranks" + (f" on {cores} cores" if int(n) > cores else "") for n in ranks]
    return reporting.markdown(["bytes", *heads], rows)


def steps(results: dict[str, Any], sizes: Sequence[Size]) -> str:
    """Measured steps on several ranks beside the cost model's forecast of them."""
    rows = []
    for n, found in results["ranks"].items():
        for size in sizes:
            if size.name not in found["steps"]:
                continue
            step, N = found["steps"][size.name], int(n)
            fit, link = Compute(**results["alone"][size.name]["fit"]), Network(**results["networks"][n])
            one = next(t for T, b, t in results["alone"][size.name]["points"] if (T, b) == (step["T"], size.B))
            model = fit.seconds(step["T"], -(-size.B // N)) + link.seconds(N, size.nbytes)
            rows.append(
                [
                    f"{size.name} (T={step['T']})",
                    n,
                    f"{one:.3g} s",
                    f"{step['seconds']:.3g} s",
                    f"{1e3 * step['sum']:.3g} ms",
                    f"{1e3 * step['wait']:.3g} ms",
                    f"{one / step['seconds']:.2f}",
                    f"{model:.3g} s",
                ]
            )
    head = [
        "size",
        "ranks",
        "a step on 1",
        "a step",
        "of it Allreduce",
        "waiting for it",
        "speed-up",
        "the model's step",
    ]
    return reporting.markdown(head, rows)


def assumptions(gpu: Gpu, clusters: Sequence[Cluster]) -> str:
    """What the forecasts assume of GPUs and networks, in words."""
    lines = [
        f"- a GPU sustains {gpu.flops / 1e12:.3g} TFLOP/s of float32 in the matrix products;",
        f"- to start a kernel or a matrix product takes the host {1e6 * gpu.launch:.0f} µs; tests count these:",
        f"  {BESIDE} a step, and {LAUNCHES} a time step, pass and layer of more than {ONE_LAUNCH} units, whatever",
        "  the batch; the longer of computing and starting counts;",
        f"- a layer of up to {ONE_LAUNCH} units is one launch a pass, in which a time step",
        f"  takes {1e6 * gpu.loop:.0f} µs;",
        f"- an update goes over the parameters ten times, at {gpu.memory / 1e12:.3g} TB/s;",
        "- a core is one of this machine's; there are no more ranks than the batch has examples;",
    ]
    for cluster in clusters:
        link = cluster.network
        copies = (
            "" if link.copies == float("inf") else f", and {link.copies / 1e9:.3g} GB/s to the host and the same back"
        )
        lines.append(
            f"- {cluster.name}: {1e6 * link.latency:.3g} µs a message, {link.bandwidth / 1e9:.3g} GB/s a link{copies};"
        )
    return "\n".join(lines)[:-1] + "."


def forecasts(results: dict[str, Any]) -> str:
    rows = []
    for found in results["forecasts"]:
        f = Forecast(**found)
        rows.append(
            [
                f.cluster,
                f.size,
                str(f.N),
                f"{f.alone:.3g} s",
                f"{f.compute:.3g} s",
                f"{1e3 * f.sum:.3g} ms",
                f"{f.speedup:.1f}",
                f"{100 * f.efficiency:.0f} %",
            ]
        )
    head = [
        "machines",
        "size",
        "used",
        "a step on one",
        "shared: compute",
        "Allreduce",
        "speed-up",
        "efficiency, a batch each",
    ]
    return reporting.markdown(head, rows)


HEADING = """# Compute against Allreduce

A step of AdD (K = 1, float32), update included; medians of {repeats} steps. t = c₀ + T (c₁ + c₂ b) + Allreduce for b
examples a rank; Allreduce = 2 ⌈log₂ N⌉ α + 2 (N−1)/N · bytes / β. `{command}`, {seconds:.0f} s on {cores} cores
({cpu}), NumPy {numpy}."""

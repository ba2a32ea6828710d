"""The three recurrences as a textbook writes them: one unit of one example at a time, on the host, with no shortcuts.

`nudge (T, B, H)` is added to the masked copy of the state that enters each step and nowhere else, so that a finite
difference in it is the derivative that `Grads.hhat` claims to be.
"""

from math import exp, tanh
from typing import Any

import numpy as np

from minadv import gru, lstm, rnn
from minadv.backend import to_host


def sigma(z: float) -> float:
    return 1 / (1 + exp(-z))


def rnn_unit(p: Any, j: int, x: Any, hhat: Any, h: float, c: float) -> tuple[float, float]:
    return tanh(x @ p.W[:, j] + hhat @ p.U[:, j] + p.b[j]), c


def lstm_unit(p: Any, j: int, x: Any, hhat: Any, h: float, c: float) -> tuple[float, float]:
    H = hhat.size
    i, f, g, o = (x @ p.W[:, k] + hhat @ p.U[:, k] + p.b[k] for k in (j, H + j, 2 * H + j, 3 * H + j))
    c = sigma(f) * c + sigma(i) * tanh(g)
    return sigma(o) * tanh(c), c


def gru_unit(p: Any, j: int, x: Any, hhat: Any, h: float, c: float) -> tuple[float, float]:
    H = hhat.size
    r, z = (sigma(x @ p.W[:, k] + hhat @ p.U[:, k] + p.b[k]) for k in (j, H + j))
    n = tanh(x @ p.W[:, 2 * H + j] + p.b[2 * H + j] + r * (hhat @ p.U[:, 2 * H + j] + p.bn[j]))
    return (1 - z) * n + z * h, c


UNITS = {rnn: rnn_unit, lstm: lstm_unit, gru: gru_unit}


def run(problem: Any, nudge: Any = None) -> tuple[Any, Any]:
    """h (T, B, H) and the last state of a problem of `tests.support.cells`."""
    args, valid = to_host(problem.args), to_host(problem.valid)
    p, x, start = args["params"], args["x"], args.get("state")
    (T, B, _), H = x.shape, p.U.shape[0]
    m = args.get("m", np.ones((B, H)))
    unit, State = UNITS[problem.cell], problem.cell.State
    out, last = np.zeros((T, B, H)), {name: np.zeros((B, H)) for name in State.__dataclass_fields__}
    for b in range(B):
        h = np.zeros(H) if start is None else start.h[b]
        c = np.zeros(H) if not hasattr(start, "c") else start.c[b]
        for t in range(T):
            if valid is None or valid[t, b]:
                hhat = m[b] * h
                if nudge is not None:
                    hhat = hhat + nudge[t, b]
                leak = hhat if problem.options.get("leak") == "masked" else h
                pairs = [unit(p, j, x[t, b], hhat, leak[j], c[j]) for j in range(H)]
                h, c = np.array([h for h, _ in pairs]), np.array([c for _, c in pairs])
            out[t, b] = h
        for name, final in {"h": h, "c": c}.items():
            if name in last:
                last[name][b] = final
    return out, State(**last)

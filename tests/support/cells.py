"""Problems for the cells: everything that a forward and a backward take, drawn from one generator."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from minadv import gru, lstm, rnn
from minadv.base.trees import tree_map

CELLS: dict[str, tuple[Any, dict[str, Any]]] = {
    "rnn": (rnn, {}),
    "lstm": (lstm, {}),
    "gru": (gru, {}),
    "gru-masked-leak": (gru, {"leak": "masked"}),
}

RAGGED = np.array([[1, 1, 1], [1, 1, 0], [1, 1, 0], [1, 0, 0]], dtype=bool)  # (4, 3), lengths 4, 3, 1
GAPS = np.array([[1, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 1]], dtype=bool)  # (4, 3), padding anywhere


@dataclass(frozen=True)
class Problem:
    """A cell with its arguments; `args` holds what one differentiates by: params, x, and, if given, state and m."""

    cell: Any
    options: dict[str, Any]
    args: dict[str, Any]
    valid: Any = None
    dh: Any = field(default=None, repr=False)
    dstate: Any = field(default=None, repr=False)

    @property
    def params(self) -> Any:
        return self.args["params"]

    def forward(self, **changed: Any) -> tuple[Any, Any, Any]:
        given = {"state": None, "m": None, "valid": self.valid, **self.args, **changed}
        params, x = given.pop("params"), given.pop("x")
        return self.cell.forward(params, x, **given, **self.options)

    def run(self, **changed: Any) -> tuple[Any, Any, Any]:
        """Forward and backward with the problem's own cotangents: h, the last state and the gradients."""
        h, state, cache = self.forward(**changed)
        params = changed.get("params", self.params)
        return h, state, self.cell.backward(params, cache, self.dh, dstate=self.dstate)


def draw_mask(rng: np.random.Generator, shape: tuple[int, ...], kind: str | None) -> Any:
    """`binary`: ones and zeros; `scaled`: the same over the share kept; `real`: any number."""
    if kind is None:
        return None
    if kind == "real":
        return rng.uniform(-1, 2, shape)
    return rng.integers(0, 2, shape) / (0.5 if kind == "scaled" else 1.0)


def make(
    name: str,
    rng: np.random.Generator,
    put: Callable[[Any], Any],
    *,
    T: int = 4,
    B: int = 3,
    I: int = 2,
    H: int = 3,
    mask: Any = "real",
    state: bool = True,
    valid: Any = None,
) -> Problem:
    """A problem of moderate size in float64; `mask` is a kind of `draw_mask` or the mask itself."""
    cell, options = CELLS[name]

    def states() -> Any:
        return cell.State(*(rng.uniform(-1, 1, (B, H)) for _ in fields(cell.State)))

    args = {
        "params": tree_map(lambda a: rng.uniform(-1, 1, a.shape), cell.init(rng, I, H, dtype=np.float64)),
        "x": rng.standard_normal((T, B, I)),
    }
    if state:
        args["state"] = states()
    if mask is not None:
        args["m"] = draw_mask(rng, (B, H), mask) if isinstance(mask, str) else mask
    dh = rng.standard_normal((T, B, H))
    return Problem(cell, options, put(args), put(valid), put(dh), put(states()))


@st.composite
def sizes_and_masks(
    draw: st.DrawFn, longest: int = 4, paddings: tuple[str, ...] = ("none", "end", "front", "anywhere")
) -> dict[str, Any]:
    """Keywords of `make`: sizes from 1 up; no mask or one of any kind; padding nowhere, at an end or anywhere."""
    T, B, I, H = (draw(st.integers(1, top)) for top in (longest, 3, 2, 3))
    padding = draw(st.sampled_from(paddings))
    valid = None
    if padding in ("end", "front"):
        lengths = draw(st.lists(st.integers(0, T), min_size=B, max_size=B))
        valid = (np.arange(T)[:, None] < np.array(lengths))[:: 1 if padding == "end" else -1]
    elif padding == "anywhere":
        valid = draw(arrays(bool, (T, B)))
    mask: Any = draw(st.sampled_from([None, "binary", "scaled", "real"]))
    if mask in ("binary", "scaled"):
        mask = draw(arrays(bool, (B, H))) * (2.0 if mask == "scaled" else 1.0)
    return {"T": T, "B": B, "I": I, "H": H, "mask": mask, "valid": valid, "state": draw(st.booleans())}


seeds = st.integers(0, 2**32 - 1).map(np.random.default_rng)

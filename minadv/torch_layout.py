r"""Weights to and from the array layout of PyTorch's ``nn.RNN``, ``nn.LSTM`` and ``nn.GRU`` state dicts.

Arrays only; torch itself is never imported (``{k: v.numpy() for k, v in module.state_dict().items()}`` makes the
dict). PyTorch stores transposed matrices in the same gate order, and two biases where one does the work:

* `from_torch` adds ``bias_ih`` and ``bias_hh`` into ``b``, except that the n block of a GRU's ``bias_hh`` stands inside
  the reset and becomes ``bn``;
* `to_torch` writes ``b`` as ``bias_ih`` and zeros (for a GRU, ``bn``) as ``bias_hh``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minadv import gru, lstm, rnn
from minadv.backend import Array, namespace
from minadv.base.checks import expect_choice, expect_shape

_BLOCKS = {"rnn": 1, "lstm": 4, "gru": 3}


def from_torch(cell: str, arrays: Mapping[str, Array], layer: int = 0) -> Any:
    """Parameters of ``cell`` (``"rnn"``, ``"lstm"`` or ``"gru"``) from one layer of a state dict of arrays."""
    expect_choice("cell", cell, _BLOCKS)
    names = [f"{kind}_l{layer}" for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    missing = [name for name in names if name not in arrays]
    if missing:
        raise ValueError(f"the state dict lacks {', '.join(missing)}; it has {', '.join(arrays)}")
    weight_ih, weight_hh, bias_ih, bias_hh = (arrays[name] for name in names)
    xp = namespace(**{name: arrays[name] for name in names})
    expect_shape(names[1], weight_hh, ("nH", "H"))
    H = weight_hh.shape[1]
    rows = _BLOCKS[cell] * H
    expect_shape(names[1], weight_hh, (rows, H), f"{_BLOCKS[cell]} blocks of H = {H} rows for {cell}")
    expect_shape(names[0], weight_ih, (rows, "I"), f"{names[1]} has {rows} rows")
    for name, bias in ((names[2], bias_ih), (names[3], bias_hh)):
        expect_shape(name, bias, (rows,), f"{names[1]} has {rows} rows")

    W, U = xp.ascontiguousarray(weight_ih.T), xp.ascontiguousarray(weight_hh.T)
    if cell == "gru":
        b = bias_ih.copy()
        b[: 2 * H] += bias_hh[: 2 * H]
        return gru.Params(W, U, b, bias_hh[2 * H :].copy())
    module = rnn if cell == "rnn" else lstm
    return module.Params(W, U, bias_ih + bias_hh)


def to_torch(params: rnn.Params | lstm.Params | gru.Params, layer: int = 0) -> dict[str, Array]:
    """One layer of a PyTorch state dict, as arrays, from the parameters of a cell."""
    xp = namespace(params.W)
    bias_hh = xp.zeros_like(params.b)
    if isinstance(params, gru.Params):
        bias_hh[-params.bn.size :] = params.bn
    return {
        f"weight_ih_l{layer}": xp.ascontiguousarray(params.W.T),
        f"weight_hh_l{layer}": xp.ascontiguousarray(params.U.T),
        f"bias_ih_l{layer}": params.b.copy(),
        f"bias_hh_l{layer}": bias_hh,
    }

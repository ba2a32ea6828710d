r"""Weights to and from the array layout of PyTorch's ``nn.RNN``, ``nn.LSTM`` and ``nn.GRU`` state dicts.

::

    params = from_torch("lstm", module.state_dict())             # one layer; tensors or arrays
    cells = layers_from_torch("lstm", net.state_dict())          # all layers, below whatever name they have in net
    module.load_state_dict({k: torch.from_numpy(a) for k, a in to_torch(cells).items()})

torch itself is never imported. PyTorch stores transposed matrices in the same gate order, and two biases where one does
the work:

* `from_torch` adds ``bias_ih`` and ``bias_hh`` into ``b``, except that the n block of a GRU's ``bias_hh`` stands inside
  the reset and becomes ``bn``;
* `to_torch` writes ``b`` as ``bias_ih`` and zeros (for a GRU, ``bn``) as ``bias_hh``.

The cells of minadv read forward only: the state dict of a bidirectional module is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minadv import gru, lstm, rnn
from minadv.backend import Array, as_host, namespace
from minadv.base.checks import expect_choice, expect_shape

_BLOCKS = {"rnn": 1, "lstm": 4, "gru": 3}


def from_torch(cell: str, arrays: Mapping[str, Any], layer: int = 0, *, prefix: str | None = None) -> Any:
    """Parameters of ``cell`` (``"rnn"``, ``"lstm"`` or ``"gru"``) from one layer of a state dict of tensors or arrays.

    ``prefix`` is what stands before the names in the state dict of a larger module, such as ``"encoder.rnn."``; it is
    found where only one cell is there. Biases that the module does not have are zeros.
    """
    expect_choice("cell", cell, _BLOCKS)
    arrays = _of_cell(arrays, prefix)
    names = [f"{kind}_l{layer}" for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    present = [name for name in names if name in arrays]
    missing = [name for name in names if name not in arrays]
    if missing and present != names[:2]:
        raise ValueError(f"the state dict lacks {', '.join(missing)}; it has {', '.join(arrays)}")
    xp = namespace(**{name: arrays[name] for name in present})
    weight_ih, weight_hh = (arrays[name] for name in names[:2])
    expect_shape(names[1], weight_hh, ("nH", "H"))
    H = weight_hh.shape[1]
    rows = _BLOCKS[cell] * H
    expect_shape(names[1], weight_hh, (rows, H), f"{_BLOCKS[cell]} blocks of H = {H} rows for {cell}")
    expect_shape(names[0], weight_ih, (rows, "I"), f"{names[1]} has {rows} rows")
    bias_ih, bias_hh = (arrays[name] if name in arrays else xp.zeros(rows, weight_hh.dtype) for name in names[2:])
    for name, bias in ((names[2], bias_ih), (names[3], bias_hh)):
        expect_shape(name, bias, (rows,), f"{names[1]} has {rows} rows")

    W, U = weight_ih.T.copy(), weight_hh.T.copy()
    if cell == "gru":
        b = bias_ih.copy()
        b[: 2 * H] += bias_hh[: 2 * H]
        return gru.Params(W, U, b, bias_hh[2 * H :].copy())
    module = rnn if cell == "rnn" else lstm
    return module.Params(W, U, bias_ih + bias_hh)


def layers_from_torch(cell: str, arrays: Mapping[str, Any], *, prefix: str | None = None) -> tuple[Any, ...]:
    """The parameters of every layer of a state dict, the first layer first; otherwise as `from_torch`."""
    own = _of_cell(arrays, prefix)
    n = sum(name.startswith("weight_hh_l") for name in own)
    return tuple(from_torch(cell, own, layer, prefix="") for layer in range(max(1, n)))


def _of_cell(arrays: Mapping[str, Any], prefix: str | None) -> dict[str, Array]:
    """The arrays of one cell without their prefix, tensors as arrays; refuses what the cells of minadv cannot do."""
    if not isinstance(arrays, Mapping):
        raise TypeError(f"arrays is a {type(arrays).__name__}, expected a state dict: give module.state_dict()")
    if prefix is None:
        found = {name[: match.start()] for name in arrays if (match := re.search(r"weight_hh_l\d+$", name))}
        if len(found) > 1:
            raise ValueError(f"the state dict has several cells: give prefix, of {', '.join(map(repr, sorted(found)))}")
        prefix = found.pop() if found else ""
    own = {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}
    if not own:
        raise ValueError(f"prefix is {prefix!r}, and no name begins with it; the state dict has {', '.join(arrays)}")
    if backwards := [name for name in own if re.search(r"_l\d+_reverse$", name)]:
        raise ValueError(
            f"the state dict has {backwards[0]}: a bidirectional module, and minadv's cells read forward only"
        )
    if projected := [name for name in own if name.startswith("weight_hr_l")]:
        raise ValueError(f"the state dict has {projected[0]}: minadv's cells have no projection, proj_size must be 0")
    return {name: as_host(a) if hasattr(a, "detach") else a for name, a in own.items()}


def classifier_from_torch(module: Any) -> tuple[str, tuple[Any, ...], Array, Array]:
    r"""The cell's name, its layers, V (H, C) and b (C,) of a module with one RNN, LSTM or GRU and a softmax.

    The softmax is the module's one ``nn.Linear`` that takes H inputs; weights of anything else are refused. One with a
    single output z is the two-class case (0, z): class 1 has the probability :math:`\sigma(z)`.
    """
    if not hasattr(module, "named_modules"):
        raise TypeError(f"module is a {type(module).__name__}, expected a module with a cell and a softmax")
    inside = dict(module.named_modules())
    cells = {name: one for name, one in inside.items() if type(one).__name__ in ("RNN", "LSTM", "GRU")}
    if len(cells) != 1:
        raise ValueError(f"{type(module).__name__} has {len(cells)} modules RNN, LSTM or GRU, expected one")
    [(at, cell)] = cells.items()
    if getattr(cell, "nonlinearity", "tanh") != "tanh":
        raise ValueError(f"{at or 'the module'} has the nonlinearity {cell.nonlinearity!r}, expected 'tanh'")
    kind = type(cell).__name__.lower()
    params = layers_from_torch(kind, cell.state_dict())
    H = params[0].U.shape[0]
    heads = {n: one for n, one in inside.items() if type(one).__name__ == "Linear" and one.in_features == H}
    if len(heads) != 1:
        raise ValueError(
            f"{type(module).__name__} has {len(heads)} modules Linear that take H = {H} inputs, expected one"
        )
    [(answer, head)] = heads.items()
    _expect_no_more(module, inside, at, answer)
    V = as_host(head.weight).T.copy()
    b = np.zeros(V.shape[1], V.dtype) if head.bias is None else as_host(head.bias).copy()
    if V.shape[1] == 1:
        V, b = np.concatenate([0 * V, V], axis=1), np.concatenate([0 * b, b])
    return kind, params, V, b


def _expect_no_more(module: Any, inside: Mapping[str, Any], *used: str) -> None:
    """Raise ValueError for parameters or buffers of a module that are in none of the parts of these names."""
    parts = tuple(f"{name}." for name in used)
    more = [name for name in module.state_dict() if not name.startswith(parts)]
    if more:
        owner = more[0].rpartition(".")[0]
        said = f"{type(module).__name__} has {more[0]} ({type(inside[owner]).__name__})"
        raise ValueError(
            f"{said} beside {' and '.join(used)}: a Classifier is a cell and a softmax alone; "
            "minadv.torch_door takes any network"
        )


def to_torch(params: Any, layer: int = 0) -> dict[str, Array]:
    """One layer of a PyTorch state dict, as arrays, from the parameters of a cell; of a tuple of them, all layers."""
    if isinstance(params, Sequence):
        return {name: a for n, one in enumerate(params, layer) for name, a in to_torch(one, n).items()}
    xp = namespace(params.W)
    bias_hh = xp.zeros_like(params.b)
    if isinstance(params, gru.Params):
        bias_hh[-params.bn.size :] = params.bn
    return {
        f"weight_ih_l{layer}": params.W.T.copy(),
        f"weight_hh_l{layer}": params.U.T.copy(),
        f"bias_ih_l{layer}": params.b.copy(),
        f"bias_hh_l{layer}": bias_hh,
    }

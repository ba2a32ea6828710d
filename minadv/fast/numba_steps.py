r"""The steps of an LSTM in single precision, compiled by Numba: the element-wise steps, and loops over many of them.

The formulas are those of `minadv.fast.elementwise`. A compiled loop reads every number once, keeps intermediate results
in registers and does eight numbers at a time where the processor can. Calls of a library's exp and tanh would prevent
that, so both are here, with the coefficients of Cephes (Moshier, http://www.netlib.org/cephes, expf and tanhf), as
exact as NumPy's own. The loops over steps, `forward_steps` and `backward_steps`, stand beside the functions that are
compiled into them, because Numba compiles a function again only when its own file changes. This file is imported by
`minadv.fast.choice` and `minadv.fast.numba_pass` only, and only where Numba is installed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.linalg.cython_blas  # noqa: F401  # Numba's np.dot calls it: loaded now, not at the first product

from minadv.backend import Array
from minadv.fast.elementwise import tiny, vanished
from minadv.fast.numba_compile import ANY, CELL, FLAT, GATES, MATRICES, MATRIX, ROW, STEPS, compiled, inlined

_f = np.float32

_ONE, _TWO, _SMALL = _f(1), _f(2), _f(0.625)  # below _SMALL, tanh is a polynomial
_TINY, _VANISHED = _f(tiny(_f)), _f(vanished(_f))
_LEAST, _MOST = _f(-87), _f(89)  # exp is subnormal below _LEAST; it is infinite from 88.4 on
_LOG2_E, _ROUND = _f(1.44269504), _f(1.5 * 2**23)  # a number plus _ROUND has no digits after the point
_LN2_HIGH, _LN2_LOW = _f(0.693359375), _f(-2.12194440e-4)  # ln 2 in two parts; n times the first is exact
_BITS, _BIAS = np.int32(23), np.int32(127 << 23)  # the mantissa's bits; the exponent's bias, in its place
_E2, _E3, _E4, _E5, _E6, _E7 = map(
    _f, (5.0000001201e-1, 1.6666665459e-1, 4.1665795894e-2, 8.3334519073e-3, 1.3981999507e-3, 1.9875691500e-4)
)
_T3, _T5, _T7, _T9, _T11 = map(
    _f, (-3.33332819422e-1, 1.33314422036e-1, -5.37397155531e-2, 2.06390887954e-2, -5.70498872745e-3)
)


@inlined
def _exp(x: Any) -> Any:
    r""":math:`e^x = 2^n e^r`, n the whole number nearest :math:`x / \ln 2`. NaN stays NaN."""
    x = _LEAST if x < _LEAST else x
    x = _MOST if x > _MOST else x
    shifted = x * _LOG2_E + _ROUND  # its last bits are n
    n = shifted - _ROUND
    r = x - n * _LN2_HIGH - n * _LN2_LOW
    power = (((((_E7 * r + _E6) * r + _E5) * r + _E4) * r + _E3) * r + _E2) * r * r + r + _ONE
    exponent = (_f(shifted).view(np.int32) << _BITS) + _BIAS
    return power * np.int32(exponent).view(np.float32)


@inlined
def _sigma_of_minus(x: Any) -> Any:
    return _ONE / (_ONE + _exp(x))


@inlined
def _tanh(x: Any) -> Any:
    r"""A polynomial near zero, elsewhere :math:`1 - 2/(e^{2|x|} + 1)` with the sign of x."""
    size, s = abs(x), x * x
    near = ((((_T11 * s + _T9) * s + _T7) * s + _T5) * s + _T3) * s * size + size
    far = _ONE - _TWO / (_exp(size + size) + _ONE)
    return math.copysign(near if size < _SMALL else far, x)


@inlined
def _four(a: Any) -> Any:
    """The four gates of ``a (4, ...)``, each flat."""
    n = a[0].size
    return a[0].reshape(n), a[1].reshape(n), a[2].reshape(n), a[3].reshape(n)


@inlined
def _loop(z: Any, c_prev: Any, a: Any, c: Any, h: Any) -> None:
    (z_i, z_f, z_g, z_o), (a_i, a_f, a_g, a_o) = z, a
    for j in range(c.size):
        i, f, g, o = _sigma_of_minus(z_i[j]), _sigma_of_minus(z_f[j]), _tanh(z_g[j]), _sigma_of_minus(z_o[j])
        cell = f * c_prev[j] + i * g  # Eq. 1
        a_i[j], a_f[j], a_g[j], a_o[j] = i, f, g, o
        c[j] = cell
        h[j] = o * _tanh(cell)


# Where two arrays might overlap the compiler goes number by number: `lstm_step` has a function for each way they can.
@compiled(GATES, CELL, GATES, CELL, CELL)
def _step_apart(z: Any, c_prev: Any, a: Any, c: Any, h: Any) -> None:
    n = c.size
    _loop(_four(z), c_prev.reshape(n), _four(a), c.reshape(n), h.reshape(n))


@compiled(CELL, GATES, CELL, CELL)
def _step_z_in_a(c_prev: Any, a: Any, c: Any, h: Any) -> None:
    n, gates = c.size, _four(a)
    _loop(gates, c_prev.reshape(n), gates, c.reshape(n), h.reshape(n))


@compiled(GATES, CELL, CELL)
def _step_in_place(a: Any, c: Any, h: Any) -> None:
    gates, cell = _four(a), c.reshape(c.size)
    _loop(gates, cell, gates, cell, h.reshape(c.size))


@compiled(GATES, CELL, CELL, CELL, CELL, GATES)
def _step_backward(a: Any, c_prev: Any, h: Any, dh: Any, dc: Any, dz: Any) -> None:
    n = dc.size
    (a_i, a_f, a_g, a_o), (d_i, d_f, d_g, d_o) = _four(a), _four(dz)
    c_prev, h, dh, dc = c_prev.reshape(n), h.reshape(n), dh.reshape(n), dc.reshape(n)
    for j in range(n):
        i, f, g, o, h_j, dh_j = a_i[j], a_f[j], a_g[j], a_o[j], h[j], dh[j]
        dc_j = dc[j] + (o - h_j / (o + _TINY) * h_j) * dh_j
        d_i[j] = (_ONE - i) * i * g * dc_j
        d_f[j] = (_ONE - f) * f * c_prev[j] * dc_j
        d_g[j] = (_ONE - g) * (_ONE + g) * i * dc_j
        d_o[j] = (_ONE - o) * h_j * dh_j
        dc[j] = dc_j * f


def lstm_step(z: Array, c_prev: Array, *, a: Array, c: Array, h: Array) -> None:
    """See `minadv.fast.elementwise.lstm_step`; ``(4, H, P, B)`` and ``(H, P, B)``, contiguous."""
    if z is not a:
        _step_apart(z, c_prev, a, c, h)
    elif c_prev is not c:
        _step_z_in_a(c_prev, a, c, h)
    else:
        _step_in_place(a, c, h)


def lstm_step_backward(a: Array, c_prev: Array, h: Array, dh: Array, *, dc: Array, dz: Array, scratch: Array) -> None:
    """See `minadv.fast.elementwise.lstm_step_backward`; ``scratch`` is not needed."""
    _step_backward(a, c_prev, h, dh, dc, dz)


@compiled(FLAT, FLAT, FLAT)
def _times(a: Any, b: Any, out: Any) -> None:
    for j in range(out.size):
        out[j] = a[j] * b[j]


@compiled(FLAT, FLAT)
def _plus(out: Any, a: Any) -> None:
    for j in range(out.size):
        out[j] += a[j]


@compiled(FLAT, FLAT, FLAT, FLAT, FLAT)
def _next_cell(i: Any, f: Any, g: Any, c_prev: Any, c: Any) -> None:
    for j in range(c.size):
        c[j] = f[j] * c_prev[j] + i[j] * g[j]  # Eq. 1


@compiled(FLAT, FLAT, FLAT)
def _state(o: Any, c: Any, h: Any) -> None:
    for j in range(h.size):
        h[j] = o[j] * _tanh(c[j])


@compiled(FLAT, FLAT, FLAT, FLAT, FLAT)
def _through_mask(dhhat: Any, h: Any, m: Any, dm: Any, dh: Any) -> None:
    for j in range(dh.size):
        dm[j] += dhhat[j] * h[j]  # Eq. 6
        dh[j] = dhhat[j] * m[j]


@compiled(FLAT)
def _flush(gradient: Any) -> None:
    for j in range(gradient.size):
        gradient[j] = _f(0) if abs(gradient[j]) <= _VANISHED else gradient[j]  # NaN stays NaN


@compiled(ROW, MATRIX, MATRIX)
def _keep_padding(valid: Any, before: Any, after: Any) -> None:
    for r in range(after.shape[0]):
        for b in range(after.shape[1]):
            after[r, b] = after[r, b] if valid[b] else before[r, b]


@compiled(ROW, MATRIX)
def _zero_padding(valid: Any, gradient: Any) -> None:
    for r in range(gradient.shape[0]):
        for b in range(gradient.shape[1]):
            gradient[r, b] = gradient[r, b] if valid[b] else _f(0)


@compiled(CELL, ANY, STEPS, "boolean", FLAT, MATRIX, MATRIX, GATES, MATRIX, MATRIX, CELL, CELL)
def forward_steps(
    UWb: Any, x: Any, valid: Any, apart: Any, m: Any, entering: Any, z: Any, a: Any, c: Any, h: Any, kept: Any, hs: Any
) -> None:
    """The steps of ``x (C, B, I)``: gates into ``a (C, 4, H, B)``, c and h in place, every h into ``hs`` unless empty.

    ``UWb (G, 4H/G, K)`` is multiplied block by block. ``apart``: x W is not in UWb's product, but in ``a`` already.
    ``valid (C, B)`` is empty without padding, else c and h are ``kept (2, H, B)`` over it. A step that is padding in
    every example is left out, and has no gates.
    """
    (H, B), (G, rows, _) = h.shape, UWb.shape
    flat_h, masked = h.reshape(H * B), entering[:H].reshape(H * B)
    for t in range(a.shape[0]):
        padded = valid.shape[0] > 0 and not valid[t].all()
        if padded:
            kept[0], kept[1] = c, h
        if not padded or valid[t].any():
            _times(flat_h, m, masked)
            if not apart:
                for i in range(x.shape[2]):
                    for b in range(B):
                        entering[H + i, b] = x[t, b, i]
            blocks = (z if apart else a[t].reshape(4 * H, B)).reshape(G, rows, B)
            for k in range(G):
                np.dot(UWb[k], entering, blocks[k])
            if apart:
                _plus(a[t].reshape(4 * H * B), z.reshape(4 * H * B))
            _step_in_place(a[t].reshape(4, H, 1, B), c.reshape(H, 1, B), h.reshape(H, 1, B))  # Eq. 1
        if padded:
            _keep_padding(valid[t], kept[0], c)
            _keep_padding(valid[t], kept[1], h)
        if hs.shape[0] > 0:
            hs[t] = h


@compiled(GATES, STEPS, CELL)
def _cells_again(a: Any, valid: Any, cells: Any) -> None:
    """From ``cells[0]`` and the gates ``a`` of C steps, the cells after each step: ``cells (C+1, H, B)``."""
    n = cells[0].size
    for t in range(a.shape[0]):
        i, f, g = a[t, 0].reshape(n), a[t, 1].reshape(n), a[t, 2].reshape(n)
        _next_cell(i, f, g, cells[t].reshape(n), cells[t + 1].reshape(n))
        if valid.shape[0] > 0:
            _keep_padding(valid[t], cells[t], cells[t + 1])


@compiled("intp", GATES, STEPS, CELL, MATRIX, MATRIX)
def _state_again(t: Any, a: Any, valid: Any, cells: Any, h_start: Any, h: Any) -> None:
    """The state after t steps of a chunk: that of an example's last real step, or ``h_start`` where there is none."""
    if t == 0:
        h[:] = h_start
    else:
        _state(a[t - 1, 3].reshape(h.size), cells[t].reshape(h.size), h.reshape(h.size))
    for b in range(h.shape[1] if t > 0 and valid.shape[0] > 0 else 0):
        last = t - 1
        while last >= 0 and not valid[last, b]:
            last -= 1
        for r in range(h.shape[0] if last < t - 1 else 0):
            h[r, b] = h_start[r, b] if last < 0 else a[last, 3, r, b] * _tanh(cells[t, r, b])


@compiled(CELL, ANY, STEPS, GATES, FLAT, ANY, CELL, MATRICES, FLAT, GATES, CELL)
def backward_steps(
    U: Any, x: Any, valid: Any, a: Any, m: Any, dh_out: Any, cells: Any, states: Any, dm: Any, dzs: Any, entered: Any
) -> None:
    """Back through the steps of a chunk; dh, dc and dm are updated in place.

    ``cells (C+1, H, B)`` begins with the cell before the chunk; ``states`` are the state before the chunk and the one
    after it, dh, dc and memory for one step. ``valid``, ``dh_out``, ``dzs`` and ``entered`` are empty where nobody
    needs them.
    """
    h_start, h, dh, dc, h_before, dhhat, carried_h, carried_c, dz = states
    (H, B), (G, _, width), size = h.shape, U.shape, a.shape[0]
    n, shape = H * B, (H, 1, B)
    _cells_again(a, valid, cells)
    for t in range(size - 1, -1, -1):
        _state_again(t, a, valid, cells, h_start, h_before)
        if t % 16 == 0:  # see `minadv.fast.elementwise.flush_vanished`
            _flush(dh.reshape(n))
            _flush(dc.reshape(n))
        if dh_out.shape[0] > 0:
            for r in range(H):
                for b in range(B):
                    dh[r, b] += dh_out[t, b, r]
        padded = valid.shape[0] > 0 and not valid[t].all()
        left_out = padded and not valid[t].any()
        if padded:
            carried_h[:], carried_c[:] = dh, dc
        if not left_out:
            cell = cells[t].reshape(shape), h.reshape(shape), dh.reshape(shape), dc.reshape(shape)
            _step_backward(a[t].reshape(4, H, 1, B), *cell, dz.reshape(4, H, 1, B))
        if padded:
            _zero_padding(valid[t], dz)
            _keep_padding(valid[t], carried_c, dc)
        if dzs.shape[2] > 0:
            for k in range(4):
                for r in range(H):
                    for b in range(B):  # a copy of a slice would cost more than it copies
                        dzs[k, r, t, b] = dz[k * H + r, b]
        if entered.shape[1] > 0:
            for r in range(H):
                for b in range(B):
                    entered[r, t, b] = h_before[r, b] * m[r * B + b]
            for i in range(x.shape[2]):
                for b in range(B):
                    entered[H + i, t, b] = x[t, b, i]
        if left_out:
            continue
        blocks = dz.reshape(G, width, B)
        np.dot(U[0], blocks[0], dhhat)
        for k in range(1, G):
            np.dot(U[k], blocks[k], h)  # h is no longer needed: it holds one gate's share of dhhat
            _plus(dhhat.reshape(n), h.reshape(n))
        _through_mask(dhhat.reshape(n), h_before.reshape(n), m, dm, dh.reshape(n))
        if padded:
            _keep_padding(valid[t], carried_h, dh)
        h[:] = h_before

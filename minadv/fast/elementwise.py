r"""The element-wise step of each cell in NumPy and CuPy, forward and backward: everything between two matrix products.

The formulas are those of `minadv.rnn`, `minadv.lstm` and `minadv.gru`, written so that nothing is allocated: the
functions write into the arrays given by keyword. Sizes: ``B`` examples, ``H`` units; the LSTM has an example a column.

The LSTM's logistic function is :math:`\sigma(z) = 1/(1 + e^{-z})`, because many processors have a faster exp than
tanh; the GRU's is :math:`\tfrac12 + \tfrac12 \tanh(z/2)`.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from minadv.backend import Array, is_device, namespace


def flush_vanished(*gradients: Array) -> None:
    r"""Set gradients that are too small to matter, below :math:`10^{-31}` in single precision, to zero, in place.

    A gradient that only ever shrinks, such as that of the cell of a masked unit, would otherwise decay into subnormal
    numbers and stay there, where a processor multiplies many times more slowly. Passes call this every 16 steps. A GPU
    is as fast with subnormal numbers as with others: there nothing is done.
    """
    for gradient in gradients:
        if is_device(gradient):
            return
        gradient *= namespace(gradient).abs(gradient) > vanished(gradient.dtype)


@functools.cache
def vanished(dtype: Any) -> float:
    """The size below which a gradient is too small to matter."""
    info = np.finfo(dtype)
    return float(info.tiny / info.eps)


@functools.cache
def tiny(dtype: Any) -> float:
    """A number to add to a divisor, so that 0/0 is 0: too small to change a divisor that is not next to zero."""
    return math.sqrt(np.finfo(dtype).tiny)


def rnn_step(z: Array, *, h: Array) -> None:
    r""":math:`h = \tanh z`."""
    namespace(z).tanh(z, out=h)


def rnn_step_backward(h: Array, dh: Array, *, dz: Array) -> None:
    r""":math:`dz = (1 - h^2)\, dh`."""
    xp = namespace(h)
    xp.multiply(h, h, out=dz)
    xp.subtract(1, dz, out=dz)
    xp.multiply(dz, dh, out=dz)


def lstm_step(z: Array, c_prev: Array, *, a: Array, c: Array, h: Array) -> None:
    r"""From the pre-activations ``z (4, H, B)`` compute the gates i, f, g, o into ``a``, and ``c`` and ``h``.

    The pre-activations of i, f and o come negated: :math:`\sigma(z) = 1/(1 + e^{-z})`. ``z`` may be ``a``.

    .. math:: c = f \odot c_{prev} + i \odot g, \qquad h = o \odot \tanh c
    """
    xp = namespace(z)
    i, f, g, o = a  # (H, B) each
    xp.tanh(z[2], out=g)
    with np.errstate(over="ignore"):  # exp overflows for a shut gate; 1/(1 + inf) = 0 is right
        for minus_z, logistic in ((z[:2], a[:2]), (z[3], o)):
            xp.exp(minus_z, out=logistic)
            xp.add(logistic, 1, out=logistic)
            xp.divide(1, logistic, out=logistic)
    xp.multiply(f, c_prev, out=c)
    xp.multiply(i, g, out=h)  # h serves as scratch memory until its own lines
    xp.add(c, h, out=c)
    xp.tanh(c, out=h)
    xp.multiply(o, h, out=h)


def lstm_step_backward(a: Array, c_prev: Array, h: Array, dh: Array, *, dc: Array, dz: Array, scratch: Array) -> None:
    r"""From ``dh`` and the ``dc`` that comes from the next step compute ``dz (4, H, B)`` and ``dc`` of the step before.

    ``dc`` is updated in place from :math:`\partial L/\partial c_t` (through :math:`c_{t+1}` only) to
    :math:`\partial L/\partial c_{t-1}`; ``dz`` is the gradient of the pre-activations as the equations have them, not
    negated. ``scratch (H, B)`` is overwritten. No step has to keep :math:`\tanh c`, which is :math:`h/o`: the slope of
    h in c is :math:`o\,(1 - \tanh^2 c) = o - h^2/o`, zero where o is zero, and its slope in :math:`z_o` is
    :math:`(1 - o)\, h`.
    """
    xp = namespace(a)
    i, f, g, o = a
    di, df, dg, do = dz
    xp.add(o, tiny(a.dtype), out=scratch)  # h of a padded step is not this o times tanh c: h/o must not overflow
    xp.divide(h, scratch, out=scratch)
    xp.multiply(scratch, h, out=scratch)
    xp.subtract(o, scratch, out=scratch)
    xp.multiply(scratch, dh, out=scratch)
    dc += scratch  # through h_t
    xp.subtract(1, a, out=dz)
    dz[:2] *= a[:2]  # the slope of a logistic gate, a (1 - a)
    do *= h
    do *= dh
    xp.add(g, 1, out=scratch)
    dg *= scratch  # the slope of tanh, (1 - g)(1 + g)
    di *= g
    df *= c_prev
    dg *= i
    dz[:3] *= dc
    dc *= f


def gru_step(a: Array, hU: Array, bn: Array, h_leak: Array, *, q: Array, h: Array) -> None:
    r"""Turn ``a (B, 3H)``, the input's share, into r, z, n in place; ``hU (B, 3H)`` is the masked state's share.

    .. math:: q = hU_n + b_n, \qquad n = \tanh(a_n + r \odot q), \qquad h = (1 - z) \odot n + z \odot h_{leak}

    ``q`` is written too, because backward needs it.
    """
    xp = namespace(a)
    H = h.shape[-1]
    rz, r, z, n = a[:, : 2 * H], a[:, :H], a[:, H : 2 * H], a[:, 2 * H :]
    rz += hU[:, : 2 * H]
    rz *= 0.5
    xp.tanh(rz, out=rz)
    rz *= 0.5
    rz += 0.5
    xp.add(hU[:, 2 * H :], bn, out=q)
    n += r * q
    xp.tanh(n, out=n)
    xp.subtract(h_leak, n, out=h)
    h *= z
    h += n


def gru_step_backward(a: Array, q: Array, h_leak: Array, dh: Array, *, dhU: Array, dn: Array, dh_leak: Array) -> None:
    r"""From ``dh`` compute ``dhU (B, 3H)``, ``dn (B, H)`` (of the pre-activation of n) and ``dh_leak``.

    The r and z blocks of ``dhU`` are the gradients of their pre-activations as well; only n differs, by the factor r.
    """
    xp = namespace(a)
    H = dh.shape[-1]
    r, z, n = a[:, :H], a[:, H : 2 * H], a[:, 2 * H :]
    dr, dz, dq = dhU[:, :H], dhU[:, H : 2 * H], dhU[:, 2 * H :]
    xp.multiply(n, n, out=dn)
    xp.subtract(1, dn, out=dn)
    dn *= 1 - z
    dn *= dh
    xp.multiply(dn, r, out=dq)
    xp.multiply(dn, q, out=dr)
    dr *= r
    dr *= 1 - r
    xp.subtract(h_leak, n, out=dz)
    dz *= dh
    dz *= z
    dz *= 1 - z
    xp.multiply(dh, z, out=dh_leak)

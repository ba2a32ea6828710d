r"""The element-wise step of each cell, forward and backward: everything between two matrix products.

These functions are the definition; `rnn`, `lstm` and `gru` call them once a step. They write into the arrays given by
keyword and allocate only one or two small temporaries. Sizes: ``B`` examples, ``H`` units.

The LSTM's logistic function is :math:`\sigma(z) = 1/(1 + e^{-z})`, because many processors have a faster exp than
tanh; the GRU's is :math:`\tfrac12 + \tfrac12 \tanh(z/2)`.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from minadv.backend import Array, namespace


def flush_vanished(*gradients: Array) -> None:
    r"""Set to zero, in place, what is too small to matter: below :math:`10^{-31}` in single precision.

    A gradient that only ever shrinks, such as that of the cell of a masked unit, would otherwise decay into subnormal
    numbers and stay there for good, where a processor multiplies many times more slowly. Called every few steps.
    """
    for gradient in gradients:
        gradient *= namespace(gradient).abs(gradient) > vanished(gradient.dtype)


@functools.cache
def vanished(dtype: Any) -> float:
    """The size below which a gradient is too small to matter."""
    info = np.finfo(dtype)
    return float(info.tiny / info.eps)


@functools.cache
def next_to_nothing(dtype: Any) -> float:
    """What makes no difference to a number, unless that is zero or as good as zero."""
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
    r"""From the pre-activations ``z (4, H, B)`` the gates ``a``, i, f, g, o, and ``c`` and ``h``.

    Those of the logistic gates come negated: :math:`\sigma(z) = 1/(1 + e^{-z})`. ``z`` may be ``a``.

    .. math:: c = f \odot c_{prev} + i \odot g, \qquad h = o \odot \tanh c
    """
    xp = namespace(z)
    i, f, g, o = a  # (H, B) each
    xp.tanh(z[2], out=g)
    with np.errstate(over="ignore"):  # of a gate that is closed, 1/inf
        for minus_z, logistic in ((z[:2], a[:2]), (z[3], o)):
            xp.exp(minus_z, out=logistic)
            xp.add(logistic, 1, out=logistic)
            xp.divide(1, logistic, out=logistic)
    xp.multiply(f, c_prev, out=c)
    xp.multiply(i, g, out=h)  # h is free until its own lines
    xp.add(c, h, out=c)
    xp.tanh(c, out=h)
    xp.multiply(o, h, out=h)


def lstm_step_backward(a: Array, c_prev: Array, h: Array, dh: Array, *, dc: Array, dz: Array, free: Array) -> None:
    r"""From ``dh`` and the ``dc`` that comes from the next step: ``dz (4, H, B)``, and ``dc`` of the previous step.

    ``dc`` is updated in place from :math:`\partial L/\partial c_t` (through :math:`c_{t+1}` only) to
    :math:`\partial L/\partial c_{t-1}`; ``dz`` is the gradient of the pre-activations as the equations have them, not
    negated. ``free (H, B)`` is overwritten. No step has to keep :math:`\tanh c`, which is :math:`h/o`: the slope of h
    in c is :math:`o\,(1 - \tanh^2 c) = o - h^2/o`, zero for an o that is, and that in z_o is :math:`(1 - o)\, h`.
    """
    xp = namespace(a)
    i, f, g, o = a
    di, df, dg, do = dz
    xp.add(o, next_to_nothing(a.dtype), out=free)  # nor is it then so small that an h of padding would overflow
    xp.divide(h, free, out=free)
    xp.multiply(free, h, out=free)
    xp.subtract(o, free, out=free)
    xp.multiply(free, dh, out=free)
    dc += free  # through h_t
    xp.subtract(1, a, out=dz)
    dz[:2] *= a[:2]  # the slope of a logistic gate, a (1 - a)
    do *= h
    do *= dh
    xp.add(g, 1, out=free)
    dg *= free  # of tanh, (1 - g)(1 + g)
    di *= g
    df *= c_prev
    dg *= i
    dz[:3] *= dc
    dc *= f


def gru_step(a: Array, q: Array, bn: Array, h_leak: Array, *, hn: Array, h: Array) -> None:
    r"""Turn ``a (B, 3H)``, the input's share, into r, z, n in place; ``q = hhat U (B, 3H)`` is the state's share.

    .. math:: n = \tanh(a_n + r \odot (q_n + b_n)), \qquad h = (1 - z) \odot n + z \odot h_{leak}

    ``hn`` receives :math:`q_n + b_n`, which backward needs.
    """
    xp = namespace(a)
    H = h.shape[-1]
    rz, r, z, n = a[:, : 2 * H], a[:, :H], a[:, H : 2 * H], a[:, 2 * H :]
    rz += q[:, : 2 * H]
    rz *= 0.5
    xp.tanh(rz, out=rz)
    rz *= 0.5
    rz += 0.5
    xp.add(q[:, 2 * H :], bn, out=hn)
    n += r * hn
    xp.tanh(n, out=n)
    xp.subtract(h_leak, n, out=h)
    h *= z
    h += n


def gru_step_backward(a: Array, hn: Array, h_leak: Array, dh: Array, *, dq: Array, dn: Array, dh_leak: Array) -> None:
    r"""From ``dh``: ``dq (B, 3H)`` to the state's share, ``dn (B, H)`` to the pre-activation of n, and ``dh_leak``.

    The r and z blocks of ``dq`` are the gradients to their pre-activations as well; only n differs, by the factor r.
    """
    xp = namespace(a)
    H = dh.shape[-1]
    r, z, n = a[:, :H], a[:, H : 2 * H], a[:, 2 * H :]
    dr, dz, dhn = dq[:, :H], dq[:, H : 2 * H], dq[:, 2 * H :]
    xp.multiply(n, n, out=dn)
    xp.subtract(1, dn, out=dn)
    dn *= 1 - z
    dn *= dh
    xp.multiply(dn, r, out=dhn)
    xp.multiply(dn, hn, out=dr)
    dr *= r
    dr *= 1 - r
    xp.subtract(h_leak, n, out=dz)
    dz *= dh
    dz *= z
    dz *= 1 - z
    xp.multiply(dh, z, out=dh_leak)

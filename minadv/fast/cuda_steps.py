r"""The LSTM's step and the way back through it on a GPU, each as one kernel.

The formulas are those of `minadv.fast.elementwise`. Called line by line on CuPy arrays they would be some fifteen
kernels, and a GPU takes longer to start a kernel than to do its work on the few thousand numbers of a step.

Imported by `minadv.fast.choice` only, once there are CuPy arrays.
"""

from __future__ import annotations

import cupy

from minadv.backend import Array
from minadv.fast.elementwise import tiny

_step = cupy.ElementwiseKernel(
    "T z_i, T z_f, T z_g, T z_o, T c_prev",
    "T a_i, T a_f, T a_g, T a_o, T c, T h",  # CuPy keeps the name i for itself
    """
    a_i = T(1) / (T(1) + exp(z_i));
    a_f = T(1) / (T(1) + exp(z_f));
    a_g = tanh(z_g);
    a_o = T(1) / (T(1) + exp(z_o));
    c = a_f * c_prev + a_i * a_g;
    h = a_o * tanh(c);
    """,
    "minadv_lstm_step",
)

_step_backward = cupy.ElementwiseKernel(
    "T a_i, T a_f, T a_g, T a_o, T c_prev, T h, T dh, T tiny",
    "T dc, T d_i, T d_f, T d_g, T d_o",
    """
    const T dc_t = dc + (a_o - h / (a_o + tiny) * h) * dh;
    d_i = (T(1) - a_i) * a_i * a_g * dc_t;
    d_f = (T(1) - a_f) * a_f * c_prev * dc_t;
    d_g = (T(1) - a_g) * (T(1) + a_g) * a_i * dc_t;
    d_o = (T(1) - a_o) * h * dh;
    dc = dc_t * a_f;
    """,
    "minadv_lstm_step_backward",
)


def lstm_step(z: Array, c_prev: Array, *, a: Array, c: Array, h: Array) -> None:
    """See `minadv.fast.elementwise.lstm_step`."""
    gates = tuple(a)
    _step(*(gates if z is a else z), c_prev, *gates, c, h)  # the same views: CuPy copies operands that only overlap


def lstm_step_backward(a: Array, c_prev: Array, h: Array, dh: Array, *, dc: Array, dz: Array, scratch: Array) -> None:
    """See `minadv.fast.elementwise.lstm_step_backward`; ``scratch`` is not needed."""
    _step_backward(*a, c_prev, h, dh, a.dtype.type(tiny(a.dtype)), dc, *dz)

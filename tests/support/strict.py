"""A stand-in for CuPy on NumPy's memory, which keeps CuPy's rules: a line that would fail on a GPU fails here at once.

`module` stands for the module ``cupy``: `pytest --backend=strict` runs tests on it, and tests/test_strict.py runs the
parts of minadv on it in every run of the suite. It computes what NumPy computes, and refuses what CuPy refuses:

* nothing becomes a NumPy array by itself: ``np.asarray(x)``, ``host[...] = x``, ``x + host``, ``x[...] = host``;
* no ``where=`` or ``initial=`` in ufuncs and reductions, no ``maximum.reduce``, ``maximum.accumulate`` or the like;
* no sort but the stable one, no random numbers, no strings or objects, and no function that CuPy does not have.

Where CuPy goes wrong without a word, it raises: indices out of range, which CuPy wraps around, and values that are
written to one place twice, of which any may win. Memory from ``empty`` holds NaN. A result with one entry is an array
of the shape (), never a number. `counting` counts what makes the host wait for the device.
"""

import contextlib
import operator
from collections import Counter
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

NAME = "the strict stand-in for CuPy"
_counted: list[Counter[str]] = []


@contextlib.contextmanager
def counting() -> Iterator[Counter[str]]:
    """Counts by name what makes the host wait: float(x), bool(x), x.get(), x[x > 0], nonzero and the like."""
    seen: Counter[str] = Counter()
    _counted.append(seen)
    try:
        yield seen
    finally:
        _counted.pop()


def _waits(what: str) -> None:
    for seen in _counted:
        seen[what] += 1


class ndarray:  # noqa: N801 - CuPy's name
    """An array on the stand-in's device."""

    __slots__ = ("_host",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, shape: Any, dtype: Any = float) -> None:
        self._host = _empty(shape, dtype)

    # what an array tells of itself, without waiting for the device
    shape = property(lambda self: self._host.shape)
    dtype = property(lambda self: self._host.dtype)
    ndim = property(lambda self: self._host.ndim)
    size = property(lambda self: self._host.size)
    itemsize = property(lambda self: self._host.itemsize)
    nbytes = property(lambda self: self._host.nbytes)
    strides = property(lambda self: self._host.strides)
    flags = property(lambda self: self._host.flags)
    T = property(lambda self: _wrap(self._host.T))
    device = property(lambda self: NAME)

    def __len__(self) -> int:
        return len(self._host)

    def __iter__(self) -> Iterator[Any]:
        return (self[n] for n in range(len(self)))

    # to the host
    def get(self, stream: Any = None, order: str = "C", out: Any = None) -> Any:
        _waits("get")
        if out is None:
            return self._host.copy()
        out[...] = self._host
        return out

    def set(self, host: Any) -> None:
        self._host[...] = host

    def _number(self, kind: Any) -> Any:
        _waits(kind.__name__)
        return kind(self._host)

    def __bool__(self) -> bool:
        return self._number(bool)  # type: ignore[no-any-return]

    def __float__(self) -> float:
        return self._number(float)  # type: ignore[no-any-return]

    def __int__(self) -> int:
        return self._number(int)  # type: ignore[no-any-return]

    def __index__(self) -> int:
        return self._number(operator.index)  # type: ignore[no-any-return]

    def __format__(self, how: str) -> str:
        return format(self.get(), how)

    def __repr__(self) -> str:
        return repr(self.get())

    def item(self) -> Any:
        return self.get().item()

    def tolist(self) -> Any:
        return self.get().tolist()

    def tobytes(self) -> bytes:
        return self.get().tobytes()  # type: ignore[no-any-return]

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`")

    # NumPy's functions on arrays of the device are CuPy's of the same name, as CuPy has it
    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = (), **how: Any) -> Any:
        mine = getattr(module, ufunc.__name__)
        given = {**how, "out": out[0]} if out else how
        return (mine if method == "__call__" else getattr(mine, method))(*inputs, **given)

    def __array_function__(self, function: Any, types: Any, args: Any, how: Any) -> Any:
        return getattr(module, function.__name__)(*args, **how)

    # indices
    def __getitem__(self, index: Any) -> Any:
        return _wrap(self._host[_index(self, index)])

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(value, list | tuple | np.ndarray):
            raise TypeError(f"{type(value).__name__} on the host cannot be written into an array on the device")
        found = _index(self, index)
        if isinstance(value, ndarray) and value.size > 1:
            _expect_once(self._host.shape, found)
        self._host[found] = _unwrap(value)

    # methods that are more than a function of the module
    def astype(self, dtype: Any, *, copy: bool = True) -> Any:
        return _wrap(self._host.astype(_supported(dtype), copy=copy))

    def reshape(self, *shape: Any) -> Any:
        return _wrap(self._host.reshape(*shape))

    def transpose(self, *axes: Any) -> Any:
        return _wrap(self._host.transpose(*axes))

    def view(self, dtype: Any) -> Any:
        return _wrap(self._host.view(_supported(dtype)))

    def fill(self, value: Any) -> None:
        self[...] = value

    def flatten(self) -> Any:
        return _wrap(self._host.flatten())

    def sort(self, axis: int = -1, *, kind: str | None = None) -> None:
        self._host[...] = module.sort(self, axis, kind)._host


def _wrap(value: Any) -> Any:
    """What NumPy returned, on the device: scalars become arrays of the shape ()."""
    if isinstance(value, list | tuple):
        return type(value)(_wrap(one) for one in value)
    if not isinstance(value, np.ndarray | np.generic):
        return value
    made = object.__new__(ndarray)
    made._host = np.asarray(value)
    return made


def _unwrap(value: Any, lists: bool = False) -> Any:
    """An argument as NumPy takes it; raises TypeError for an array on the host, as CuPy does."""
    if isinstance(value, ndarray):
        return value._host
    if isinstance(value, list | tuple) and lists:
        return type(value)(_unwrap(one, lists) for one in value)
    if isinstance(value, np.ndarray):
        raise TypeError(f"Unsupported type {type(value)}: an array on the host beside arrays on the device")
    return value


def _supported(dtype: Any) -> Any:
    if np.dtype(dtype).kind not in "biufc":
        raise ValueError(f"Unsupported dtype {np.dtype(dtype)}")
    return dtype


def _index(array: ndarray, index: Any) -> Any:
    """An index as NumPy takes it; NumPy raises for one out of range, where CuPy wraps around."""
    whole = index if isinstance(index, tuple) else (index,)
    if any(isinstance(part, ndarray) and part.dtype == bool for part in whole):
        _waits("boolean index")
    parts = tuple(part._host if isinstance(part, ndarray) else part for part in whole)
    return parts if isinstance(index, tuple) else parts[0]


def _expect_once(shape: tuple[int, ...], index: Any) -> None:
    """Raise unless an index names each place once: of values written to one place any may stay on a GPU."""
    if any(isinstance(part, np.ndarray | list) for part in (index if isinstance(index, tuple) else (index,))):
        places = np.arange(np.prod(shape, dtype=int)).reshape(shape)[index]
        if len(np.unique(places)) < places.size:
            raise ValueError("two values are written to one place: which of them stays is not defined on a GPU")


def _empty(shape: Any, dtype: Any = float, **how: Any) -> Any:
    """Memory as it comes: NaN, or a number that nobody wants."""
    made = np.empty(shape, _supported(dtype), **how)
    made.fill(np.nan if made.dtype.kind in "fc" else made.dtype.type(1) if made.dtype == bool else 77)
    return made


REDUCTIONS = {
    **dict.fromkeys(("sum", "prod", "mean", "nansum", "argmax", "argmin"), "axis dtype out keepdims"),
    **dict.fromkeys(("all", "any", "max", "min", "amax", "amin", "count_nonzero"), "axis out keepdims"),
    **dict.fromkeys(("std", "var"), "axis dtype out ddof keepdims"),
    **dict.fromkeys(("cumsum", "cumprod"), "axis dtype out"),
}
FUNCTIONS = {
    **REDUCTIONS,
    **dict.fromkeys(("ones_like", "zeros_like"), "dtype shape"),
    **dict.fromkeys(("concatenate", "stack"), "axis out dtype"),
    **dict.fromkeys(("argsort", "sort"), "axis kind"),
    **dict.fromkeys(("moveaxis", "swapaxes", "triu", "tril", "diag", "outer", "vdot", "inner", "atleast_1d"), ""),
    **dict.fromkeys(("atleast_2d", "isclose", "allclose", "array_equal", "flatnonzero", "ravel", "where"), ""),
    **dict.fromkeys(("take_along_axis", "expand_dims", "squeeze", "repeat", "roll", "flip", "split"), "axis"),
    **dict.fromkeys(("diff", "argpartition", "partition"), "axis"),
    **dict.fromkeys(("broadcast_to", "broadcast_arrays", "reshape", "tile", "nonzero", "bincount", "copy"), ""),
    "ascontiguousarray": "dtype",
    "transpose": "axes",
    "tensordot": "axes",
    "take": "axis out",
    "clip": "out",
    "dot": "out",
    "round": "out",
    "einsum": "out dtype optimize",
    "unique": "return_index return_inverse return_counts",
    "copyto": "where casting",
    "searchsorted": "side",
}
"""The functions of CuPy beside its ufuncs that minadv or its tests may use, and the keywords that they have there."""

METHODS = (*REDUCTIONS, "argsort", "clip", "copy", "dot", "nonzero", "ravel", "repeat", "round", "squeeze", "swapaxes")
METHODS = tuple(name for name in (*METHODS, "take") if name not in ("nansum", "amax", "amin", "count_nonzero"))
CREATING = {"zeros": "dtype", "ones": "dtype", "full": "dtype", "arange": "dtype", "eye": "dtype", "linspace": "dtype"}
WAITING = ("nonzero", "flatnonzero", "unique", "bincount", "allclose", "array_equal")
AT = ("add", "subtract", "maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor")
SAME = "nan inf pi e newaxis finfo iinfo dtype float16 float32 float64 int8 int16 int32 int64 intp uint8 uint16 uint32"
SAME += (
    " uint64 bool_ complex64 complex128 result_type promote_types can_cast issubdtype floating integer broadcast_shapes"
)


def _function(name: str, keywords: str, made: bool = False) -> Callable[..., Any]:
    """A function of CuPy: NumPy's of this name, with the keywords that CuPy has."""
    computes, known = getattr(np, name), {*keywords.split(), "a", "x"}

    def call(*args: Any, out: Any = None, **how: Any) -> Any:
        given = how if out is None else {**how, "out": out}
        for keyword in given.keys() - known:
            raise TypeError(f"cupy.{name} has no keyword {keyword!r}")
        kind = how.get("kind", args[2] if name in ("sort", "argsort") and len(args) > 2 else None)
        if kind not in (None, "stable"):
            raise ValueError(f"cupy.{name} has no kind {kind!r}, the stable sort only")
        if name in WAITING or (name == "where" and len(args) == 1):
            _waits(name)
        if name in ("sort", "argsort"):
            args, how = args[:2], {**how, "kind": "stable"}
        lists = name in ("concatenate", "stack", "where", "broadcast_arrays", "einsum", "tile") or made
        return _run(computes, args, out, how, lists)

    return call


def _run(computes: Any, args: Any, out: Any, how: Any, lists: bool = False) -> Any:
    """Call a function of NumPy on what arrays of the device hold; overflows are not warned of on a GPU."""
    if "dtype" in how and how["dtype"] is not None:
        _supported(how["dtype"])
    if out is not None and not isinstance(out, ndarray):
        raise TypeError(f"out is a {type(out).__name__}, expected an array on the device")
    given = {name: _unwrap(value, lists) for name, value in how.items()} | ({} if out is None else {"out": out._host})
    with np.errstate(all="ignore"):
        made = computes(*(_unwrap(a, lists) for a in args), **given)
    return out if out is not None else _wrap(made)


class Ufunc:
    """A ufunc of CuPy: no ``where=``; the sum and the product alone can be accumulated or reduced by it."""

    def __init__(self, computes: Any) -> None:
        self.computes, self.__name__ = computes, computes.__name__

    def __call__(self, *args: Any, out: Any = None, **how: Any) -> Any:
        for keyword in how.keys() - {"dtype", "casting"}:
            raise TypeError(f"cupy.{self.__name__} has no keyword {keyword!r}")
        if any(isinstance(a, list | tuple) for a in args):
            raise TypeError(f"Unsupported type list in cupy.{self.__name__}")
        n = self.computes.nin
        if len(args) > n and out is None:
            args, out = args[:n], args[n]
        return _run(self.computes, args, out, how)

    def _method(self, name: str, able: tuple[str, ...], *args: Any, out: Any = None, **how: Any) -> Any:
        if self.__name__ not in able or how.keys() & {"where", "initial"}:
            raise NotImplementedError(f"`cupy_{self.__name__}.{name}` is not supported yet")
        return _run(getattr(self.computes, name), args, out, how)

    def reduce(self, *args: Any, **how: Any) -> Any:
        return self._method("reduce", ("add", "multiply"), *args, **how)

    def accumulate(self, *args: Any, **how: Any) -> Any:
        return self._method("accumulate", ("add", "multiply"), *args, **how)

    def reduceat(self, *args: Any, **how: Any) -> Any:
        return self._method("reduceat", ("add",), *args, **how)

    def at(self, *args: Any, **how: Any) -> Any:
        return self._method("at", AT, *args, **how)


def _asarray(value: Any, dtype: Any = None, *, copy: bool | None = None, **_: Any) -> Any:
    """An array on the device, copied from the host, or of arrays on the device in a list."""
    if isinstance(value, list | tuple) and any(isinstance(one, ndarray) for one in value):
        return module.stack([_asarray(one) for one in value]).astype(dtype or _asarray(value[0]).dtype)
    if isinstance(value, ndarray):
        return value.astype(dtype or value.dtype, copy=bool(copy))
    made = np.array(value, dtype=dtype)
    _supported(made.dtype)
    return _wrap(made)


def _no_kernel(*_: Any, **__: Any) -> Any:
    raise NotImplementedError(f"{NAME} runs no kernels: set MINADV_COMPILED=0")


class _NoRandom:
    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError(f"cupy.random.{name}: random numbers are drawn on the host, by NumPy")


class _Module(ModuleType):
    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{NAME} has no {name!r}: if CuPy has it, add it to tests/support/strict.py")


def _make_module() -> Any:
    made: Any = _Module("cupy", NAME)
    made.__version__, made.ndarray, made.ufunc = "0.0", ndarray, Ufunc
    for name in dir(np):
        if isinstance(getattr(np, name), np.ufunc):
            setattr(made, name, Ufunc(getattr(np, name)))
    for name, keywords in FUNCTIONS.items():
        setattr(made, name, _function(name, keywords))
    for name, keywords in CREATING.items():
        setattr(made, name, _function(name, keywords, made=True))
    for name in SAME.split():
        setattr(made, name, getattr(np, name))
    made.empty = lambda shape, dtype=float: _wrap(_empty(shape, dtype))
    made.empty_like = lambda a, dtype=None: made.empty(a.shape, dtype or a.dtype)
    made.full_like = lambda a, value, dtype=None: made.full(a.shape, value, dtype=dtype or a.dtype)
    made.asarray = _asarray
    made.array = lambda value, dtype=None, copy=True: _asarray(value, dtype, copy=copy)
    made.asnumpy = lambda a: a.get() if isinstance(a, ndarray) else np.asarray(a)
    made.random = _NoRandom()
    made.ElementwiseKernel = made.ReductionKernel = made.RawKernel = made.RawModule = made.fuse = _no_kernel
    properties = {"name": NAME.encode(), "major": 0, "minor": 0, "totalGlobalMem": 2**33, "multiProcessorCount": 1}
    runtime = SimpleNamespace(
        getDevice=lambda: 0,
        getDeviceCount=lambda: 1,
        getDeviceProperties=lambda device: properties,
        memGetInfo=lambda: (2**33, 2**33),
        driverGetVersion=lambda: 13000,
        runtimeGetVersion=lambda: 13000,
    )
    stream = SimpleNamespace(synchronize=lambda: _waits("synchronize"))
    made.cuda = SimpleNamespace(
        runtime=runtime,
        alloc_pinned_memory=bytearray,
        get_current_stream=lambda: stream,
        Stream=SimpleNamespace(null=stream),
    )
    pool = {name: lambda: 0 for name in ("free_bytes", "used_bytes", "total_bytes", "free_all_blocks")}
    made.get_default_memory_pool = lambda: SimpleNamespace(**pool)
    return made


module = _make_module()

OPERATORS = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift"
UFUNCS = "add subtract multiply divide floor_divide remainder power matmul bitwise_and bitwise_or bitwise_xor"
UFUNCS += " left_shift right_shift"
COMPARISONS = {
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "eq": "equal",
    "ne": "not_equal",
}


def _give_operators() -> None:
    for short, name in [*zip(OPERATORS.split(), UFUNCS.split(), strict=True), *COMPARISONS.items()]:
        ufunc = getattr(module, name)
        setattr(ndarray, f"__{short}__", lambda self, other, ufunc=ufunc: ufunc(self, other))
        if short not in COMPARISONS:
            setattr(ndarray, f"__r{short}__", lambda self, other, ufunc=ufunc: ufunc(other, self))
            setattr(ndarray, f"__i{short}__", lambda self, other, ufunc=ufunc: ufunc(self, other, out=self))
    for short, name in (("neg", "negative"), ("pos", "positive"), ("abs", "absolute"), ("invert", "invert")):
        ufunc = getattr(module, name)
        setattr(ndarray, f"__{short}__", lambda self, ufunc=ufunc: ufunc(self))
    for name in METHODS:
        function = getattr(module, name)
        setattr(ndarray, name, lambda self, *args, function=function, **how: function(self, *args, **how))


_give_operators()

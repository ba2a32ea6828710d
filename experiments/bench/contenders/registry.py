r"""Who competes, and in which settings each is tried: the best setting of each family is the one that counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from experiments.bench.contenders.problem import Contender, Problem


@dataclass(frozen=True)
class Setting:
    """``threads`` of BLAS and OpenMP (None: whatever the library chooses), in each of ``processes`` with equal shares.

    ``pin`` holds each process to a core of its own: the one way to give XLA a single thread.
    """

    label: str
    threads: int | None = 1
    processes: int = 1
    pin: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Family:
    """Settings of one contender; ``compares`` is False for one that has no result to compare."""

    name: str
    maker: str  # module:class
    settings: tuple[Setting, ...]
    compares: bool = True


def _threads(**options: Any) -> tuple[Setting, ...]:
    return (Setting("1 thread", 1, options=options), Setting("2 threads", 2, options=options))


def _limits(**options: Any) -> tuple[Setting, ...]:
    cores = (("1 thread", 1, 1), ("2 threads", 2, 1), ("2 processes", 1, 2))
    return tuple(
        Setting(f"{form}, {label}", threads, processes, options={"form": form, **options})
        for form in ("rows", "columns", "gates")
        for label, threads, processes in cores
    )


_TORCH = "experiments.bench.contenders.pytorch:PyTorch"
_JAX = "experiments.bench.contenders.jax_scan:Jax"
_OURS = "experiments.bench.contenders.ours:Ours"
_TEXTBOOK = "experiments.bench.contenders.textbook:Textbook"
_LIMIT = "experiments.bench.contenders.limit:Limit"

OURS, LEAN, LIMIT, SHARED = "minadv", "minadv without Numba", "limit", "limit, passes shared"
READABLE = "minadv, readable cells"
TORCH = ("PyTorch eager", "PyTorch scripted", "PyTorch compiled")
JAX = ("JAX",)
TWO = ("PyTorch, 2 processes", "JAX, 2 processes")

_ALL = (
    Family(OURS, _OURS, (Setting("as minadv train", None),)),
    Family(LEAN, _OURS, (Setting("as minadv train", None, options={"numba": False}),)),
    Family(READABLE, _OURS, (Setting("as minadv train", None, options={"engine": "plain"}),)),
    Family("minadv, 1 process", _OURS, (Setting("1 thread", 1, options={"workers": 1}),)),
    Family(TORCH[0], _TORCH, _threads(how="eager", flush=True)),
    Family(TORCH[1], _TORCH, _threads(how="scripted", flush=True)),
    Family(TORCH[2], _TORCH, _threads(how="compiled", flush=True)),
    Family(
        JAX[0],
        _JAX,
        (
            *(Setting(f"unroll {n}", None, options={"unroll": n}) for n in (1, 4, 8)),
            Setting("unroll 4, 1 thread", 1, pin=True, options={"unroll": 4}),
        ),
    ),
    Family(
        TWO[0],
        _TORCH,
        tuple(Setting(how, 1, 2, options={"how": how, "flush": True}) for how in ("eager", "scripted", "compiled")),
    ),
    Family(TWO[1], _JAX, tuple(Setting(f"unroll {n}", 1, 2, True, {"unroll": n}) for n in (1, 4, 8))),
    Family("textbook NumPy", _TEXTBOOK, _threads()),
    Family(LIMIT, _LIMIT, _limits(), compares=False),
    Family(SHARED, _LIMIT, _limits(shared=True), compares=False),
)
FAMILIES = {family.name: family for family in _ALL}

ACCURATE: dict[str, tuple[str, dict[str, Any]]] = {
    "minadv": (_OURS, {"workers": 1}),
    "PyTorch": (_TORCH, {"how": "eager"}),
    "textbook NumPy": (_TEXTBOOK, {}),
}
"""The contenders whose accuracy is measured: one process, nothing flushed to zero."""


def make(maker: str, problem: Problem, options: Mapping[str, Any]) -> Contender:
    """The contender, its library imported only now."""
    contender: Contender = load(maker)(problem, **options)
    return contender


def load(name: str) -> Any:
    """The object that ``module:name`` names."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)

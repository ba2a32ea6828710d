r"""What a run needs, estimated from its sizes before anything is drawn: parameters, and memory at the peak.

The memory has two parts. **Weights**: the parameters, the best ones so far, the gradient before and after clipping, the
optimizer's state and an average of the weights, old and new while a step changes them, and the weights as engines pack
them. **Passes**: what the passes of a batch keep for going back. An estimate is within a factor of two or so: a run
that it puts a little above what is available is warned of and tried, and one that a machine cannot have is refused at
once, by the name of a size.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from minadv.backend import Device
from minadv.base import machine
from minadv.base.notices import say_once
from minadv.base.trees import leaves
from minadv.models.stack import Buffered
from minadv.training.loop import Recipe
from minadv.training.runs import checkpoints

SURE = 2
"""How many times the available memory an estimate has to be for a run to be refused."""

OPTIONS = {
    **dict.fromkeys(("n_hidden", "hidden"), "--hidden"),
    **dict.fromkeys(("n_embedding", "n_embed"), "--embed"),
    "n_layers": "--layers",
    "n_relu": "--relu",
    "n_candidates": "--candidates",
    "batch_size": "--batch",
    "n_words": "--min-count, to keep fewer words",
}
"""The options of the command line that decide the sizes of models and tasks."""


@dataclass(frozen=True)
class Needs:
    """What a run needs: the number of its parameters, and bytes of memory."""

    parameters: int
    weights: int
    passes: int

    @property
    def memory(self) -> int:
        """Bytes at the peak."""
        return self.weights + self.passes

    def __str__(self) -> str:
        return f"{self.parameters:,} parameters, about {in_words(self.memory)} of memory at the peak"


def needs_of(task: Any, recipe: Recipe, dtype: str, device: Device) -> Needs | None:
    """What training needs, None for a model that does not tell its sizes; raises ValueError if there is not as much."""
    needs = of_training(task, recipe, dtype)
    _expect_memory(needs, task.model, device, batch_size=task.batch_size)
    return needs


def expect_length(model: Any, data: Any, device: Device, *, parted: bool) -> None:
    """Raise ValueError, which names the length, if arrays (x, y) surely need more memory than there is.

    That is what a pass over one sequence keeps, there and back, and a copy of x where it is ``parted``. Only shapes are
    looked at: to read the numbers may take longer than anyone waits.
    """
    x: Any = getattr(data, "x", data[0] if isinstance(data, tuple) and data else None)
    shapes = [one.shape for one in (x if isinstance(x, list) else [x]) if hasattr(one, "shape")]
    n, steps = len(shapes), max((shape[0] for shape in shapes if shape), default=0)  # of a list of sequences (T, I)
    if hasattr(x, "shape") and len(x.shape) > 1:
        n, steps = x.shape[:2]
    rows = n * getattr(model, "n_in", 1) if parted else 0
    needed = 4 * steps * (rows + 2 * getattr(model, "n_kept", 0))
    there = _available(device)
    if there is not None and needed > SURE * there:
        sizes = f"{n:,} sequences of up to {steps:,} steps"
        said = f"{in_words(needed)} of memory, even one at a time, and {in_words(there)} are available"
        raise ValueError(f"x holds {sizes}, which need {said}: give shorter ones" + (", or fewer" if rows else ""))


def expect_loadable(run: Path, model: Any, recipe: Recipe, dtype: str) -> None:
    """Raise ValueError, which names a size, unless the machine can open a run and the run's checkpoints are as large.

    Parameters are drawn before they are read, and to draw those of a forged size may take longer than anyone waits.
    """
    needs = of_loading(model, recipe, dtype)
    _expect_memory(needs, model, None)
    held = (
        checkpoints.largest(run) if isinstance(model, Buffered) else None
    )  # a user's own may count what it does not train
    if needs is not None and held is not None and held < needs.parameters * np.dtype(dtype).itemsize:
        name, value = _largest(model)
        said = f"the model has {needs.parameters:,} parameters, and no checkpoint holds as many"
        raise ValueError(f"{said}: model.{name} is {value}, which cannot be what was trained")


def of_training(task: Any, recipe: Recipe, dtype: str) -> Needs | None:
    """What training needs; None for a model that does not tell its sizes."""
    model, itemsize = task.model, np.dtype(dtype).itemsize
    if not hasattr(model, "n_params") or not hasattr(model, "n_kept"):
        return None
    state = _like_parameters(recipe)
    held = 2 + state  # parameters, best parameters, and what grows with them
    moving = 5 + state  # two gradients, new parameters and state, and the weights as an engine packs them
    passes = getattr(getattr(task, "regularizer", None), "passes", 1)
    weights, kept = model.n_params * (held + moving), task.tokens * model.n_kept * (passes + 1)
    return Needs(model.n_params, itemsize * weights, itemsize * kept)


def of_loading(model: Any, recipe: Recipe, dtype: str) -> Needs | None:
    """What opening a run needs: its state, once as it is to be and once as it is read."""
    if not hasattr(model, "n_params"):
        return None
    held = 2 + _like_parameters(recipe)
    return Needs(model.n_params, 2 * held * np.dtype(dtype).itemsize * model.n_params, 0)


def _like_parameters(recipe: Recipe) -> int:
    """How many arrays of the parameters' size the optimizer and the average of the weights hold."""
    one = {"of": np.zeros(1)}
    held = leaves((recipe.optimizer.init(one), None if recipe.ema is None else recipe.ema.init(one)))
    return sum(isinstance(leaf, np.ndarray) for _, leaf in held)


def _expect_memory(needs: Needs | None, model: Any, device: Device | None, **sizes: int) -> None:
    """Raise ValueError, which names the size to lower, if a run surely needs more memory than there is; or say it may.

    ``sizes`` are those of the task that its passes grow with, the most telling one first.
    """
    there = None if needs is None else _available(device)
    if needs is None or there is None or needs.memory <= there:
        return
    name, value = next(iter(sizes.items())) if sizes and needs.passes > needs.weights else _largest(model)
    option = f" ({OPTIONS[name]})" if name in OPTIONS else ""
    shown = ", ".join(f"{v:,}" for v in value) if isinstance(value, tuple) else f"{value:,}"
    said = f"the run needs {needs}, and {in_words(there)} are available: lower {name}{option}, which is {shown}"
    if needs.memory > SURE * there:
        raise ValueError(said)
    say_once(f"{said}, if memory runs out")


def _available(device: Device | None) -> int | None:
    if device is None or device.name == "cpu":
        return machine.available_memory()
    try:
        free, _ = device.xp.cuda.runtime.memGetInfo()
        return int(free + device.xp.get_default_memory_pool().free_bytes())
    except Exception:  # a device that does not tell its memory is not a reason to refuse a run
        return None


def _largest(model: Any) -> tuple[str, Any]:
    """The size of a model that, halved, leaves it the fewest parameters."""
    found = []
    for field in fields(model):
        value = getattr(model, field.name)
        if isinstance(value, bool) or not isinstance(value, int | tuple) or field.name in ("n_in", "n_classes"):
            continue
        smaller = copy.copy(model)
        half = tuple(-(-v // 2) for v in value) if isinstance(value, tuple) else -(-value // 2)
        object.__setattr__(smaller, field.name, half)  # past the checks: only its number of parameters is asked for
        found.append((smaller.n_params, field.name, value))
    _, name, value = min(found, key=lambda one: one[0])
    return name, value


def in_words(n: float) -> str:
    """A number of bytes in the unit that suits it."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if n < 1024:
            return f"{n:.0f} {unit}" if n >= 10 or unit == "B" else f"{n:.1f} {unit}"
        n /= 1024
    return f"{n:,.0f} PiB"

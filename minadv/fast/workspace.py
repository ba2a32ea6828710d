r"""Buffers that passes reuse: a workspace belongs to one worker, and its passes take their memory from it.

Each pass takes one slot and keeps it until the slot is freed and another pass takes it; where several passes run side
by side, the first one's slot also holds what they share. What a pass returns lives in its slot too: ``h`` is valid
until the slot is taken again. What the passes of one training step have in common, such as packed weights, is made once
within a `scope`, in buffers of its own. Using a cache after its slot has been taken again raises `StaleCacheError`.
Without a workspace, or outside any scope, each pass has a slot of its own, and nothing is ever stale; ``h`` is then
still a view of the cache: do not write into it before backward.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from minadv.backend import Array, namespace
from minadv.base.trees import children

T = TypeVar("T")
M = TypeVar("M")


class StaleCacheError(RuntimeError):
    """A cache was used after another pass had taken its buffers."""


class Slot:
    """The buffers of one pass, by name; ``ticket`` counts the passes that have taken the slot."""

    def __init__(self) -> None:
        self.ticket = 0
        self._buffers: dict[str, Array] = {}

    def take(self, name: str, shape: tuple[int, ...], like: Array) -> Array:
        """An array of this shape, with the module and dtype of ``like``; its contents are whatever was there."""
        size = math.prod(shape)
        buffer = self._buffers.get(name)
        xp = namespace(like)
        if buffer is None or buffer.size < size or buffer.dtype != like.dtype or namespace(buffer) is not xp:
            buffer = self._buffers[name] = xp.empty(size, dtype=like.dtype)
        return buffer[:size].reshape(shape)

    def check(self, ticket: int) -> None:
        """Raise StaleCacheError unless this ticket is the newest."""
        if ticket != self.ticket:
            raise StaleCacheError(
                "the buffers of this pass have been taken by a later pass: go back through a pass before the scope "
                "in which it was run ends"
            )

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(buffer.nbytes for buffer in self._buffers.values())


class Workspace:
    """A pool of slots: within a `scope` a pass takes a free one, or a new one if none is free."""

    def __init__(self) -> None:
        self._slots: list[Slot] = []
        self._free: list[Slot] = []
        self._made: dict[tuple[int, str], tuple[Any, Any]] | None = None  # by `once`; None outside a scope
        self._common: list[Slot] = []  # one for each thing that `once` makes within a scope
        self._n_common = 0  # how many of them this scope has used

    def slot(self) -> Slot:
        """Hand out a slot; caches made by its earlier passes are stale from now on.

        Outside a scope nobody would say when a slot is free again: a pass then has a slot of its own, and the
        workspace does not grow.
        """
        if self._made is None:
            return Slot()
        if not self._free:
            self._slots.append(Slot())
            self._free.append(self._slots[-1])
        slot = self._free.pop()
        slot.ticket += 1
        return slot

    @property
    def taken(self) -> frozenset[int]:
        """Which slots are in use."""
        return frozenset(n for n, slot in enumerate(self._slots) if slot not in self._free)

    def slots_of(self, record: Any) -> frozenset[int]:
        """The slots that the caches in a record hold: a model's cache, say, has one a layer. Stale caches hold none."""
        if hasattr(record, "slot") and hasattr(record, "ticket"):
            current = record.ticket == record.slot.ticket
            return frozenset(n for n, slot in enumerate(self._slots) if current and slot is record.slot)
        return frozenset().union(*(self.slots_of(part) for _, part in children(record) or ()))

    def free_all(self, *, but: frozenset[int] = frozenset()) -> None:
        """Let later passes take every slot ``but`` these, given by number as `taken` gives them."""
        self._free = [slot for n, slot in enumerate(self._slots) if n not in but][::-1]

    def once(self, key: T, make: Callable[[T, Slot], M], what: str = "") -> M:
        """``make(key, slot)``, made once within a `scope` and remembered until its end; ``key`` must not change.

        ``slot`` has buffers for the result, the same ones again in the next scope. ``what`` tells apart different
        things that are made of one key. Outside a scope the result is made each time, in new buffers.
        """
        if self._made is None:
            return make(key, Slot())
        if (id(key), what) not in self._made:
            self._made[id(key), what] = (key, make(key, self._next_common()))  # the key is kept: its id stays its own
        made: M = self._made[id(key), what][1]
        return made

    def has_made(self, key: Any, what: str = "") -> bool:
        """Whether `once` has made this already in the present scope."""
        return self._made is not None and (id(key), what) in self._made

    def _next_common(self) -> Slot:
        if self._n_common == len(self._common):
            self._common.append(Slot())
        self._n_common += 1
        return self._common[self._n_common - 1]

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def nbytes(self) -> int:
        """Bytes held by all slots, and for what passes have in common."""
        return sum(slot.nbytes for slot in self._slots) + self.common_nbytes

    @property
    def common_nbytes(self) -> int:
        """Bytes held for what passes have in common: packed weights, products with an input that several share."""
        return sum(slot.nbytes for slot in self._common)


@contextmanager
def scope(work: Workspace | None) -> Iterator[Callable[[Any], None]]:
    """A context in which passes take slots of the workspace; at its end those slots are free again.

    It yields a function: the slots of a cache that is handed to it are not freed at the end of this scope, but belong
    to the scope around it; without one around it, they are free for the next pass. Parameters and inputs must not be
    changed within a scope: passes share what they derive from them.
    """
    if work is None:
        yield lambda cache: None
        return
    kept, outermost = [work.taken], work._made is None
    if outermost:
        work._made, work._n_common = {}, 0
    try:
        yield (lambda cache: None) if outermost else (lambda cache: kept.append(work.slots_of(cache)))
    finally:
        work.free_all(but=frozenset().union(*kept))
        if outermost:
            work._made = None


def take_slot(work: Workspace | None) -> Slot:
    """A slot of the workspace, or one of its own for a pass without a workspace."""
    return Slot() if work is None else work.slot()

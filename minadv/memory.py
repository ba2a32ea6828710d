r"""Memory: a search that starts where the last visit to the same example ended.

Training meets each example again, and the network has changed little since. The mask that was found then is scored, the
influence map is taken there, and the top b are chosen afresh; that costs one backward pass. A search that only ever
does this settles, so every other visit looks afresh, from the relaxed mask of `minadv.relax`, and the remembered mask
has to compete. What is remembered is a value, `minadv.objective.Remembered`: rows in, rows out. The training loop keeps
them between visits (`minadv.training.memory`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from minadv.backend import Array, namespace
from minadv.base.numbers import Extra, Few
from minadv.base.schema import expect_fields
from minadv.base.shared_draws import Rng
from minadv.objective import Masks, Objective, Remembered, Search, Visit
from minadv.relax import margin_map, relaxed, runner_up


@dataclass(frozen=True)
class Memory(Search):
    """The search of this file; it draws nothing. Examples that were never seen are searched afresh.

    ``fresh`` is how often a visit looks afresh: 2 is every other time, 0 the first time only. ``stage`` is the L of the
    relaxed mask of such a visit. ``tries`` is how many masks are tried beside the one that the map selects: on a fresh
    visit the remembered mask (or, without one, the runner-up), then a lent one; on the others the runner-up and a lent
    one, of which each comes first in turn; then further lent ones. A lent mask is that of another example, one of those
    that the map at hand promises most of. Where nothing is lent, the runner-up stands in.

    Passes: 2 + tries forward, 1 backward, and 1 backward more where an example of the batch is searched afresh.
    """

    fresh: Extra = 2
    stage: Few = 2
    tries: Extra = 1
    name = "memory"
    remembers = True

    def __post_init__(self) -> None:
        expect_fields(self)

    def run(self, objective: Objective, first: Visit | None, rng: Rng | None) -> tuple[Visit, ...]:
        eps0 = objective.eps0
        memory = Remembered.nothing(eps0) if objective.memory is None else objective.memory
        xp = namespace(memory.visits)
        seen = (memory.visits > 0)[:, None]  # (B, 1)
        afresh = memory.visits[:, None] % self.fresh == 0 if self.fresh else ~seen
        kept = {n: xp.where(seen & memory.flips[n], 1 - e, e) for n, e in eps0.items()}
        start = kept
        if bool(afresh.any()):
            half = relaxed(objective, margin_map(objective), self.stage)
            start = {n: xp.where(afresh, half[n], kept[n]) for n in eps0}
        there = objective.influence(start)
        assert there.d is not None and there.im is not None
        selected, second = objective.select(there.im), runner_up(objective, there.im)
        lent = [*_lent(objective, there.im, memory.lent, self.tries, (selected, kept), second), second]

        def either(which: Array, ours: Masks, theirs: Masks) -> Masks:
            return {n: xp.where(which, ours[n], theirs[n]) for n in eps0}

        turn = (memory.visits // 2 % 2 == 0)[:, None]  # whether the runner-up comes before the lent mask
        on_a_fresh_visit = [either(seen, kept, second), *lent]
        on_another = [either(turn, second, lent[0]), either(turn, lent[0], second), *lent[1:]]
        pairs = [*zip(on_a_fresh_visit, on_another, strict=False)][: self.tries]
        tried = [selected, *(either(afresh, fresh, other) for fresh, other in pairs)]
        visits = [Visit(eps, d) for eps, d in zip(tried, objective.scores(tried), strict=True)]
        whole = {n: xp.where(afresh, selected[n], kept[n]) for n in eps0}  # the start, where that is a binary mask
        scored = Visit(whole, xp.where(afresh[:, 0], visits[0].d, there.d))
        return (Visit(start, there.d, there.im, relaxed=True), scored, *visits)


def _lent(
    objective: Objective, im: Masks, lent: Masks | None, times: int, taken: tuple[Masks, ...], otherwise: Masks
) -> Iterator[Masks]:
    """The lent flips that the map promises most of, each other than the masks ``taken`` and than those before it."""
    if lent is None:
        yield from [otherwise] * times
        return
    eps0 = objective.eps0
    xp = namespace(*lent.values())
    promise = sum((((1 - 2 * e) * im[n])[:, None] * lent[n]).sum(axis=-1) for n, e in eps0.items())  # (B, P)
    for mask in taken:
        promise = xp.where(_same({n: mask[n] != e for n, e in eps0.items()}, lent), -np.inf, promise)
    rows = xp.arange(len(promise))
    for _ in range(times):
        lender = promise.argmax(axis=1)  # (B,)
        found = promise[rows, lender][:, None] > -np.inf
        flips = {n: lent[n][lender] for n in eps0}
        yield {n: xp.where(found, xp.where(flips[n], 1 - e, e), otherwise[n]) for n, e in eps0.items()}
        promise = xp.where(_same(flips, lent), -np.inf, promise)


def _same(flips: Masks, lent: Masks) -> Array:
    """(B, P): whether an example's flips are those that are lent, at every site."""
    differ = [(flips[n][:, None] != lent[n]).any(axis=-1) for n in lent]
    return ~namespace(*differ).stack(differ).any(axis=0)  # type: ignore[no-any-return]

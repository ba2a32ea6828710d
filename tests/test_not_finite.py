"""A distance that is NaN is an error that names the example, in whichever pass of a search; options have names."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from minadv.adversary import find_adversary
from minadv.base.errors import NotFiniteError
from minadv.models import Batch, Classifier
from minadv.searches import Exact, Greedy, Random, Reselect, ball_size, by_name

H, B = 4, 3


class Spoilt(Classifier):
    """A model whose distances are NaN for the last example in one pass of a search, the n-th that is compared."""

    def compare(self, *given: Any, **how: Any) -> Any:
        found = super().compare(*given, **how)
        COUNT[0] += 1
        if COUNT[0] != COUNT[1]:
            return found
        d = found.d.copy()
        d[-1] = np.nan
        return replace(found, d=d)


COUNT = [0, 0]


@pytest.mark.parametrize(
    ("search", "compared"),
    [(Greedy(), 2), (Greedy(keep="last"), 1), (Greedy(K=3), 4), (Reselect(), 5), (Exact(), 5), (Random(tries=3), 3)],
    ids=lambda given: f"{given}",
)
def test_nan_in_any_pass(search: Any, compared: int, put: Any, rng: np.random.Generator) -> None:
    model = Spoilt(2, H, 3)
    params, x = put(model.init(rng, dtype=np.float64)), put(rng.standard_normal((5, B, 2)))
    given = {"search": search, "budgets": {"layer0": 1} if isinstance(search, Exact) else {"layer0": 2}}
    COUNT[:] = [0, -1]
    find_adversary(model, params, Batch(x), **given, rng=np.random.default_rng(0))
    assert COUNT[0] == compared
    for n in range(1, compared + 1):
        COUNT[:] = [0, n]
        with pytest.raises(NotFiniteError, match=f"the distance is NaN for example {B - 1}: are its input"):
            find_adversary(model, params, Batch(x), **given, rng=np.random.default_rng(0))


def test_an_option_that_no_search_has() -> None:
    with pytest.raises(ValueError, match="the option of a search is 'swap', expected one of 'K', 'allow_unflip'"):
        by_name("reselect", swap=3)
    with pytest.raises(ValueError, match="the option of a search is 'keap'"):
        by_name("exact", keap="last", max_masks=50)
    assert by_name("exact", max_masks=50, keep="last", adv_steps=3) == Exact(max_masks=50)


def test_a_number_of_masks_beyond_all_use() -> None:
    """It is told at once, and can be written out."""
    assert ball_size(6, 3) == 42
    n = ball_size(10**7, 3 * 10**5)
    assert n > 10**300 and len(f"{n:,}") < 1000

"""Batches of like length: what is in them, that steps can be asked for alone, and what padding costs."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minadv.base.shared_draws import Share, rows
from minadv.data.texts.buckets import Buckets, density, in_length_order, like_lengths, make_batch, steps_of
from minadv.data.texts.counting import EOS_TOKEN
from minadv.data.texts.documents import Documents


def documents(lengths: Any, *, labels: bool = True, gap: int = 3) -> Documents:
    """Documents of these lengths that lie apart in their text, with tokens that are all different."""
    lengths = np.asarray(lengths, dtype=np.int64)
    starts = np.cumsum(lengths + gap) - lengths
    text = np.arange(10, 10 + int(lengths.sum()) + gap * len(lengths) + gap, dtype=np.int32)
    return Documents(text, starts, lengths, np.arange(len(lengths)) % 3 if labels else None)


def reviews_like(rng: Any, n: int) -> Any:
    """Lengths like those of IMDB: median about 200, one in twenty above 690, the longest some thousands."""
    return np.clip(np.exp(rng.normal(np.log(205), 0.72, n)), 8, 2900).astype(np.int64)


@given(data=st.data(), n=st.integers(1, 60), pool=st.integers(1, 9))
def test_an_epoch_sees_every_document_once(data: Any, n: int, pool: int) -> None:
    steps = np.array(data.draw(st.lists(st.integers(1, 30), min_size=n, max_size=n)))
    buckets = Buckets(steps, data.draw(st.integers(1, n)), seed=data.draw(st.integers(0, 99)), pool=pool)
    epoch = data.draw(st.integers(0, 5))
    numbers = range(epoch * buckets.per_epoch, (epoch + 1) * buckets.per_epoch)
    batches = [buckets.rows(step) for step in numbers]
    seen = np.concatenate(batches).tolist()
    assert len(set(seen)) == len(seen) == n - n % buckets.size
    assert set(seen) <= set(range(n))
    assert all(len(b) == buckets.size for b in batches)
    assert [buckets.epoch_and_number(step) for step in numbers] == [(epoch, k) for k in range(buckets.per_epoch)]
    assert buckets.costs(epoch) == pytest.approx([1 / density(steps, [b]) for b in batches])


def test_any_step_can_be_asked_for_alone(rng: Any) -> None:
    steps = reviews_like(rng, 300)
    straight = [Buckets(steps, 8, seed=4, pool=5).rows(step).tolist() for step in range(100)]
    for step in (99, 0, 37, 36, 5, 37):
        assert Buckets(steps, 8, seed=4, pool=5).rows(step).tolist() == straight[step]


def test_orders_differ_by_epoch_seed_and_name(rng: Any) -> None:
    steps = reviews_like(rng, 200)
    buckets = Buckets(steps, 10, seed=0, pool=4)
    epochs = [
        np.stack([b.rows(step) for step in range(first, first + 20)])
        for b, first in (
            (buckets, 0),
            (buckets, 20),
            (Buckets(steps, 10, seed=1, pool=4), 0),
            (Buckets(steps, 10, seed=0, pool=4, name="unlabelled"), 0),
        )
    ]
    for n, a in enumerate(epochs):
        for b in epochs[n + 1 :]:
            assert not {frozenset(rows) for rows in a.tolist()} & {frozenset(rows) for rows in b.tolist()}
    means = steps[epochs[0]].mean(axis=1)
    assert 0 < np.count_nonzero(np.diff(means) < 0) < 19  # batches come in no order of length


def test_the_batches_of_one_pool_are_shuffled(rng: Any) -> None:
    """Within a pool documents are sorted; batches in that order would go from short to long in every epoch."""
    steps = reviews_like(rng, 200)
    buckets = Buckets(steps, 10, seed=0, pool=20)
    for epoch in range(3):
        longest = [int(steps[buckets.rows(step)].max()) for step in range(20 * epoch, 20 * (epoch + 1))]
        assert longest != sorted(longest)
        assert longest != sorted(longest, reverse=True)


def test_rows_cannot_be_changed_for_the_next_caller() -> None:
    with pytest.raises(ValueError, match="read-only"):
        Buckets(np.ones(10, dtype=np.int64), 5, seed=0).rows(0)[0] = 3


@pytest.mark.parametrize(("n", "size"), [(4000, 64), (25_000, 64), (25_000, 256)])
def test_padding_costs_little(rng: Any, n: int, size: int) -> None:
    """The promise: at most 1.3 padded steps for each real one, where batches at random have three to five."""
    steps = reviews_like(rng, n) + 1
    at_random = rng.permutation(n)[: n - n % size].reshape(-1, size)
    assert density(steps, at_random) < 1 / 2.5
    for epoch in range(2):
        assert Buckets(steps, size, seed=0).costs(epoch).mean() <= 1.3
    assert density(steps, in_length_order(steps, size)) >= 1 / 1.3
    last = np.minimum(steps, 401)
    assert Buckets(last, size, seed=0).costs().mean() <= 1.1


@given(lengths=st.lists(st.integers(1, 2000), min_size=1, max_size=60), seed=st.integers(0, 99))
def test_a_batch_in_groups_keeps_to_the_limit(lengths: Any, seed: int) -> None:
    """Whatever the lengths: each document once, from the shortest to the longest."""
    steps = np.array([*lengths, 7])
    rows = np.random.default_rng(seed).permutation(len(lengths))
    groups = like_lengths(steps, rows)
    assert sorted(np.concatenate(groups)) == list(range(len(lengths)))
    assert (np.diff(steps[np.concatenate(groups)]) >= 0).all()
    assert 1 / density(steps, groups) <= 1.3
    assert all(len(group) > 0 for group in groups)


def test_groups_by_hand() -> None:
    """No more cuts than it takes, each where it saves most."""
    assert [g.tolist() for g in like_lengths(np.array([10, 8, 9]), np.array([0, 1, 2]))] == [[1, 2, 0]]
    steps = np.array([100, 2, 3, 2, 90])
    assert [g.tolist() for g in like_lengths(steps, np.arange(5))] == [[1, 3, 2], [4, 0]]
    steps = np.array([1, 10, 100, 1000])
    assert [g.tolist() for g in like_lengths(steps, np.arange(4))] == [[0, 1, 2], [3]]


@pytest.mark.parametrize("size", [32, 256])
def test_heavy_tails_cost_no_more_than_the_limit(rng: Any, size: int) -> None:
    """Docstrings, for instance: most are short, and a few have thousands of words."""
    steps = (10 + 30 * rng.pareto(1.1, 1000)).astype(np.int64)
    buckets = Buckets(steps, size, seed=0)
    assert buckets.costs().max() > 1.4
    numbers = range(buckets.per_epoch)
    groups = [buckets.groups(step) for step in numbers]
    assert all(1 / density(steps, of_step) <= 1.3 for of_step in groups)
    assert all(sorted(np.concatenate(g)) == sorted(buckets.rows(n)) for n, g in zip(numbers, groups, strict=True))
    assert sum(map(len, groups)) < 5 * len(groups)  # the tail is cut, not everything
    assert [len(of_step) > 1 for of_step in groups] == (buckets.costs() > 1.3).tolist()
    assert 1 / density(steps, in_length_order(steps, size)) <= 1.3


def test_density_by_hand() -> None:
    assert density(np.array([1, 3, 2, 2]), [np.array([0, 1]), np.array([2, 3])]) == 8 / 10


@pytest.mark.parametrize("eos", [True, False])
@pytest.mark.parametrize("max_tokens", [None, 1, 3, 100])
@pytest.mark.parametrize("labels", [True, False])
def test_a_batch_document_by_document(eos: bool, max_tokens: int | None, labels: bool) -> None:
    """Padding in front, the end of every document at the last step, and only the end of a long one."""
    part = documents([4, 1, 7, 2], labels=labels)
    chosen = np.array([2, 0, 3])
    batch = make_batch(part, chosen, max_tokens=max_tokens, eos=eos)
    T = max(min(n, max_tokens or n) for n in (7, 4, 2)) + eos
    assert batch.tokens.shape == batch.valid.shape == (T, 3)
    assert (batch.tokens.dtype, batch.valid.dtype, len(batch)) == (np.int64, np.bool_, 3)
    for b, n in enumerate(chosen.tolist()):
        expected = part[n][-max_tokens if max_tokens else 0 :].tolist() + [EOS_TOKEN] * eos
        assert batch.tokens[T - len(expected) :, b].tolist() == expected
        assert batch.valid[:, b].tolist() == [False] * (T - len(expected)) + [True] * len(expected)
        assert set(batch.tokens[: T - len(expected), b].tolist()) <= {EOS_TOKEN}
    np.testing.assert_array_equal(batch.valid.sum(axis=0), steps_of(part, max_tokens=max_tokens, eos=eos)[chosen])
    np.testing.assert_array_equal(batch.rows, chosen)
    if labels:
        assert batch.targets is not None and batch.targets.tolist() == [2, 0, 0]
    else:
        assert batch.targets is None


def test_the_first_document_of_the_text() -> None:
    """Steps before the beginning of the text are not read from its end."""
    part = documents([1, 5], gap=0)
    batch = make_batch(part, np.array([0, 1]), eos=False)
    assert batch.tokens[:, 0].tolist() == [EOS_TOKEN] * 4 + [10]


def test_the_shares_of_workers_are_the_batch(rng: Any) -> None:
    """Each is as long as the whole batch, and random numbers are drawn for it as `draws.Share` does."""
    part = documents([9, 2, 5, 3, 3])
    chosen = np.array([1, 3, 4, 0, 2])
    whole = make_batch(part, chosen, max_tokens=6)
    shares = [make_batch(part, chosen, part=slice(*ends), max_tokens=6) for ends in ((0, 2), (2, 5))]
    assert [share.tokens.shape for share in shares] == [(7, 2), (7, 3)]
    np.testing.assert_array_equal(np.concatenate([s.tokens for s in shares], axis=1), whole.tokens)
    np.testing.assert_array_equal(np.concatenate([s.valid for s in shares], axis=1), whole.valid)
    np.testing.assert_array_equal(np.concatenate([s.rows for s in shares]), whole.rows)
    np.testing.assert_array_equal(np.concatenate([s.targets for s in shares if s.targets is not None]), whole.targets)
    masks = [
        rows(Share(np.random.default_rng(3), *ends, 5), lambda g, n: g.random((n, 4)), len(share))
        for ends, share in zip(((0, 2), (2, 5)), shares, strict=True)
    ]
    np.testing.assert_array_equal(np.concatenate(masks), np.random.default_rng(3).random((5, 4)))
    with pytest.raises(ValueError, match=r"part is slice\(5, 6, None\), expected at least one of the 5 documents"):
        make_batch(part, chosen, part=slice(5, 6))


@pytest.mark.parametrize("size", [1, 3, 7, 20])
def test_evaluation_puts_everything_back(rng: Any, size: int) -> None:
    part = documents(rng.integers(1, 9, 13))
    found = np.full(13, -1)
    for chosen in in_length_order(steps_of(part), size):
        batch = make_batch(part, chosen)
        assert len(batch) <= size
        found[batch.rows] = batch.tokens[-2]  # the last word
    np.testing.assert_array_equal(found, [part[n][-1] for n in range(13)])
    lengths = np.concatenate([part.lengths[chosen] for chosen in in_length_order(steps_of(part), size)])
    assert (np.diff(lengths) >= 0).all()


def test_bad_input() -> None:
    steps = np.arange(1, 11)
    for size in (0, 11, -1):
        with pytest.raises(ValueError, match=f"the batch size is {size}, expected 1 to 10, the number of documents"):
            Buckets(steps, size, seed=0)
    with pytest.raises(ValueError, match="pool is 0, expected at least 1 batch"):
        Buckets(steps, 2, seed=0, pool=0)
    with pytest.raises(ValueError, match="seed is -1"):
        Buckets(steps, 2, seed=-1)
    with pytest.raises(ValueError, match=r"steps has shape \(2, 5\), expected \(N,\)"):
        Buckets(steps.reshape(2, 5), 2, seed=0)
    with pytest.raises(ValueError, match="max_tokens is 0, expected at least 1"):
        steps_of(documents([3]), max_tokens=0)
    with pytest.raises(ValueError, match="the batch size is 0, expected at least 1"):
        next(in_length_order(steps, 0))

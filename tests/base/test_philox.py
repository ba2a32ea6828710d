"""Philox by its published answers, and masks made of keys: NumPy's words, any part of a mask alone, both backends."""

import numpy as np
import pytest

from minadv import masks
from minadv.backend import to_host
from minadv.base.philox import keeps, philox, threshold
from minadv.base.shared_draws import Keyed, Share, rows, whole
from tests.support.compare import assert_same_bits

ALL = 2**64 - 1
PI = (0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C89)


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0,) * 4, (0, 0), "16554d9eca36314c db20fe9d672d0fdc d7e772cee186176b 7e68b68aec7ba23b"),
        ((ALL,) * 4, (ALL, ALL), "87b092c3013fe90b 438c3c67be8d0224 9cc7d7c69cd777b6 a09caebf594f0ba0"),
        (
            PI,
            (0x452821E638D01377, 0xBE5466CF34E90C6C),
            "a528f45403e61d95 38c72dbd566e9788 a5a1610e72fd18b5 57bd43b5e52b7fe6",
        ),
    ],
    ids=["zeros", "ones", "pi"],
)
def test_published_answers(counter, key, words):
    """Those of the library Random123, in its file of known answers, for philox4x64 with 10 rounds."""
    assert philox(counter, key) == tuple(int(word, 16) for word in words.split())


KEY = (0x0123456789ABCDEF, 0xFEDCBA9876543210)


def by_the_definition(key, p, first, count):
    entries = []
    for n in range(first, first + count):
        word = philox((n // 8, 0, 0, 0), key)[n % 8 // 2]
        entries.append((word >> 32 * (n % 2)) & (2**32 - 1))
    return np.array(entries, np.uint64) >= threshold(p)


@pytest.mark.parametrize(
    ("first", "shape"), [(0, (1,)), (0, (40,)), (3, (2, 5)), (8, (3, 8)), (129, (7, 3, 2)), (5, (0, 3))]
)
def test_every_entry_is_made_of_its_own_bits(first, shape, put, xp):
    like = put(np.zeros(1, np.float32))
    found = keeps(KEY, 0.4, first, shape, like=like)
    assert isinstance(found, xp.ndarray)
    assert (found.shape, found.dtype) == (shape, bool)
    assert_same_bits(found.ravel(), by_the_definition(KEY, 0.4, first, int(np.prod(shape))))


def test_any_part_of_a_mask_can_be_made_alone(put):
    like = put(np.zeros(1))
    whole_mask = to_host(keeps(KEY, 0.5, 0, (1000,), like=like))
    for first, last in ((0, 7), (7, 300), (300, 1000)):
        assert_same_bits(keeps(KEY, 0.5, first, (last - first,), like=like), whole_mask[first:last])
    assert (whole_mask != to_host(keeps((KEY[0], KEY[1] ^ 1), 0.5, 0, (1000,), like=like))).any()


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9, float(np.nextafter(1, 0))])
def test_the_share_that_is_dropped(p, put):
    found = to_host(keeps(KEY, p, 0, (200, 500), like=put(np.zeros(1))))
    assert found.mean() == pytest.approx(1 - p, abs=4 * np.sqrt(p * (1 - p) / found.size) + 1e-12)
    assert threshold(p) < 2**32


def test_a_keyed_share_has_the_rows_of_the_whole(put):
    """Each mask takes a key of its own; what is no mask is drawn as ever, and in the same order by every worker."""
    like = put(np.zeros(1))

    def drawn(rng):
        first = rng.keeps(0.5, (rng.last - rng.first, 7), by_row=True, like=like)
        numbers = rows(rng, lambda g, n: g.integers(100, size=n), rng.last - rng.first)
        common = rng.keeps(0.5, (3, 4), by_row=False, like=like)
        return to_host(first), numbers, to_host(common), whole(rng).integers(100, size=3)

    together = drawn(Keyed.of(np.random.default_rng(1), 6))
    for share in (slice(0, 1), slice(1, 4), slice(4, 6)):
        part = drawn(Keyed.of(Share(np.random.default_rng(1), share.start, share.stop, 6), share.stop - share.start))
        assert_same_bits(part[:2], (together[0][share], together[1][share]))
        assert_same_bits(part[2:], together[2:])
    rng = Keyed.of(np.random.default_rng(1), 40)
    assert (
        to_host(rng.keeps(0.5, (40, 7), by_row=True, like=like))
        != to_host(rng.keeps(0.5, (40, 7), by_row=True, like=like))
    ).any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_random_masks_of_the_regularizers_are_keyed_too(dtype, put):
    like = put(np.zeros(1, dtype))
    eps = masks.bernoulli(Keyed.of(np.random.default_rng(1), 30), 0.3, (30, 9), like=like)
    key = tuple(int(word) for word in np.random.default_rng(1).bit_generator.random_raw(2))
    assert eps.dtype == dtype
    assert_same_bits(eps, by_the_definition(key, 0.3, 0, 270).reshape(30, 9).astype(dtype))

"""What is read back from a device at once: checks raise when they are read, on the host on the spot."""

from contextlib import nullcontext

import numpy as np
import pytest

from minadv.base import readings
from minadv.base.readings import at_once, check, check_all, word


def stop():
    raise ValueError("something is wrong")


@pytest.mark.parametrize("wrong", [np.array(True), np.array([False, True]), np.ones((2, 2), bool)])
def test_a_check_on_the_spot(wrong, put):
    check(put(~wrong & False), stop)
    with pytest.raises(ValueError, match="something is wrong"):
        check(put(wrong), stop)


@pytest.mark.parametrize("later", [False, True])
def test_a_check_of_all(later, put):
    with at_once() if later else nullcontext():
        check_all(put(np.array([True, False])), stop)
    with pytest.raises(ValueError, match="something is wrong"), at_once() if later else nullcontext():
        check_all(put(np.array([True, True])), stop)


def test_more_numbers_than_there_is_room_for(put):
    with at_once() as later, pytest.raises(ValueError, match="9 numbers are asked for, expected at most 8"):
        later.numbers(*put(np.ones(readings.NUMBERS + 1)))


def test_within_at_once_a_device_is_read_later(put, xp):
    numbers = put(np.array([2.5, 4.0]))
    with at_once() as later:
        check(put(np.array([False])), stop)
        assert later.numbers(numbers[0], numbers[1], numbers.sum()) == [2.5, 4.0, 6.5]
        if xp is np:
            with pytest.raises(ValueError, match="wrong"):
                check(put(np.array([True])), stop)
            return
        check(put(np.array([True])), stop)
        with pytest.raises(ValueError, match="wrong"):
            later.numbers(numbers[0])
        assert later.numbers(numbers[0]) == [2.5]  # what was read is forgotten


def test_what_was_not_read_is_read_at_the_end(put):
    with pytest.raises(ValueError, match="wrong"), at_once(), at_once():
        check(put(np.array([True])), stop)
    check(put(np.array([False])), stop)


def test_more_checks_than_there_is_room_for(put):
    seen = []
    with at_once():
        for n in range(2 * readings.WORDS + 3):
            check(put(np.array([n % 2 == 0])), lambda n=n: seen.append(n))
    assert seen == list(range(0, 2 * readings.WORDS + 3, 2))


def test_an_error_on_the_way_is_the_one_that_is_raised(put):
    def fail():
        with at_once():
            check(put(np.array([False])), stop)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    with at_once() as later:
        assert later.numbers() == []


def test_a_place_for_a_kernel_to_write_to(put, xp):
    if xp is np:
        pytest.skip("kernels write on a device")
    like, seen = put(np.zeros(3, np.float32)), []
    with word(like, lambda: seen.append("on the spot")) as wrong:
        assert (wrong.shape, wrong.dtype, int(wrong[0])) == ((1,), np.int32, 0)
        wrong[...] = 1
    assert seen == ["on the spot"]
    with at_once() as later:
        for name, value in (("one", 0), ("two", 7), ("three", 1)):
            with word(like, lambda name=name: seen.append(name)) as wrong:
                wrong[...] = value
        assert seen == ["on the spot"]
        later.numbers()
    assert seen == ["on the spot", "two", "three"]

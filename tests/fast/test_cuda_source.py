"""The CUDA sources say what Python says of them: sizes of blocks, arrays of a pass, and what fits a device."""

import re
from pathlib import Path

import pytest

from minadv.fast import cuda_source
from minadv.fast.cuda_source import FIELDS, MOST_THREADS, fits_one_launch, pass_size, pass_source, step_source

KB = 1024
FOLDER = Path(cuda_source.__file__).parent


def test_the_arrays_of_a_pass_are_in_the_order_of_the_source():
    body = re.search(r"struct Pass \{(.*?)\n\};", (FOLDER / "cuda_cells.cu").read_text(), re.DOTALL)
    assert tuple(re.findall(r"^\s*(?:const )?(?:real|bool)\* (\w+);", body[1], re.MULTILINE)) == FIELDS
    assert 8 * len(FIELDS) * cuda_source.MOST_PASSES + 64 <= 4096  # what a kernel's arguments may take


@pytest.mark.parametrize("limit", [64, 99, 163, 227])
@pytest.mark.parametrize("cell", cuda_source.CELLS)
def test_every_size_up_to_128_fits_the_devices_there_are(cell, limit):
    """64 kB is the limit of a block on sm_75, 99 on sm_86 and sm_120, 163 on sm_80, 227 on sm_90 and sm_100."""
    for H in range(1, 129):
        size = pass_size(cell, H)
        assert size.threads <= MOST_THREADS and size.threads % 32 == 0
        assert fits_one_launch(cell, (784, 100, 1), H, "float32", limit * KB) == (size.shared <= limit * KB)
        assert size.shared <= 64 * KB


def test_what_does_not_fit_is_made_step_by_step():
    shape = (784, 100, 1)
    assert fits_one_launch("lstm", shape, 128, "float32", 64 * KB)
    assert not fits_one_launch("lstm", shape, 128, "float32", 48 * KB)  # as a device that grants no more than is usual
    assert fits_one_launch("lstm", shape, 100, "float32", 48 * KB)
    assert not fits_one_launch("lstm", shape, 129, "float32", 227 * KB)
    assert not fits_one_launch("lstm", shape, 100, "float64", 227 * KB)
    assert not fits_one_launch("rnn", (50_000, 200, 1), 128, "float32", 227 * KB)  # more places than 32 bits tell apart
    assert not fits_one_launch("rnn", (50_000, 10, 10_000), 4, "float32", 227 * KB)


@pytest.mark.parametrize("source", [pass_source("gru", 7, "masked"), step_source("gru", "float64", "masked")])
def test_a_source_is_whole(source):
    assert "#include" not in source
    assert re.findall(r"#define (RNN|GRU|LSTM|MASKED_LEAK) (\d)", source) == [
        *(("RNN", "0"), ("GRU", "1"), ("LSTM", "0"), ("MASKED_LEAK", "1"))
    ]
    assert len(re.findall(r'extern "C" __global__ void', source)) == 2

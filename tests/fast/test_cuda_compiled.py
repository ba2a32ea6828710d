"""NVRTC compiles the kernels for the GPUs there are, and keeps the weights in registers; no GPU is needed for that.

``pip install nvidia-cuda-nvrtc-cu12 nvidia-cuda-nvrtc nvidia-cuda-nvdisasm``; two architectures, all with ``-m slow``.
"""

import pytest

from minadv.fast.cuda_source import CELLS, GATES, pass_size, pass_source, step_source
from minadv.fast.device_source import FLIP_THREADS, source
from tests.support import nvrtc

USUAL, OTHERS = ("sm_80", "sm_120"), ("sm_75", "sm_86", "sm_90", "sm_100")
ARCHITECTURES = [*USUAL, *(pytest.param(arch, marks=pytest.mark.slow) for arch in OTHERS)]
VARIANTS = [*((cell, "clean") for cell in CELLS), ("gru", "masked")]
SIZES = [100, 128, *(pytest.param(H, marks=pytest.mark.slow) for H in (3, 36, 64))]
REGISTERS = 65_536  # that the threads of a block share

pytestmark = pytest.mark.nvrtc
every_architecture = pytest.mark.parametrize("arch", ARCHITECTURES)
every_variant = pytest.mark.parametrize(("cell", "leak"), VARIANTS)


@pytest.fixture(params=nvrtc.PACKAGES, ids=lambda version: f"CUDA {version}")
def version(request):
    if nvrtc.library(request.param) is None:
        pytest.skip(f"{nvrtc.PACKAGES[request.param]} is not installed")
    return request.param


@every_architecture
@every_variant
@pytest.mark.parametrize("H", SIZES)
def test_a_pass(version, arch, cell, leak, H):
    """At most 128 registers, up to 100 units at most 16 bytes spilled, and the shared memory that is reckoned with.

    The table of passes, which is an argument, is not copied to the memory of each thread.
    """
    size = pass_size(cell, H)
    found = nvrtc.compiled(version, pass_source(cell, H, leak), arch).kernels
    assert set(found) == {"forward_pass", "backward_pass"}
    for kernel in found.values():
        assert kernel.registers <= 128
        assert kernel.spilled <= (16 if H <= 100 else 64)
        assert kernel.only_spills
        assert kernel.shared <= size.fixed + 1024  # from sm_90 on the system takes one kB of each block
    assert max(kernel.shared for kernel in found.values()) >= size.fixed


@every_architecture
@every_variant
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_step(version, arch, cell, leak, dtype):
    found = nvrtc.compiled(version, step_source(cell, dtype, leak), arch).kernels
    assert set(found) == {"forward_step", "backward_step"}
    assert all(kernel.frame == 0 for kernel in found.values())


@every_architecture
@pytest.mark.parametrize("cell", CELLS)
def test_weights_are_read_before_the_loop_over_time(version, arch, cell, tmp_path):
    """In the assembly: reads of what never changes, U among it, stand before the loop and not in it."""
    if nvrtc.disassembler() is None:
        pytest.skip(f"{nvrtc.DISASSEMBLER} is not installed")
    code = nvrtc.compiled(version, pass_source(cell, 100), arch)
    weights = {"forward_pass": 25 * GATES[cell], "backward_pass": 4 * -(-100 * GATES[cell] // 16)}
    for kernel, least in weights.items():
        outside, inside = nvrtc.time_loop(code, kernel, tmp_path)
        assert sum("LDG" in line and "CONSTANT" in line for line in outside) >= least
        assert not [line for line in inside if "LDG" in line and "CONSTANT" in line]
        assert sum("LDG" in line for line in inside) <= 16  # inputs, states, gates and gradients of one step
        assert sum("FFMA" in line for line in inside) >= least


def test_an_array_that_is_no_register_is_told(version):
    """Here because the places that are written are known to the device alone."""
    text = """extern "C" __global__ void counted(const int* at, int* out) {
        int seen[32] = {};
        for (int n = 0; n < 100; n++) seen[at[n] & 31]++;
        for (int n = 0; n < 32; n++) out[n] = seen[n];
    }"""
    kernel = nvrtc.compiled(version, text, "sm_80").kernels["counted"]
    assert (kernel.spilled, kernel.frame) == (0, 32 * 4)
    assert not kernel.only_spills


def test_a_mistake_is_told(version):
    with pytest.raises(nvrtc.CompileError, match="hhat_"):
        nvrtc.compiled(version, pass_source("rnn", 4).replace("hhat[side][unit]", "hhat_[side][unit]"), "sm_80")
    for name in ("BLOCK_THREADS", "FORWARD_BYTES", "BACKWARD_BYTES"):
        text = pass_source("lstm", 128)
        other = text.replace(f"#define {name} ", f"#define {name} 1")  # a launch that asks for another size
        assert other != text
        with pytest.raises(nvrtc.CompileError, match=r"static assertion failed|static_assert"):
            nvrtc.compiled(version, other, "sm_80")


BESIDE = {
    "distances": {"minadv_distance", "minadv_cross_entropy"},
    "embedding": {"minadv_sum_by_token"},
    "flip": {"minadv_flip", "minadv_one_flip", "minadv_agree", "minadv_zero_map"},
    "update": {"minadv_squares", "minadv_scale", "minadv_update"},
}


@every_architecture
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("file", BESIDE)
def test_what_is_beside_the_passes(version, arch, file, dtype):
    others = {"distances": {"I": "int64"}, "embedding": {"I": "int64"}, "flip": {"D": dtype}, "update": {}}[file]
    found = nvrtc.compiled(version, source(file, T=dtype, **others), arch).kernels
    assert set(found) == BESIDE[file]
    assert all(kernel.registers <= 128 and kernel.frame == 0 for kernel in found.values())
    if file == "flip":
        assert found["minadv_flip"].registers * FLIP_THREADS <= REGISTERS  # a block of more would not start


@every_architecture
def test_the_places_of_a_word_are_read_several_at_a_time(version, arch, tmp_path):
    """In the assembly: most of the sums of a round stand after its last read."""
    if nvrtc.disassembler() is None:
        pytest.skip(f"{nvrtc.DISASSEMBLER} is not installed")
    code = nvrtc.compiled(version, source("embedding", T="float32", I="int64"), arch)
    text = nvrtc.assembly(code, "minadv_sum_by_token", tmp_path)
    last = max(n for n, line in enumerate(text) if "LDG" in line)
    assert sum("FADD" in line for line in text[last:]) >= 4


@every_architecture
def test_random_masks(version, arch):
    found = nvrtc.compiled(version, source("masks"), arch).kernels
    assert set(found) == {"minadv_keeps"}
    assert found["minadv_keeps"].frame == 0

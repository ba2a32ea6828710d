"""Runs the kernels of whole passes, and mutants of them, in a process of its own and prints a digest of each outcome.

The emulated device runs the warps of a block in the order that CPUEMU_SKEW asks for, one as far as it can go before the
next: a kernel whose barriers suffice computes the same bits in every order. The order is read once a process.
"""

import hashlib
import json
import sys
import zlib
from dataclasses import replace

import numpy as np

from minadv.backend import choose_device
from minadv.base.trees import leaves
from minadv.fast import cuda_source
from tests.support import cuda

GAP = np.array([[1], [1], [0], [1], [1], [1]], dtype=bool)  # the steps beside it are both odd
MUTANTS = {
    "as it is": lambda forward, backward: (forward, backward),
    "no barrier forward": lambda forward, backward: (_without_last_barrier(forward), backward),
    "no barrier backward": lambda forward, backward: (forward, _without_last_barrier(backward)),
    "buffer by t forward": lambda forward, backward: (_changed(forward, "side ^= 1", "side = (t + 1) & 1"), backward),
    "buffer by t backward": lambda forward, backward: (forward, _changed(backward, "side ^= 1", "side = t & 1")),
}


def _changed(source: str, old: str, new: str) -> str:
    assert source.count(old) == 1
    return source.replace(old, new)


def _without_last_barrier(source: str) -> str:
    before, after = source.rsplit("__syncthreads();", 1)
    return before + after


def main() -> None:
    from minadv.fast import cuda_kernels
    from minadv.fast.cuda_engine import Cuda

    device, real, found = choose_device("gpu"), cuda_source.pass_source, {}
    for mutant, change in MUTANTS.items():

        def source(*which, change=change):
            start = 'extern "C" __global__ void'
            common, forward, backward = real(*which).split(start)
            return start.join([common, *change(forward, backward)])

        cuda_source.pass_source = source
        cuda_kernels._pass_kernels.cache_clear()
        for variant in sys.argv[1:]:
            rng = np.random.default_rng(zlib.crc32(variant.encode()))
            params, passes, *rest = cuda.problem(variant, rng, T=6, B=1, I=2, H=36)
            passes = [replace(p, valid=GAP) for p in passes[::8]]  # under a mask and without
            given = params, passes, *(each[::8] for each in rest)
            outcome = cuda.by_engine(Cuda(*cuda.VARIANTS[variant]), given, device, np.float32)
            bits = b"".join(np.ascontiguousarray(a).tobytes() for _, a in leaves(outcome))
            found[f"{variant}, {mutant}"] = hashlib.sha256(bits).hexdigest()
    print(json.dumps(found))


if __name__ == "__main__":
    main()

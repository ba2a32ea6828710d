"""Whatever order the warps of a block run in, the kernels of whole passes compute the same bits; mutants do not."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import cuda
from tests.support.cuda_skew import MUTANTS

SKEWS = (None, "1", "2", "3")  # together; ascending, descending and random, warp after warp


@pytest.fixture(scope="module")
def digests(device):
    """Of each cell and mutant, for each order."""
    cuda.needs_gpu(device)
    cuda.counters()  # the emulated device: a real one cannot be told in which order to run warps
    root, outcomes = Path(__file__).parents[2], []
    for skew in SKEWS:
        given = {name: value for name, value in os.environ.items() if name != "CPUEMU_SKEW"}
        command = [sys.executable, "-W", "ignore", "-m", "tests.support.cuda_skew", *cuda.VARIANTS]
        where = {"PYTHONPATH": os.pathsep.join([str(root), *sys.path]), **({"CPUEMU_SKEW": skew} if skew else {})}
        done = subprocess.run(command, env=given | where, cwd=root, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        outcomes.append(json.loads(done.stdout.splitlines()[-1]))
    return outcomes


@pytest.mark.parametrize("variant", cuda.VARIANTS)
def test_the_same_bits_in_every_order(variant, digests):
    assert len({outcome[f"{variant}, as it is"] for outcome in digests}) == 1


@pytest.mark.parametrize("mutant", list(MUTANTS)[1:])
@pytest.mark.parametrize("variant", cuda.VARIANTS)
def test_a_race_shows(variant, mutant, digests):
    """A barrier that is missing, and a buffer that is chosen by t, which two steps share that padding lies between."""
    right = digests[0][f"{variant}, as it is"]
    assert {outcome[f"{variant}, {mutant}"] for outcome in digests} - {right}

"""One-line mistakes that the suite must notice, and a runner that plants one in a copy of the package.

python -m tests.support.mutants            # all of them, with what caught each
"""

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.support.copies import QUIET, copy_tree, environment

CELLS, ZEROS, HHAT = "gradients/test_cells.py", "gradients/test_zeros.py", "gradients/test_hhat.py"
ENGINES, TOGETHER = "fast/test_engines.py", "fast/test_together.py"
PACKING, REMAT = "fast/test_packing.py", "fast/test_remat.py"
COMPILED, WHOLE = "fast/test_numba_steps.py", "fast/test_numba_pass.py"
LAYERS, DISTANCES, FORWARD = "gradients/test_layers.py", "gradients/test_distances.py", "test_cells.py"
TESTS_FAILED, WRONG_PACKAGE = 1, 99  # exit codes: pytest's, and ours if it would have tested something else
SECONDS = 3600  # ends what would never end; on a loaded machine a file of tests may take many minutes


@dataclass(frozen=True)
class Mutant:
    """In `minadv/<file>` the text `old`, which stands there once, becomes `new`; `caught_by` is a file of tests."""

    file: str
    name: str
    old: str
    new: str
    caught_by: str


TABLE = {
    "rnn.py": [
        ("mask lost on the way back", "dh_t = m * dhhat[t - 1] + carried", "dh_t = dhhat[t - 1] + carried", CELLS),
        ("mask gradient by the wrong state", "influence_map(h[:-1], dhhat)", "influence_map(h[1:], dhhat)", HHAT),
        ("weights one step late", "(x, m * h[:-1], dpre)", "(x, m * h[1:], dpre)", CELLS),
        ("padding has a gradient", "dh_t = dh_t - carried\n", "", ZEROS),
        ("no slope of tanh", "dpre[t - 1] = (1 - h[t] ** 2) * ", "dpre[t - 1] = ", CELLS),
    ],
    "lstm.py": [
        ("mask lost on the way back", "dh_t = m * dhhat[t - 1] + carried_h", "dh_t = dhhat[t - 1] + carried_h", CELLS),
        ("mask gradient by the wrong state", "influence_map(h[:-1], dhhat)", "influence_map(h[1:], dhhat)", HHAT),
        ("mask applied to the state itself", "hhat = m * h[t - 1]", "hhat = h[t - 1] = m * h[t - 1]", FORWARD),
        (
            "later steps forgotten",
            "dh_t if dh is None else dh_t + dh[t - 1]",
            "dh_t if dh is None else dh[t - 1]",
            CELLS,
        ),
        ("last cell's gradient ignored", "else (dstate.h, dstate.c)", "else (dstate.h, 0 * dstate.c)", CELLS),
        ("cell of the wrong step", "dc_t * c[t - 1]", "dc_t * c[t]", CELLS),
        ("padding changes the cell", "c[t] = xp.where(valid[t - 1], c_t, c[t - 1])", "c[t] = c_t", FORWARD),
        ("cell gradient lost over padding", "dc_t = f * dc_t + carried_c", "dc_t = f * dc_t", CELLS),
        (
            "the wrong gate's bias",
            "b[n_hidden : 2 * n_hidden] = forget_bias",
            "b[:n_hidden] = forget_bias",
            "test_lstm.py",
        ),
        ("wrong gate", "di, df, dg, do = dc_t * g", "di, df, dg, do = dc_t * i", CELLS),
        ("cell gradient overwritten", "dc_t = dc_t + dh_t * o", "dc_t = dh_t * o", CELLS),
        ("cell does not forget", "dc_t = f * dc_t + carried_c", "dc_t = dc_t + carried_c", CELLS),
        ("slope of the wrong activation", "(1 - g**2) * dg", "g * (1 - g) * dg", CELLS),
    ],
    "gru.py": [
        ("weights of the unmasked state", "(x, m * h[:-1], dxW, dhU)", "(x, h[:-1], dxW, dhU)", CELLS),
        ("gradient lost over padding", "(dleak if clean else 0) + carried", "(dleak if clean else 0)", CELLS),
        ("reset gate before the bias", "bn=flat_dhU[:, 2 * H :]", "bn=flat_dxW[:, 2 * H :]", CELLS),
        ("leak overwrites", "m * dhhat[t - 1] + (dleak if clean else 0)", "(dleak if clean else 0)", CELLS),
        ("masked leak not in the masked copy", "+ (0 if clean else dleak)", "+ 0", CELLS),
        ("update gate the wrong way round", "= (1 - z) * dh_t, (", "= z * dh_t, (", CELLS),
    ],
    "fast/rows.py": [
        (
            "rows: mask lost on the way back",
            "namespace(dhhat).multiply(dhhat, m, out=dh_t)",
            "dh_t[...] = dhhat",
            ENGINES,
        ),
        ("rows: map of the last step only", "dm += dhhat * h_prev", "dm[...] = dhhat * h_prev", ENGINES),
        ("rows: padding has a gradient", "dh_t -= carried", "pass", ENGINES),
        ("rows: leak overwrites", "dh_t += dleak", "dh_t[...] = dleak", ENGINES),
    ],
    "fast/columns.py": [
        ("columns: map overwritten", "dm += xp.multiply(", "dm[...] = xp.multiply(", ENGINES),
        (
            "columns: mask applied to the state itself",
            "xp.multiply(h, m, out=entering[:H])",
            "entering[:H] = xp.multiply(h, m, out=h)",
            ENGINES,
        ),
        ("columns: later steps forgotten", "dh[:, n] += dh_out[t - 1].T", "dh[:, n] = dh_out[t - 1].T", ENGINES),
        (
            "columns: cell of the wrong step",
            "first.a[t - 1][:, :, None], first.c[t - 1]",
            "first.a[t - 1][:, :, None], first.c[t]",
            ENGINES,
        ),
        ("columns: cell gradient lost over padding", "dc[:, n] += carried_c", "pass", ENGINES),
        (
            "all passes read the first one's columns",
            "= a[:, :, n], c[:, n], h[:, n]",
            "= a[:, :, 0], c[:, n], h[:, n]",
            TOGETHER,
        ),
        (
            "gates in another order on the way back",
            "params.U.reshape(H, 4, H).tr",
            "params.U[:, ::-1].reshape(H, 4, H).tr",
            TOGETHER,
        ),
        ("one x for all passes", "xW[n][t - 1]", "xW[0][t - 1]", TOGETHER),
    ],
    "fast/chunks.py": [
        ("chunks overwrite each other", "if self.dparams is None else xp.add(", "if True else xp.add(", TOGETHER),
        ("each x once, whatever the passes", "all(other is x for other in self._xs)", "True", TOGETHER),
    ],
    "fast/packing.py": [
        ("pieces overwrite each other", "out += xp.matmul(", "out[...] = xp.matmul(", PACKING),
        ("steps of a group in another order", "-1, B).transpose(1, 0, 2)", "-1, B).transpose(1, 0, 2)[::-1]", PACKING),
    ],
    "fast/remat.py": [
        (
            "each segment packs its weights",
            "with scope(work):  # the segments",
            "with scope(None):  # the segments",
            REMAT,
        ),
        ("segments overwrite each other", "out=whole), total, share)", "out=part), total, share)", REMAT),
        (
            "the state of another segment",
            "_segment(cache.given, steps, cache.states[n])",
            "_segment(cache.given, steps, cache.states[0])",
            REMAT,
        ),
    ],
    "fast/elementwise.py": [
        ("no slope of tanh, in place", "xp.multiply(dz, dh, out=dz)", "dz[...] = dh", ENGINES),
        ("wrong gate, in place", "di *= g", "di *= i", ENGINES),
        ("cell gradient overwritten, in place", "dc += scratch", "dc[...] = scratch", ENGINES),
        ("cell does not forget, in place", "dc *= f", "pass", ENGINES),
        ("update gate the wrong way round, in place", "dn *= 1 - z", "dn *= z", ENGINES),
    ],
    "fast/numba_steps.py": [
        ("slope of the wrong activation, compiled", "(_ONE + g) * i * dc_j", "(_ONE - g) * i * dc_j", COMPILED),
        ("a constant with a wrong digit", "1.6666665459e-1", "1.6665665459e-1", COMPILED),
        ("NaN becomes a number", "x = _LEAST if x < _LEAST else x", "x = x if x >= _LEAST else _LEAST", COMPILED),
        (
            "the cell's memory is the gate's",
            "_loop(gates, cell, gates, cell, ",
            "_loop(gates, gates[0], gates, cell, ",
            COMPILED,
        ),
        ("the mask is lost on the way back, compiled", "dh[j] = dhhat[j] * m[j]", "dh[j] = dhhat[j]", WHOLE),
        ("the map is of the last step only, compiled", "dm[j] += dhhat[j] * h[j]", "dm[j] = dhhat[j] * h[j]", WHOLE),
        ("the chunk's first state, compiled", "h[:] = h_start", "pass", WHOLE),
        ("cells of the next step, compiled", "= cells[t].reshape(shape), h", "= cells[t + 1].reshape(shape), h", WHOLE),
        ("gates add up to the last, compiled", "_plus(dhhat.reshape(n), h.reshape(n))", "dhhat[:] = h", WHOLE),
        (
            "what is no number vanishes, compiled",
            "_f(0) if abs(gradient[j]) <= _VANISHED else gradient[j]",
            "gradient[j] if abs(gradient[j]) > _VANISHED else _f(0)",
            WHOLE,
        ),
        ("padding has a cell, compiled", "_keep_padding(valid[t], kept[0], c)", "pass", WHOLE),
        ("padding has a state, compiled", "_keep_padding(valid[t], kept[1], h)", "pass", WHOLE),
        ("some padding is all, compiled", "if not padded or valid[t].any():", "if not padded:", WHOLE),
        ("cells change over padding, compiled", "_keep_padding(valid[t], cells[t], cells[t + 1])", "pass", WHOLE),
        ("states change over padding, compiled", "while last >= 0 and not valid[last, b]:", "while False:", WHOLE),
        ("padding forgets the chunk's state, compiled", "h_start[r, b] if last < 0 else", "0 if last < 0 else", WHOLE),
        ("padding has a gradient, compiled", "_zero_padding(valid[t], dz)", "pass", WHOLE),
        ("padding takes from the cell, compiled", "_keep_padding(valid[t], carried_c, dc)", "pass", WHOLE),
        ("padding takes from the state, compiled", "_keep_padding(valid[t], carried_h, dh)", "pass", WHOLE),
        ("some padding is all on the way back, compiled", "padded and not valid[t].any()", "padded", WHOLE),
    ],
    "fast/numba_pass.py": [
        ("the first chunk's cell for all, compiled", "cells[0] = cache.c[k]", "cells[0] = cache.c[0]", WHOLE),
        ("the first chunk's padding for all, compiled", "rows[steps], valid[steps]", "rows[steps], valid", WHOLE),
        ("the first chunk's padding, going back", "cache.valid[steps]", "cache.valid", WHOLE),
    ],
    "fast/choice.py": [
        ("the first version compiles padding", "VERSIONS[1:] if padded else VERSIONS", "VERSIONS", WHOLE),
    ],
    "tasks/config.py": [
        ("old runs go on otherwise", '"engine": "fast-1"', '"engine": "fast-2"', "tasks/test_engine_versions.py"),
    ],
    "layers.py": [
        (
            "repeated tokens overwrite",
            "dE[ordered[starts]] = xp.add.reduceat(dy.reshape(-1, E.shape[1])[order], starts, axis=0)",
            "dE[flat] = dy.reshape(-1, E.shape[1])",
            "test_layers.py",
        ),
        ("target forgotten", "dlogits[rows, columns] -= 1", "pass", LAYERS),
        ("slope at the kink", "xp.where(x > 0, dy, 0)", "xp.where(x >= 0, dy, 0)", LAYERS),
    ],
    "distances.py": [
        ("the other's mean in js", "(terms1, p1, sum1)", "(terms1, p1, sum0)", DISTANCES),
        ("sign of the second argument", "_through_softmax(p1, -2 * gap)", "_through_softmax(p1, 2 * gap)", DISTANCES),
        ("what rounding has lost stays lost", "    log += x\n", "", "test_distances.py"),
        ("js may come out negative", "return xp.maximum(d, 0), terms0", "return d, terms0", "test_distances.py"),
        ("mean of the scores forgotten", "p * (s - (p * s).sum(axis=-1, keepdims=True))", "p * s", DISTANCES),
    ],
    "gradcheck.py": [
        ("a lenient checker", "error <= tol * max(", "error <= 1e4 * tol * max(", "test_gradcheck.py"),
    ],
    "fast/workspace.py": [
        ("stale caches pass", "slot.ticket += 1", "slot.ticket += 0", ENGINES),
        (
            "memory grows outside a scope",
            "if self._made is None:\n            return Slot()",
            "if False:\n            return Slot()",
            "fast/test_workspace.py",
        ),
    ],
}
MUTANTS = [Mutant(file, *row) for file, rows in TABLE.items() for row in rows]

CHECKED_PYTEST = f"""
import pathlib, sys
import minadv, pytest
found = pathlib.Path(minadv.__file__).parents[1]
sys.exit(pytest.main(sys.argv[1:]) if found == pathlib.Path.cwd() else {WRONG_PACKAGE})
"""


def planted(text: str, mutant: Mutant) -> str:
    """The text of the mutant's file with the mutant in it."""
    assert text.count(mutant.old) == 1, f"{mutant.file} has {mutant.old!r} {text.count(mutant.old)} times, not once"
    return text.replace(mutant.old, mutant.new)


def run(mutant: Mutant | None, files: list[str]) -> subprocess.CompletedProcess[str]:
    """Run these files of tests against a copy of the package, with the mutant planted in it if there is one."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder).resolve()
        copy_tree(copy)
        if mutant is not None:
            source = copy / "minadv" / mutant.file
            source.write_text(planted(source.read_text(), mutant))
        command = [sys.executable, "-c", CHECKED_PYTEST, *QUIET, *(f"tests/{file}" for file in files)]
        given = {"cwd": copy, "env": environment(copy), "capture_output": True, "text": True, "timeout": SECONDS}
        try:
            return subprocess.run(command, **given)
        except subprocess.TimeoutExpired as error:
            what = "no mutant" if mutant is None else f"the mutant {mutant.name!r} of {mutant.file}"
            said = error.stdout.decode() if isinstance(error.stdout, bytes) else error.stdout
            raise AssertionError(
                f"{', '.join(files)} with {what} did not end in {SECONDS} s; so far:\n{said}"
            ) from None


def main() -> None:
    for mutant in MUTANTS:
        result = run(mutant, [mutant.caught_by])
        failed = [line for line in result.stdout.splitlines() if line.startswith("FAILED")]
        print(f"{mutant.name}: {failed[0] if result.returncode == TESTS_FAILED else f'SURVIVED ({result.returncode})'}")


if __name__ == "__main__":
    main()

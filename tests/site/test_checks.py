"""The check of each file passes on the file as it is, and names the argument that a mistake in it spoils."""

import json
from pathlib import Path

import pytest
from _site import checks, source

from tests.site.support import ROOT
from tests.site.test_kernel import in_a_copy

MUTANTS = [
    ("rnn", "dpre[t - 1] = (1 - h[t] ** 2) * dh_t", "dpre[t - 1] = (1 + h[t] ** 2) * dh_t", {"dx", "dm", "dparams.W"}),
    ("lstm", "dc_t = f * dc_t + carried_c", "dc_t = -f * dc_t + carried_c", {"dstate.c", "dx"}),
    ("gru", "bn=flat_dhU[:, 2 * H :]", "bn=flat_dxW[:, 2 * H :]", {"dparams.bn"}),
    (
        "masks",
        "return (dm - mean) * (eps.shape[-1] / kept)",
        "return dm * (eps.shape[-1] / kept)",
        {'scale="kept": deps'},
    ),
    ("distances", "_through_softmax(p1, -2 * gap)", "_through_softmax(p1, 2 * gap)", {"l2: dlogits1"}),
    ("influence", '"ubh,ubh->bh", dhhat, h_prev)', '"ubh,ubh->bh", dhhat, h_prev) * 2', {"rnn: influence_map"}),
    ("flip", "limit = budget if", "limit = budget - 1 if", {"paper: one beyond the budget"}),
    (
        "flip",
        "gain = (1 - 2 * eps) * im  # Eq. 7",
        "gain = (2 * eps - 1) * im  # Eq. 7",
        {"strict: the best of all masks, for a linear D"},
    ),
    ("searches", "math.ceil((k + 1) * b / self.K)", "math.ceil((k + 2) * b / self.K)", {"Greedy(): within the budget"}),
    ("adversary", "passes=Passes(*objective.spent)", "passes=Passes(0, 0)", {"passes of K = 2"}),
    (
        "regularizers",
        "nll = tally.add_nll(base, on.likelihood)",
        "nll = tally.add_nll(base, -on.likelihood)",
        {"AdD: dparams.V"},
    ),
    ("bounds", "return self.el - self.fd / 2", "return self.el - self.fd", {"js: EL = ½ FD + bias"}),
]


@pytest.mark.parametrize("name", source.PAGES)
def test_the_file_as_it_is(name: str) -> None:
    rows = checks.check(name)
    assert len(rows) >= 5
    assert [row for row in rows if not row.passed] == []


@pytest.mark.parametrize(("name", "line", "mutant", "noticed"), MUTANTS, ids=[f"{m[0]}: {m[2]}" for m in MUTANTS])
def test_a_mistake_turns_its_rows_red(tmp_path: Path, name: str, line: str, mutant: str, noticed: set[str]) -> None:
    text = (ROOT / "minadv" / f"{name}.py").read_text()
    assert line in text
    program = f"""
path = "minadv/{name}.py"
kernel.edit(path, {text.replace(line, mutant)!r})
rows = lambda: json.loads(kernel.call("checks.report", '["{name}"]'))["rows"]
failed = lambda: [row["name"] for row in rows() if not row["passed"]]
print(json.dumps(failed()))
kernel.reset()
print(json.dumps(failed()))
"""
    red, after = map(json.loads, in_a_copy(tmp_path, program).splitlines())
    assert noticed <= set(red)
    assert after == []


def test_a_file_that_does_not_run_is_one_red_row(tmp_path: Path) -> None:
    program = """
kernel.edit("minadv/lstm.py", "raise RuntimeError('broken')")
print(kernel.call("checks.report", '["lstm"]'))
"""
    assert "RuntimeError: broken" in in_a_copy(tmp_path, program)

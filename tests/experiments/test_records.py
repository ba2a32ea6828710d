"""The form of results as data: a run a line, nothing lost that is shown, the indented form of earlier versions read."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("threadpoolctl", reason="experiments set BLAS threads")
pytest.importorskip("tqdm", reason="experiments show progress")

from experiments.parts import records, reporting

RUN = {"method": "VD", "preset": {"dropouts": (0.123456789012,)}, "valid": {"error": 100 / 3}, "curve": [(1, 200 / 3)]}


@pytest.fixture(autouse=True)
def once(device: Any) -> None:
    if device.name == "gpu":
        pytest.skip("the same on every backend")


def test_a_run_is_a_line() -> None:
    beginning = '{"method":"VD","preset":{"dropouts":[0.123456789012]},'
    run = beginning + '"valid":{"error":33.333333333333336},"curve":[[1,66.666667]]}'
    assert records.text({"facts": {"cores": 2, "blas": []}, "search": [], "results": [RUN, RUN]}).splitlines() == [
        "{",
        '"facts":{"cores":2,"blas":[]},',
        '"search":[],',
        '"results":[',
        f"{run},",
        run,
        "]",
        "}",
    ]


def test_records_by_name_and_within_each_other() -> None:
    """A race is opened for its contenders if it is long; a short record with a table in it stays on its line."""
    contenders = {name: {"seconds": [1.5] * 300} for name in ("a", "b")}
    short = {"rounds": 1, "contenders": {"a": {"seconds": [2.5]}}}
    lines = records.text({"speed": {"S": {"rounds": 5, "contenders": contenders}, "text": short}}).splitlines()
    each = json.dumps([1.5] * 300, separators=(",", ":"))
    assert lines == [
        "{",
        '"speed":{',
        '"S":{',
        '"rounds":5,',
        '"contenders":{',
        f'"a":{{"seconds":{each}}},',
        f'"b":{{"seconds":{each}}}',
        "}",
        "},",
        '"text":{"rounds":1,"contenders":{"a":{"seconds":[2.5]}}}',
        "}",
        "}",
    ]


def test_what_is_written_comes_back_as_it_is_shown() -> None:
    """Lists are rounded, once and for all; numbers that stand alone and all of a preset are exact."""
    plain = records.plain(RUN)
    assert plain["curve"] == [[1, 66.666667]]
    assert plain["valid"]["error"] == 100 / 3
    assert plain["preset"] == {"dropouts": [0.123456789012]}
    assert records.tuples(plain["preset"]) == RUN["preset"]
    assert records.plain(plain) == records.parse(records.text(RUN)) == plain


def test_numbers_of_numpy_and_numbers_that_are_none() -> None:
    data = {"results": [{"loss": np.float32(0.5), "curve": [np.float32(1 / 3), None, float("inf"), True, 10**12]}]}
    assert records.parse(records.text(data)) == {
        "results": [{"loss": 0.5, "curve": [0.33333334, None, float("inf"), True, 10**12]}]
    }


@pytest.mark.parametrize("first", [0, 4])
def test_gaps(first: int) -> None:
    """Only of many whole numbers that rise."""
    wrong = [first, *(first + 7 * n for n in range(1, records.MANY))]
    written = records.text({"wrong": wrong})
    assert json.loads(written) == {"wrong": {"gaps": [first] + [7] * (records.MANY - 1)}}
    assert records.parse(written) == {"wrong": wrong}
    for other in (wrong[1:], wrong[::-1], [*wrong, wrong[-1]], [*wrong, wrong[-1] + 1.5], [False, *wrong[1:]]):
        assert json.loads(records.text({"wrong": other})) == {"wrong": other}


def test_the_form_of_earlier_versions_is_read(tmp_path: Path) -> None:
    data = {"facts": {"cores": 2}, "results": [records.plain(RUN)], "wrong": list(range(200))}
    old = reporting.write_json(tmp_path / "old.json", data)
    new = reporting.write_results(tmp_path / "new.json", data)
    assert old.read_text().startswith('{\n "facts": {\n  "cores": 2\n')
    assert reporting.read_results(old) == reporting.read_results(new) == data

"""The results that are kept in the repository: small files in one form, and texts and figures that follow from them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("safetensors")
pytest.importorskip("threadpoolctl", reason="experiments set BLAS threads")
pytest.importorskip("tqdm", reason="experiments show progress")

from experiments import bounds, figure3, launches, scaling, table2, table3
from experiments.bench import figure as bench_figure
from experiments.bench import images as bench_images
from experiments.bench import language as bench_language
from experiments.bench import report as bench_report
from experiments.bench import text as bench_text
from experiments.parts import quality_figure, quality_report, records, reporting, stronger_report
from experiments.parts.compared import report as compared

FILES = sorted(reporting.RESULTS.glob("*.json"))
LARGEST = 200_000
"""Bytes of a file of data."""

PAGES: dict[str, Callable[[Any], str]] = {
    **dict.fromkeys(("table2-docstrings", "table2-imdb-small"), table2.page),
    **dict.fromkeys(("table3-pydoc", "table3-ptb-small"), table3.page),
    "figure3-digits": figure3.page,
    "bounds": bounds.page,
    "search_quality": quality_report.page,
    "scaling": scaling.page,
    "launches": launches.text,
    "stronger": stronger_report.page,
    "bench": bench_report.text,
    "bench_images": bench_images.text,
    "bench_language": bench_language.report,
    "bench_text": bench_text.text,
    **{path.stem: compared.page for path in FILES if path.stem.startswith("compare-")},
}
"""What makes the text of each file of data."""

FIGURES: dict[str, Callable[[Any], Any]] = {
    **{name: table2.figure for name, page in PAGES.items() if page is table2.page},
    **{name: table3.figure for name, page in PAGES.items() if page is table3.page},
    "figure3-digits": lambda data: figure3.figure(data["results"]),
    "bounds": lambda data: bounds.figure(data["results"]),
    "search_quality": quality_figure.figure,
    "stronger": stronger_report.figure,
    "bench": bench_figure.figure,
    **{name: compared.figure for name, page in PAGES.items() if page is compared.page},
}
"""What draws the figure of each file of data that has one."""


@pytest.fixture(autouse=True)
def once(device: Any) -> None:
    if device.name == "gpu":
        pytest.skip("the same on every backend")


def kept(ending: str) -> set[str]:
    return {path.stem for path in reporting.RESULTS.glob(f"*.{ending}")}


def test_all_that_is_kept_is_known() -> None:
    assert kept("json") == kept("md") == PAGES.keys()
    assert kept("png") == FIGURES.keys()
    assert kept("jsonl") == set()


@pytest.mark.parametrize("path", sorted(reporting.RESULTS.glob("*.json*")), ids=lambda path: path.name)
def test_no_file_of_data_is_large(path: Path) -> None:
    assert path.stat().st_size <= LARGEST


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_data_is_in_the_one_form(path: Path) -> None:
    assert records.text(reporting.read_results(path)) == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PAGES)
def test_the_text_follows_from_the_data(name: str) -> None:
    data = reporting.read_results(reporting.RESULTS / f"{name}.json")
    assert PAGES[name](data) == (reporting.RESULTS / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", FIGURES)
def test_the_figure_can_be_drawn_from_the_data(name: str) -> None:
    plt = pytest.importorskip("matplotlib.pyplot", reason="figures need matplotlib")
    drawn = FIGURES[name](reporting.read_results(reporting.RESULTS / f"{name}.json"))
    drawn.canvas.draw()
    assert drawn.axes
    plt.close(drawn)

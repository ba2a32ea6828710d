"""The live parts: pinned, whole, small enough, and the same in WebAssembly as here."""

import gzip
import io
import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from _site import cells, parts

from tests.site.support import ROOT, Example, examples, fetched, have, pages


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the worker loads from."""
    fetched(*parts.SERVED)
    folder = tmp_path_factory.mktemp("live")
    sizes = parts.assemble(folder)
    assert json.loads((folder / "parts.json").read_text()) == sizes
    return folder


def in_webassembly(live: Path, by_page: dict[str, list[Example]]) -> dict[str, list[dict[str, Any]]]:
    given = {page: [{"code": e.code, "answer": e.answer} for e in codes] for page, codes in by_page.items()}
    command = [have("node"), ROOT / "tests" / "site" / "pyodide.mjs", live]
    done = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    results: dict[str, list[dict[str, Any]]] = json.loads(done.stdout)
    return results


@pytest.mark.site
def test_what_is_served_is_small(live: Path) -> None:
    total = sum(file.stat().st_size for file in live.iterdir()) + len(parts.font())
    assert total < 10_000_000


@pytest.mark.site
def test_nothing_is_packed_that_no_page_needs(live: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress((live / "numpy.tar.gz").read_bytes()))) as tar:
        names = tar.getnames()
    assert "numpy/__init__.py" in names
    assert [name for name in names if "/tests/" in name or name.endswith(".pyi")] == []
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress((live / "minadv.tar.gz").read_bytes()))) as tar:
        names = tar.getnames()
    assert {"minadv/lstm.py", "_site/page.py"} <= set(names)
    assert [name for name in names if "__pycache__" in name or "static" in name] == []


@pytest.mark.site
def test_the_same_files_give_the_same_parts(live: Path, tmp_path: Path) -> None:
    parts.assemble(tmp_path)
    assert (tmp_path / "minadv.tar.gz").read_bytes() == (live / "minadv.tar.gz").read_bytes()


def test_a_changed_package_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "minadv-site").mkdir()
    (tmp_path / "minadv-site" / "pyodide-0.25.1.tgz").write_bytes(b"something else")
    with pytest.raises(parts.PartsMissing, match="is not the pyodide that was expected"):
        parts.fetch("pyodide")


def test_without_npm_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(parts.PartsMissing, match="there is no npm on this machine"):
        parts.fetch("pyodide")


@pytest.mark.site
def test_the_readme_gives_its_digits_in_webassembly(live: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    shown = re.search(r"^<!-- output -->\n```text\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    assert shown is not None
    code = (ROOT / "docs" / "example.py").read_text()
    [result] = in_webassembly(live, {"example": [Example(code)]})["example"]
    assert result["error"] is None
    rounding = re.compile(r"difference .*? \(")  # its size and place depend on the machine
    assert rounding.sub("", result["text"]) == rounding.sub("", shown[1])


@pytest.mark.site
def test_large_intermediate_results_do_not_end_the_worker(live: Path) -> None:
    """NumPy asks for the function backtrace where an intermediate result has 256 KiB or more."""
    code = "a = np.ones(300_000)\nprint((a * 2 + 1 - a).sum())"
    [result] = in_webassembly(live, {"large": [Example(code)]})["large"]
    assert result["error"] is None and result["text"] == "600000.0\n"


@pytest.mark.site
def test_every_example_runs_in_webassembly(live: Path) -> None:
    """The build runs them in CPython; the reader's Python is another one, with another NumPy."""
    by_page = pages()
    if not by_page:
        pytest.skip("no page has an example")
    results = in_webassembly(live, by_page)
    wrong = []
    for page, codes in by_page.items():
        for example, result in zip(codes, results[page], strict=True):
            if example.answer is not None and not result["right"]:
                wrong.append(f"{page}: the solution is not right: {example.answer}\n{example.code}\n{result['error']}")
            elif example.answer is None and (result["error"] is not None) != example.raises:
                wrong.append(f"{page}: {result['error'] or 'did not raise'}\n{example.code}")
    assert not wrong, "\n\n".join(wrong)


def test_minadv_needs_numpy_alone() -> None:
    """As in the browser: importing minadv must not need SciPy, nor anything else that is no part of Python."""
    program = (
        "import sys\n"
        "class Refuse:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name.split('.')[0] in ('scipy', 'sklearn', 'matplotlib', 'tqdm', 'safetensors'):\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "import minadv\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_examples_are_found_in_a_page() -> None:
    text = "# A\n\n```{live}\n:raises:\n1 / 0\n```\n\n````{exercise} t\n:kind: code\n:answer: f() == 1\n\n"
    text += "X\n\n```start\n```\n\n```solution\ndef f(): return 1\n```\n````\n\n"
    text += "````{exercise} n\n:kind: number\n:answer: 2\n\nX\n````\n"
    first, second = examples(text)
    assert first == Example("1 / 0", raises=True)
    assert second == Example("def f(): return 1\n", answer="f() == 1")
    assert cells.run(second.code, cells.namespace()).error is None

"""What the page's worker calls, in a Python of its own: examples, calls, modules that are edited and put back."""

import shutil
import subprocess
import sys
from pathlib import Path

from _site import kernel

from tests.site.support import DOCS, ROOT


def in_a_copy(folder: Path, program: str) -> str:
    """What a program prints beside a copy of minadv and of the site, which it may change."""
    ignore = shutil.ignore_patterns("__pycache__", "static")
    shutil.copytree(ROOT / "minadv", folder / "minadv", ignore=ignore)
    shutil.copytree(DOCS / "_site", folder / "_site", ignore=ignore)
    begin = "import sys\nsys.dont_write_bytecode = True\nimport json\nfrom _site import kernel\n"
    command = [sys.executable, "-c", begin + program]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_edited_module_is_what_runs(tmp_path: Path) -> None:
    program = """
path = "minadv/masks.py"
code = "print(minadv.masks.budget(0.5, 10))"
show = lambda: print(json.loads(kernel.run(code))["text"], end="")
show()
source = (kernel.PLACE / path).read_text()
kernel.edit(path, source.replace("return flips", "return -flips"))
show()
kernel.reset()
show()
try:
    kernel.edit(path, "def f(:")
except SyntaxError:
    print("refused")
show()
print((kernel.PLACE / path).read_text() == source)
"""
    assert in_a_copy(tmp_path, program).split() == ["5", "-5", "5", "refused", "5", "True"]


def test_examples_and_answers(tmp_path: Path) -> None:
    program = """
kernel.run("a = 2")
print(json.loads(kernel.run("print(a)"))["text"], end="")
print(json.loads(kernel.exercise("a = 3", "a == 3"))["right"], json.loads(kernel.exercise("", "a == 3"))["right"])
print(json.loads(kernel.exercise("b = 1 / 0", "b == 3"))["right"])
print(kernel.call("page.number", "[0.25]"), kernel.call("minadv.masks.budget", '{"delta": 0.5, "n_hidden": 8}'))
"""
    assert in_a_copy(tmp_path, program).splitlines() == ["2", "True False", "False", '"0.25" 4']


def test_json_has_no_number_that_is_none() -> None:
    import numpy as np
    from _site import page

    assert (
        kernel.to_json({"a": np.arange(2), "b": (float("nan"), np.float64(0.5))}) == '{"a": [0, 1], "b": [null, 0.5]}'
    )
    assert kernel.to_json([page.Shown("<p>", "p")]) == '["<p>"]'

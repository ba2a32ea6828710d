"""Checkpoints: what is saved comes back bit for bit; damage to a file is noticed, and a broken save survived."""

import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minadv.base import files
from minadv.base.trees import leaves, tree_map
from minadv.training.runs import checkpoints
from minadv.training.runs.checkpoints import CheckpointError, CheckpointWarning, latest, load, save
from tests.support.compare import assert_same_bits
from tests.support.runs import Params, assert_sound, names, tree_at

pytest.importorskip("safetensors")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with sound checkpoints at steps 10 and 20."""
    for step in (10, 20):
        save(tmp_path, step, tree_at(step), {"at": step})
    return tmp_path


def test_everything_comes_back(tmp_path: Path, put: Any) -> None:
    base = np.arange(24.0).reshape(4, 6)
    tree = {
        "transposed": base.T,
        "strided": base[::2, 1::2],
        "empty": np.zeros((0, 3), np.float32),
        "scalar": np.array(3.5),
        "flags": np.array([True, False]),
        "ints": (np.array([1, -2]), np.array([3], np.uint8)),
        "special": np.array([math.nan, math.inf, -0.0, 5e-324]),
    }
    plain = {"n": 3, "best": math.inf, "third": 1 / 3, "name": "é\n", "on": True, "none": None, "window": (0.1, 2.0)}
    meta = {"nested": {"list": [1, 2.5, None, "x"]}, "numpy": np.float32(0.5)}
    path = save(tmp_path, 7, {**put(tree), **plain}, meta)
    restored, found = load(path, like={**put(tree), **plain})
    assert path == tmp_path / "checkpoints" / "step-00000007.json" == latest(tmp_path)
    assert found == {"nested": {"list": [1, 2.5, None, "x"]}, "numpy": 0.5}
    assert_same_bits({name: restored[name] for name in tree}, tree)
    assert {name: restored[name] for name in plain} == plain
    assert np.signbit(restored["special"][2])
    by_path, _ = load(path)
    assert by_path.keys() == dict(leaves({**tree, **plain})).keys()
    assert json.loads(path.read_text())["content"]["step"] == 7


def test_the_last_ones_are_kept(tmp_path: Path) -> None:
    assert latest(tmp_path) is None
    for step in range(1, 6):
        save(tmp_path, step, tree_at(step), {"at": step}, keep=2)
        assert_sound(tmp_path, step)
        assert len(names(tmp_path)) == 2 * min(step, 2)
    assert [name for name in names(tmp_path) if name.endswith("json")] == ["step-00000004.json", "step-00000005.json"]


def test_a_save_reads_no_arrays(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def verify(path: Path) -> None:
        raise AssertionError(f"the arrays of {path} are read")

    monkeypatch.setattr(checkpoints, "verify", verify)
    save(run, 30, tree_at(30), {"at": 30}, keep=2)
    assert [name for name in names(run) if name.endswith("json")] == ["step-00000020.json", "step-00000030.json"]


def test_a_damaged_one_is_told_as_it_is_when_it_is_asked_for(run: Path) -> None:
    newest = run / "checkpoints" / "step-00000020.json"
    newest.write_text("{}")
    with pytest.raises(CheckpointError) as said:
        checkpoints.verify(newest)
    with pytest.warns(CheckpointWarning) as told:
        latest(run)
    assert [str(one.message) for one in told] == [f"{said.value}; using step-00000010.json instead"]


def test_the_bytes_of_the_largest(run: Path) -> None:
    assert checkpoints.largest(run / "elsewhere") is None
    sizes = [checkpoints.verify(run / "checkpoints" / f"step-000000{step}.json").nbytes for step in (10, 20)]
    assert checkpoints.largest(run) == max(sizes)
    wide = checkpoints.verify(save(run, 15, {"a": np.zeros(10_000)}, {})).nbytes
    assert checkpoints.largest(run) == wide > 80_000
    next((run / "checkpoints").glob("step-00000015-*")).write_bytes(b"")  # cut off: what it had held counts
    assert checkpoints.largest(run) == wide
    (run / "checkpoints" / "step-00000015.json").write_text("{}")
    assert checkpoints.largest(run) == max(sizes)


def test_without_a_word_three_are_kept_from_the_very_first_step_on(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "new"  # which are not there
    for step in range(5):
        save(run, step, tree_at(step), {})
        assert len(names(run)) == 2 * min(step + 1, 3)


def test_a_damaged_one_does_not_count_as_kept(run: Path) -> None:
    (run / "checkpoints" / "step-00000020.json").write_text("{}")
    save(run, 30, tree_at(30), {"at": 30}, keep=2)
    assert load(run / "checkpoints" / "step-00000010.json")[1] == {"at": 10}
    save(run, 40, tree_at(40), {"at": 40}, keep=2)
    assert [name for name in names(run) if name.endswith("json")] == ["step-00000030.json", "step-00000040.json"]


def test_the_arrays_of_a_damaged_one_are_left_as_long_as_it_is(run: Path) -> None:
    """Its JSON file may be mended by hand, and then needs them; with it they go too."""
    arrays = tensors_of(run, 20)
    before = arrays.read_bytes()
    (run / "checkpoints" / "step-00000020.json").write_text("{}")
    save(run, 30, tree_at(30), {"at": 30}, keep=3)
    assert arrays.read_bytes() == before
    save(run, 40, tree_at(40), {"at": 40}, keep=1)
    assert not arrays.exists()


def test_the_same_step_again(run: Path) -> None:
    save(run, 20, tree_at(20), {"at": 20})
    save(run, 20, {**tree_at(20), "params": tree_at(5)["params"]}, {"at": 20.5})
    assert len(names(run)) == 4
    tree, meta = load(run / "checkpoints" / "step-00000020.json", like=tree_at(0))
    assert meta == {"at": 20.5}
    assert_same_bits(tree["params"], tree_at(5)["params"])


def test_a_new_one_is_kept_even_if_later_ones_are_there(run: Path) -> None:
    path = save(run, 15, tree_at(15), {"at": 15}, keep=1)
    assert load(path)[1] == {"at": 15}


def damage(path: Path, change: Callable[[bytes], bytes]) -> None:
    whole = path.read_bytes()
    path.write_bytes(change(whole))
    assert path.read_bytes() != whole


def flip(at: int, bit: int) -> Callable[[bytes], bytes]:
    return lambda b: b[:at] + bytes([b[at] ^ (1 << bit)]) + b[at + 1 :]


def expect_refused(run: Path, match: str = "") -> None:
    """Step 20 is refused, with step 10 offered, and passed over."""
    with pytest.raises(CheckpointError, match=f"{match}.*; the one before it is sound: .*step-00000010.json"):
        load(run / "checkpoints" / "step-00000020.json")
    with pytest.warns(CheckpointWarning, match=r"using step-00000010\.json instead"):
        assert latest(run) == run / "checkpoints" / "step-00000010.json"


def tensors_of(run: Path, step: int) -> Path:
    (path,) = (run / "checkpoints").glob(f"step-{step:08d}-*.safetensors")
    return path


@pytest.mark.parametrize("share", [0, 0.001, 0.1, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("which", ["json", "tensors"])
def test_truncated(run: Path, which: str, share: float) -> None:
    path = tensors_of(run, 20) if which == "tensors" else run / "checkpoints" / "step-00000020.json"
    damage(path, lambda b: b[: int(share * len(b))])
    expect_refused(run, "bytes" if which == "tensors" else "truncated")


def test_every_byte_of_the_json_counts(run: Path) -> None:
    path = run / "checkpoints" / "step-00000020.json"
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(flip(at, at % 8)(whole))
        with pytest.raises(CheckpointError, match=r"damaged|truncated"):
            checkpoints.verify(path)
    path.write_bytes(whole + b" ")
    expect_refused(run)


@pytest.mark.parametrize("share", [0, 0.01, 0.1, 0.3, 0.7, 0.999])
def test_flipped_bits_of_the_arrays(run: Path, share: float) -> None:
    path = tensors_of(run, 20)
    damage(path, flip(int(share * path.stat().st_size), 3))
    expect_refused(run, "damaged")


@pytest.mark.parametrize("content", [b"", b"{}", b"hello", b"\x80\x04\x95", b"PK\x03\x04" + bytes(100), bytes(4096)])
def test_foreign_files(run: Path, content: bytes) -> None:
    (run / "checkpoints" / "step-00000020.json").write_bytes(content)
    expect_refused(run, "was not written by minadv")
    other = run / "checkpoints" / "model.pt"
    other.write_bytes(content)
    said = r"model\.pt is truncated or was not written by minadv.*; there is no sound one before it"
    with pytest.raises(CheckpointError, match=said):
        load(other)


def test_sealed_but_not_a_checkpoint(run: Path) -> None:
    path = run / "checkpoints" / "step-00000020.json"
    content = files.unseal(path)
    path.write_bytes(files.seal({**content, "format": "minadv checkpoint 99"}))
    expect_refused(run, "has format 'minadv checkpoint 99', expected 'minadv checkpoint 1'")
    path.write_bytes(files.seal({**content, "scalars": 3}))
    expect_refused(run, r"step-00000020\.json: scalars is 3, expected")
    path.write_bytes(files.seal({**content, "tensors": {**content["tensors"], "file": "../../secret.safetensors"}}))
    expect_refused(run, r"names '\.\./\.\./secret\.safetensors'")


def test_a_sealed_file_that_does_not_open(run: Path) -> None:
    path, arrays = run / "checkpoints" / "step-00000020.json", tensors_of(run, 20)
    arrays.unlink()
    arrays.mkdir()
    content = files.unseal(path)
    path.write_bytes(files.seal({**content, "tensors": {**content["tensors"], "bytes": arrays.stat().st_size}}))
    expect_refused(run, "cannot read .*: Is a directory")


def test_a_checkpoint_of_another_run(run: Path) -> None:
    """Each knows the configuration that it was made with, or one that this has replaced, where there is any."""
    config = run / files.CONFIG
    config.write_bytes(files.seal({"config": {"seed": 1}}))
    path, own = save(run, 30, tree_at(30), {}), hashlib.sha256(config.read_bytes()).hexdigest()
    checkpoints.verify(path)
    checkpoints.verify(run / "checkpoints" / "step-00000020.json")  # knows none
    others: list[Any] = [{"seed": 2}, {"before": ["other"]}, {"before": own}, {"before": 3}, None]
    for content in [files.seal({"config": other}) for other in others] + [files.seal({}), b"damaged"]:
        config.write_bytes(content)
        with pytest.raises(CheckpointError, match=r"30\.json is of another run: it was not made with .*config\.json"):
            checkpoints.verify(path)
    config.write_bytes(files.seal({"config": {"seed": 2, "before": ["other", own]}}))
    checkpoints.verify(path)
    config.unlink()
    checkpoints.verify(path)


def test_a_sealed_file_of_something_else(run: Path) -> None:
    path, blob = run / "checkpoints" / "step-00000020.json", b"no arrays"
    sha256 = hashlib.sha256(blob).hexdigest()
    about = {"file": f"step-00000020-{sha256[:16]}.safetensors", "bytes": len(blob), "sha256": sha256}
    path.with_name(about["file"]).write_bytes(blob)
    path.write_bytes(files.seal({**files.unseal(path), "tensors": about}))
    with pytest.raises(CheckpointError, match="is no file of arrays"):
        load(path)


def test_a_step_other_than_that_of_the_files_name(run: Path) -> None:
    path = run / "checkpoints" / "step-00000020.json"
    path.write_bytes(files.seal({**files.unseal(path), "step": 7}))
    expect_refused(run, "step is 7, expected that in the name of the file")
    elsewhere = path.rename(path.with_name("mine.json"))  # whose name says nothing
    assert checkpoints.verify(elsewhere).step == 7


def test_a_state_that_cannot_be_is_passed_over(run: Path) -> None:
    def expect(step: int, leaves: dict[str, Any]) -> None:
        assert leaves.keys() == load(run / "checkpoints" / f"step-{step:08d}.json")[0].keys()
        if step >= few:
            raise ValueError("its luck is bad")

    few = 20
    with pytest.warns(CheckpointWarning, match=r"step-00000020\.json: its luck is bad; using step-00000010\.json"):
        assert latest(run, expect) == run / "checkpoints" / "step-00000010.json"
    few = 10
    with pytest.raises(
        CheckpointError, match=r"no sound .*0020\.json: its luck is bad; .*0010\.json: its luck is bad$"
    ):
        latest(run, expect)


def test_missing_files(run: Path) -> None:
    tensors_of(run, 20).unlink()
    expect_refused(run, "cannot read .*: No such file or directory")
    with pytest.raises(CheckpointError, match=r"cannot read .*step-00000099\.json: No such file or directory"):
        load(run / "checkpoints" / "step-00000099.json")


def test_all_damaged(run: Path) -> None:
    for step in (10, 20):
        damage(tensors_of(run, step), flip(100, 0))
    with pytest.raises(CheckpointError, match="there is no sound one before it"):
        load(run / "checkpoints" / "step-00000020.json")
    with pytest.raises(CheckpointError, match=r"has no sound checkpoint: .*step-00000020-.*; .*step-00000010-"):
        latest(run)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: {**t, "params": Params(np.zeros((3, 5), np.float32), t["params"].b)},
         r"its params\.W is float32 of shape \(3, 4\), expected float32 of shape \(3, 5\)"),
        (lambda t: {**t, "params": Params(np.zeros((3, 4)), t["params"].b)},
         r"its params\.W is float32 of shape \(3, 4\), expected float64 of shape \(3, 4\)"),
        (lambda t: {**t, "step": 0.0}, "its step is a Python int, expected a Python float"),
        (lambda t: {**t, "ema": np.zeros(2), "extra": 1}, r"it lacks ema, extra$"),
        (lambda t: {"params": t["params"], "adam": t["adam"], "asgd": t["asgd"]}, r"it has step besides$"),
    ],
)  # fmt: skip
def test_a_checkpoint_of_another_structure(run: Path, change: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=f"does not fit: {message}"):
        load(run / "checkpoints" / "step-00000020.json", like=change(tree_at(0)))


@pytest.mark.parametrize(
    ("tree", "meta", "message"),
    [
        ({"f": print}, {}, "f is a builtin_function_or_method, expected an array, a number, a boolean or a string"),
        ({"z": np.zeros(2, complex)}, {}, "z has dtype complex128, expected booleans, integers or real numbers"),
        ({"a.b": 1, "a": {"b": 2}}, {}, r"two leaves are called a\.b"),
        ({"a": 1}, {"rng": object()}, "JSON cannot hold <object"),
    ],
)
def test_what_cannot_be_saved(tmp_path: Path, tree: Any, meta: Any, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        save(tmp_path, 1, tree, meta)
    assert not (tmp_path / "checkpoints").exists()


def test_bad_numbers(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="step is 1 and keep is 0, expected at least 0 and 1"):
        save(tmp_path, 1, {}, {}, keep=0)
    with pytest.raises(ValueError, match="step is -1 and keep is 1, expected at least 0 and 1"):
        save(tmp_path, -1, {}, {}, keep=1)


def test_saving_changes_nothing(tmp_path: Path, put: Any) -> None:
    tree = put({"W": np.arange(6.0).reshape(2, 3).T})
    before = tree_map(lambda a: a.copy(), tree)
    save(tmp_path, 1, tree, {})
    assert_same_bits(tree, before)

"""Weights for other programs: every family, both layouts; a PyTorch module with the exported weights says the same."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minadv.cli import main
from minadv.data.vocabulary import EOS
from minadv.tasks import export
from minadv.tasks.run import load

safetensors = pytest.importorskip("safetensors.numpy")
OLD = Path(__file__).parents[1] / "tasks" / "old_runs"
KINDS = ("images", "text", "language", "pretraining")


@pytest.fixture(params=KINDS)
def run(request: Any, tmp_path: Path) -> Path:
    shutil.copytree(OLD / request.param / "finished", tmp_path / request.param)
    path: Path = tmp_path / request.param
    return path


@pytest.mark.parametrize("layout", export.LAYOUTS)
def test_files(layout: str, run: Path, says: Any, tmp_path: Path) -> None:
    names = says("export", run, "--layout", layout)
    assert names == [str(run / f"{layout}.safetensors"), str(run / f"{layout}.safetensors.json")]
    arrays, card = safetensors.load_file(names[0]), json.loads(Path(names[1]).read_text())
    found = load(run)
    assert {name: {"shape": list(a.shape), "dtype": str(a.dtype)} for name, a in arrays.items()} == card["tensors"]
    assert (card["format"], card["layout"], card["model"]) == ("minadv export 1", layout, found.config["model"])
    assert card["best"]["step"] in [record["step"] for record in found.records]
    if found.family.kind != "classify":
        assert card["vocabulary"]["words"] == list(found.vocabulary.words)
    if layout == "minadv":
        assert sum(a.size for a in arrays.values()) == sum(a.size for a in export.arrays(found).values())
    assert says("export", run, "--out", tmp_path / "deep" / "w.st")[1] == str(tmp_path / "deep" / "w.st.json")


@pytest.mark.torch
def test_pytorch_says_the_same(run: Path) -> None:
    torch = pytest.importorskip("torch")
    found = load(run)
    state = {name: torch.tensor(a) for name, a in export.arrays(found, "torch").items()}
    kind, config = found.family.kind, found.config["model"]
    rng = np.random.default_rng(0)
    with torch.no_grad():
        if kind == "classify":
            x = torch.tensor(rng.random((3, 6, config["n_in"])), dtype=state["head.weight"].dtype)
            h = _rnn(torch, config, state, "rnn.", x, config["n_in"])[:, -1]
            p = torch.softmax(h @ state["head.weight"].T + state["head.bias"], dim=-1)
            np.testing.assert_allclose(p.numpy(), found.predict(x.numpy()), atol=1e-5)
        elif kind == "text":
            text = " ".join(found.vocabulary.words[2:7])
            tokens = torch.tensor([[*found.vocabulary.encode(text).tolist(), found.vocabulary.words.index(EOS)]])
            x = state["embedding.weight"][tokens]
            h = _rnn(torch, config, state, "rnn.", x, config["n_embedding"])[:, -1]
            r = torch.relu(h @ state["hidden.weight"].T + state["hidden.bias"])
            z = r @ state["head.weight"].T + state["head.bias"]
            z = torch.cat([0 * z, z], dim=-1) if config["output"] == "sigmoid" else z
            np.testing.assert_allclose(torch.softmax(z, dim=-1).numpy(), found.predict([text]), atol=1e-5)
        else:
            tokens = rng.integers(0, len(found.vocabulary), 8)
            x = state["embedding.weight"][torch.tensor(tokens[None])]
            if kind == "lm":
                for n, H in enumerate(config["hidden"]):
                    part = {
                        name.removeprefix(f"rnns.{n}."): a for name, a in state.items() if name.startswith(f"rnns.{n}.")
                    }
                    cell = torch.nn.LSTM(x.shape[-1], H, batch_first=True)
                    cell.load_state_dict(part)
                    x = cell.to(x.dtype)(x)[0]
            else:
                x = _rnn(torch, config, state, "rnn.", x, config["n_embedding"])
            z = torch.log_softmax(x @ state["head.weight"].T + state["head.bias"], dim=-1)[0]
            np.testing.assert_allclose(_log_p(found, tokens), z.numpy(), atol=1e-4)


def _rnn(torch: Any, config: dict[str, Any], state: dict[str, Any], prefix: str, x: Any, n_in: int) -> Any:
    kind = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn": torch.nn.RNN}[config["cell"]]
    module = kind(n_in, config["n_hidden"], config["n_layers"], batch_first=True)
    module.load_state_dict({name.removeprefix(prefix): a for name, a in state.items() if name.startswith(prefix)})
    return module.to(x.dtype)(x)[0]


def _log_p(run: Any, tokens: Any) -> Any:
    """The log-probabilities (T, V) of the words after each of these, by minadv."""
    from minadv.models.language.model import TokenBatch
    from minadv.models.pretraining import LMBatch

    batch: Any = TokenBatch(tokens[:, None]) if run.family.kind == "lm" else LMBatch(tokens[:, None], tokens[:, None])
    features, _, _ = run.model.body(run.params, batch, masks={}, noise=None)
    every = [
        -run.model.nll(run.params, features, np.full((len(tokens), 1), word))[:, 0] for word in range(run.model.n_words)
    ]
    return np.stack(every, axis=-1)


def test_a_file_of_anything_else_is_not_written_over(tmp_path: Path, says: Any, fails: Any, capsys: Any) -> None:
    run = tmp_path / "run"
    shutil.copytree(OLD / "images" / "finished", run)
    (run / "letter.txt").write_text("dear")
    (tmp_path / "card.json").write_text("{}")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for file in (run / "config", run / "checkpoints" / "step-00000099.json", *before):
        line = fails("export", run, "--out", file)
        assert line.startswith(f"minadv: {file}")
        assert line.endswith("choose another name")
    assert fails("export", run, "--out", tmp_path / "card").endswith("is no card of an export: choose another name")
    assert fails("export", run, "--out", run) == (
        f"minadv: {run} is a folder, expected the name of a file, such as {run}/weights.safetensors"
    )
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for _ in range(2):  # an export is
        says("export", run, "--out", tmp_path / "w")
    (tmp_path / "w.json").unlink()
    assert "is no export with a card w.json" in fails("export", run, "--out", tmp_path / "w")
    pytest.importorskip("matplotlib")
    assert main(["runs", str(run), "--draw", str(run / "log.jsonl")]) == 2
    assert "log.jsonl is the name of a file of the run" in capsys.readouterr().err

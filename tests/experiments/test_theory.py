"""The two experiments on small networks, in miniature: they run, and what they print can be trusted."""

import json

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
pytest.importorskip("matplotlib", reason="figures need matplotlib")
pytest.importorskip("threadpoolctl", reason="experiments set BLAS threads")

from experiments import bounds, search_quality
from experiments.parts import small_nets
from minadv.adversary import find_adversary
from minadv.models import Classifier
from minadv.searches import Exact

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(autouse=True)
def host_only(request):
    if request.config.getoption("backend") == "cupy":
        pytest.skip("experiments choose their own device; on this backend the library's tests cover the library")


def test_search_quality(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(search_quality, "GROUPS", (("H = 6", 6, 20), ("H = 8", 8, 20)))
    search_quality.main(
        [
            "--seeds",
            "1",
            "--classes",
            "2",
            "--examples",
            "6",
            "--repeats",
            "2",
            "--workers",
            "1",
            "--out",
            str(tmp_path),
        ]
    )
    data = json.loads((tmp_path / "search_quality.json").read_text())
    assert len(data["results"]) == 2 * 2 * 2  # sizes, scales, distances
    for result in data["results"]:
        shares = {name: found["share"] for name, found in result["searches"].items()}
        assert set(shares) == set(search_quality.SEARCHES)
        assert all(0 <= share <= 1 + 1e-6 for share in shares.values()), "no search beats the exact one"
        assert shares["reselect K=2, swap"] >= shares["random"]
        assert result["searches"]["reselect K=2"]["forward"] == 5
    assert data["facts"]["numpy"]
    assert "reselect K=2" in (tmp_path / "search_quality.md").read_text()
    assert (tmp_path / "search_quality.png").stat().st_size > 1000
    assert "written" in capsys.readouterr().out


@pytest.mark.parametrize("scale", ["none", "kept"])
def test_one_enumeration_for_both_distances(scale):
    _, test = small_nets.digit_rows(4)
    model = Classifier(n_in=8, n_hidden=6, n_classes=4)
    params, batch = model.init(np.random.default_rng(0)), small_nets.test_batch(test, 5)
    for distance, found in search_quality.exact_maxima(model, params, batch, scale).items():
        trace = find_adversary(
            model,
            params,
            batch,
            rng=np.random.default_rng(0),
            budgets=3,
            search=Exact(),
            scale=scale,
            distance=distance,
        )
        np.testing.assert_allclose(found, trace.d, rtol=1e-5)  # features in single precision


def test_bounds(tmp_path, monkeypatch):
    monkeypatch.setattr(bounds, "H", 5)
    monkeypatch.setattr(bounds, "STEPS", 20)
    monkeypatch.setattr(bounds, "METHODS", {name: bounds.METHODS[name] for name in ("none", "AdD K=1")})
    result = bounds.examine(bounds.Task("AdD K=1", seed=0, examples=8, bases=3))
    for distance in ("l2", "js"):
        chain = result["chain"][distance]
        assert chain["half_fd_le_el"] == chain["el_le_add"] == 1, "theorems hold for every example"
        assert chain["half_fd"] <= chain["el"] <= chain["add"]
        assert max(chain["greedy"], chain["reselect"]) <= chain["add"] * (1 + 1e-9)
    terms = result["remark1"]
    assert terms["total"] == pytest.approx(terms["expected"], rel=1e-9)
    assert result["gap"]["js"] > 0
    other = {**result, "method": "none"}
    text = bounds.tables([other, result])
    assert text.count("AdD K=1") == 5
    assert "KL counterexample" in text
    assert bounds.figure([other, result]) is not None

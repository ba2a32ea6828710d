"""The experiment on the bounds, in miniature: it runs, and what it prints can be trusted."""

import pytest

pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
pytest.importorskip("matplotlib", reason="figures need matplotlib")
pytest.importorskip("threadpoolctl", reason="experiments set BLAS threads")

from experiments import bounds

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(autouse=True)
def host_only(request):
    if request.config.getoption("backend") == "cupy":
        pytest.skip("experiments choose their own device; on this backend the library's tests cover the library")


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

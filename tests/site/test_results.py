"""The results page: verdicts are what the result files say, and nothing that an experiment wrote is left out."""

import json

import pytest
from _site import results
from _site.results import Comparison, Finding


@pytest.mark.parametrize(
    ("gap", "p", "says"),
    [
        (-1.0, None, "lower (−1.00)"),
        (0.25, None, "higher (+0.25)"),
        (-1.0, 0.01, "yes (−1.00, P = 0.01)"),
        (2.0, 7.7e-7, "no (+2.00, P = 7.7e-07)"),
        (-1.0, 0.2, "unclear (−1.00, P = 0.2)"),
    ],
)
def test_a_verdict_in_words(gap, p, says):
    assert str(Finding(gap, p)) == says


def test_the_papers_tables():
    """A few numbers of each; the claims are those of the paper, so that its own tables agree but in one place."""
    found = {one.name: one for one in results.papers()}
    assert found["Table 1, sMNIST"].means["AdD K=2"] == 0.644
    assert found["Table 1, pMNIST"].means["none"] == 9.924
    assert found["Table 2, Elec"].means["VAT"] == 5.610
    assert found["Table 3, WikiText-2"].means["AdD K=1"] == 63.4
    against = [
        (one.name, claim)
        for one in found.values()
        for claim, pair in results.CLAIMS.items()
        if (finding := one.says(*pair)) is not None and finding.gap >= 0
    ]
    assert against == [("Table 2, Elec", "AdD + VAT below VAT")]


def test_every_table_of_the_repository_is_compared():
    names = {one.name.split(",")[0] for one in results.ours()}
    files = {p.stem for p in results.RESULTS.glob("table[123]-*.json") if not p.stem.endswith("-cost")}
    assert names == {name.split("-", 1)[1] for name in files}


def image(method, seed, error, task="s"):
    return {"method": method, "task": task, "seed": seed, "test": {"error": error}}


@pytest.fixture
def folder(tmp_path):
    """Six seeds, in all of which AdD K=1 has half the error of none, and FD now and then more."""
    runs = [image("none", n, 4 + 0.1 * n) for n in range(6)] + [image("AdD K=1", n, 2 + 0.05 * n) for n in range(6)]
    runs += [image("FD", n, 4 + 0.1 * n + (-1) ** n) for n in range(6)]
    (tmp_path / "table1-mnist-x.json").write_text(json.dumps({"results": runs}))
    (tmp_path / "table1-mnist-x-cost.json").write_text(json.dumps({"rows": []}))
    language = [{"method": m, "test": v} for m, v in (("AdD K=2", 91.0), ("AdD K=1", 90.0), ("none", 95.0))]
    (tmp_path / "table3-ptb-x.json").write_text(json.dumps({"results": language}))
    (tmp_path / "compare-x.md").write_text("# A title\n\ntext\n\n- one\n  more of one\n- two\n\n## Part\n\n- three\n")
    return tmp_path


def test_claims_from_files(folder):
    found = results.ours(folder)
    assert [one.name for one in found] == ["mnist-x, scanline", "ptb-x"]
    images, language = found
    assert images.seeds == 6 and language.seeds == 1
    assert images.says("AdD K=1", "none") == Finding(pytest.approx(-2.125), pytest.approx(0.031, abs=1e-3))
    assert images.says("FD", "none").verdict == "unclear"
    assert images.says("AdD K=2", "AdD K=1") is None
    head, rows = results.claims(found)
    assert head[:3] == ["comparison", "made by", "AdD below none"]
    assert rows[0][:3] == ["mnist-x, scanline", "6 seeds", "yes (−2.12, P = 0.031)"]
    assert rows[1][:3] == ["ptb-x", "1 seed", "lower (−5.00)"]
    said = results.summary(found)
    assert said[0] == (
        "**AdD below none**: lower in 2 of 2 comparisons; of 1 that were tested, 1 for it and 0 against it "
        "beyond chance (P ≤ 0.05)."
    )
    assert "**K = 2 below K = 1**: lower in 0 of 1 comparisons." in said


def test_our_tables_stand_beside_the_papers(folder):
    head, rows = results.beside("table1-mnist-x", folder)
    assert head == ["method", "mnist-x, scanline", "paper: Table 1, sMNIST", "paper: Table 1, pMNIST"]
    assert rows[0] == ["none", "4.25 ± 0.19", "1.018", "9.924"]
    assert [row[0] for row in rows] == ["none", "FD", "AdD K=1"]
    head, rows = results.beside("table3-ptb-x", folder)
    assert head == ["method", "ptb-x", "paper: Table 3, PTB"]
    assert rows == [["none", "95.00", "58.300"], ["AdD K=1", "90.00", "56.400"], ["AdD K=2", "91.00", ""]]
    assert results.best("table3-ptb-x", folder) == "Lowest test perplexity: ptb-x: AdD K=1 90.00, none 95.00."


def test_what_an_experiment_wrote(folder):
    assert results.opening("compare-x", folder) == ("A title", "- one\n  more of one\n- two")
    assert results.report("compare-x", folder).startswith("\ntext\n")
    assert "**Part**" in results.report("compare-x", folder)


def test_a_claim_needs_both_methods():
    one = Comparison("x", {"none": 1.0}, paper=True)
    assert one.says("AdD K=1", "none") is None
    assert one.says("none", "none").gap == 0


def test_every_result_is_on_the_page():
    """Each file of experiments/results that holds text is reported on the page, or is one that other pages include."""
    page = (results.ROOT / "docs" / "results.md").read_text()
    elsewhere = {"launches", "scaling"}
    compared = {p.stem for p in results.RESULTS.glob("compare-*.md")}  # all of these, by one directive
    for path in results.RESULTS.glob("*.md"):
        if path.stem not in elsewhere | compared:
            assert f"{{report}} {path.stem}\n" in page, f"docs/results.md does not report {path.name}"

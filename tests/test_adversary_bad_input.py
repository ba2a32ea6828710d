"""Errors before work: what is out of range raises before any pass is run, and says what was expected."""

from dataclasses import replace

import numpy as np
import pytest

from minadv.adversary import find_adversary
from minadv.regularizers import AT, EL, FD, VD, AdD, Pi
from minadv.searches import Exact, Greedy, Random
from tests.support.networks import Untouchable, network

WRONG = {
    "delta above 1": ({"delta": 1.1}, r"delta is 1\.1, expected a share of the units from 0 to 1"),
    "delta below 0": ({"delta": -0.1}, r"delta is -0\.1, expected a share of the units from 0 to 1"),
    "delta not a number": ({"delta": float("nan")}, r"delta is nan, expected a share of the units from 0 to 1"),
    "no flip": ({"delta": 0.2}, r"delta is 0\.2, which allows no flip .* the smallest useful delta is 1/4 = 0\.25"),
    "delta 0": ({"delta": 0.0}, r"the smallest useful delta is 1/4 = 0\.25"),
    "delta of other sites": ({"delta": {"layer1": 0.5}}, r"delta has \['layer1'\], expected one entry for each"),
    "budget 0": ({"budgets": 0}, r"budgets( of layer0)? is 0, expected a (whole )?number of"),
    "budget below 0": ({"budgets": -2}, r"budgets( of layer0)? is -2, expected a (whole )?number of"),
    "budget above H": ({"budgets": 5}, r"budgets of layer0 is 5, expected a number of flips from 1 to H = 4"),
    "budget not whole": ({"budgets": 1.5}, r"budgets( of layer0)? is 1\.5, expected a (whole )?number of"),
    "budget of one site": ({"budgets": {"layer0": 9}}, r"budgets of layer0 is 9"),
    "distance": ({"budgets": 2, "distance": "tv"}, r"distance is 'tv', expected one of 'js', 'kl', 'rkl', 'skl', 'l2'"),
    "scale": ({"budgets": 2, "scale": "twice"}, r"scale is 'twice', expected one of 'none', 'inverted', 'kept'"),
    "scale without p": ({"budgets": 2, "scale": "inverted"}, r"needs the probability of dropping: give p"),
    "site": (
        {"budgets": 2, "sites": ("layer7",)},
        r"sites is \('layer7',\), expected a tuple of names among \['layer0'",
    ),
    "no site": ({"budgets": 2, "sites": ()}, r"sites is \(\), expected a tuple of names among \['layer0', 'readout'\]"),
}


@pytest.mark.parametrize(("given", "message"), WRONG.values(), ids=WRONG)
def test_the_search_refuses(given, message, rng, put):
    model, params, batch = network(rng, put)
    for search in (Greedy(), Exact()):
        with pytest.raises(ValueError, match=message):
            find_adversary(Untouchable(model), params, batch, rng=rng, search=search, **given)


@pytest.mark.parametrize(("given", "message"), WRONG.values(), ids=WRONG)
def test_the_regularizer_refuses(given, message, rng, put):
    model, params, batch = network(rng, put)
    with pytest.raises(ValueError, match=message):
        AdD(**given)(Untouchable(model), params, batch, rng=rng)


@pytest.mark.parametrize(("dtype", "said"), [(int, "int64, expected float32"), (np.float32, "float32 but params has")])
def test_a_base_mask_has_the_dtype_of_the_parameters(dtype, said, rng, put):
    model, params, batch = network(rng, put)
    with pytest.raises(TypeError, match=rf"^eps0\['layer0'\] has dtype {said}"):
        find_adversary(Untouchable(model), params, batch, rng=rng, budgets=2, eps0=put(np.ones((3, 4), dtype)))


def test_a_seed_is_no_generator(rng, put):
    net = network(rng, put)
    said = r"rng is 0, expected a numpy.random.Generator: give rng=numpy.random.default_rng\(0\)"
    for refused in (
        lambda: find_adversary(*net, budgets=1, rng=0),
        lambda: AdD()(*net, rng=0),
        lambda: VD()(*net, rng=0),
        lambda: net[0].init(0),
    ):
        with pytest.raises(TypeError, match=said):
            refused()


@pytest.mark.parametrize("kind", [EL, FD, Pi])
def test_random_dropout_refuses(kind):
    with pytest.raises(ValueError, match=r"p is 1\.0, expected a probability"):
        kind(p=1.0)
    with pytest.raises(ValueError, match=r"distance is 'cosine', expected one of"):
        kind(distance="cosine")


def test_add_takes_delta_or_budgets(rng, put):
    assert (AdD().delta, AdD().budgets) == (None, None)
    with pytest.raises(ValueError, match=r"delta is 0\.03 and budgets is 3: give one of the two"):
        AdD(delta=0.03, budgets=3)


@pytest.mark.parametrize("given", [{}, {"delta": 0.5, "budgets": 2}], ids=["neither", "both"])
def test_either_delta_or_budgets(given, rng, put):
    model, params, batch = network(rng, put)
    with pytest.raises(ValueError, match=r"delta is .* and budgets is .*: give one of the two"):
        find_adversary(Untouchable(model), params, batch, rng=rng, **given)


@pytest.mark.parametrize("search", [Greedy(), Random(), Exact()], ids=lambda search: search.name)
def test_a_distance_that_is_not_a_number(search, rng, put, xp):
    model, params, batch = network(rng, put)
    batch.x[1, 2, 0] = xp.nan
    with pytest.raises(ValueError, match=r"NaN for example 2"):
        find_adversary(model, params, batch, rng=rng, budgets=2, search=search)


@pytest.mark.parametrize("kind", [VD, EL, FD, AdD])
def test_a_misspelt_site(kind, rng, put):
    model, params, batch = network(rng, put)
    for sites in (("layr0",), "layer0"):
        with pytest.raises(ValueError, match=r"sites is .*, expected a (tuple of names among|list)"):
            kind(sites=sites)(model, params, batch, rng=rng)


def test_targets_are_missed_before_any_pass(rng, put):
    model, params, batch = network(rng, put)
    unlabelled = replace(batch, targets=None)
    for regularizer, likelihood in ((AdD(budgets=2), 1.0), (AT(), 0.0)):
        with pytest.raises(ValueError, match=r"targets is None"):
            regularizer(Untouchable(model), params, unlabelled, rng=rng, likelihood=likelihood)
    for name in ("weight", "likelihood"):
        with pytest.raises(ValueError, match=rf"{name} is nan, expected a finite number"):
            AdD(budgets=2)(Untouchable(model), params, batch, rng=rng, **{name: float("nan")})


def test_too_many_masks(rng, put):
    model, params, batch = network(rng, put, H=24, n_layers=2)

    def run(budgets, **limit):
        find_adversary(Untouchable(model), params, batch, rng=rng, budgets=budgets, search=Exact(**limit))

    with pytest.raises(ValueError, match=r"would run 5,405,625 masks, more than max_masks = 200,000"):
        run(budgets=3)
    with pytest.raises(ValueError, match=r"would run 7,525 masks, more than max_masks = 7,524"):
        run(budgets={"layer0": 2, "layer1": 1}, max_masks=7_524)
    with pytest.raises(AssertionError, match=r"a pass was run"):
        run(budgets={"layer0": 2, "layer1": 1}, max_masks=7_525)


ONES = np.ones((3, 4))


@pytest.mark.parametrize(
    ("eps0", "message"),
    [
        (0.5 * ONES, r"eps0\['layer0'\] is 0\.5 at \(0, 0\), expected a mask of zeros and ones"),
        (ONES[:2], r"eps0\['layer0'\] has shape \(2, 4\), expected \(3, 4\) \(one mask per example\)"),
        (ONES[:, :3], r"eps0\['layer0'\] has shape \(3, 3\), expected \(3, 4\) \(one mask per example\)"),
        (ONES[0], r"eps0\['layer0'\] has shape \(4,\), expected \(B, H\)"),
        ({"layer0": ONES, "layer9": ONES}, r"eps0 has 'layer9', expected sites among \['layer0', 'readout'\]"),
        ({"readout": ONES}, r"eps0 lacks \['layer0'\], which are searched"),
    ],
    ids=["not binary", "examples", "units", "one mask", "unknown site", "missing site"],
)
def test_a_base_mask_that_does_not_fit(eps0, message, rng, put):
    model, params, batch = network(rng, put)
    with pytest.raises(ValueError, match=message):
        find_adversary(Untouchable(model), params, batch, rng=rng, budgets=2, eps0=put(eps0))


def test_one_base_mask_for_two_sites(rng, put):
    model, params, batch = network(rng, put, n_layers=2)
    with pytest.raises(
        ValueError, match=r"eps0 is one array, expected a dict with one for each of \['layer0', 'layer1'\]"
    ):
        find_adversary(Untouchable(model), params, batch, rng=rng, budgets=2, eps0=put(ONES))

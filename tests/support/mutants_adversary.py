"""One-line mistakes in the search, the regularizers and the bounds that the suite must notice."""

from tests.support.mutants import Mutant

STRICT, FLIP, MASKS, INFLUENCE = "properties/test_strict_flip.py", "test_flip.py", "test_masks.py", "test_influence.py"
TOGETHER = "fast/test_together.py"
SEARCH, OPTIONS, MAPS = "test_adversary.py", "test_adversary_options.py", "gradients/test_influence.py"
RECORDS, MODEL = "test_searches.py", "models/test_classifier.py"
RELAX, MEMORY, ZERO = "test_relax.py", "test_memory.py", "test_zero_maps.py"
NEIGHBOURS = "test_relax_neighbours.py"
TERMS, GRADIENTS, INPUTS = "test_regularizers.py", "gradients/test_regularizers.py", "test_input_perturbations.py"

TABLE = {
    "flip.py": [
        ("gains of zero flipped", "(gain > 0)", "(gain >= 0)", STRICT),
        ("one flip too many", "_running(xp.maximum, S) - budget", "_running(xp.maximum, S) - budget - 1", STRICT),
        ("freed places lost", "(excess == before)", "(excess == 0)", STRICT),
        (
            "ties by highest index",
            'order = xp.argsort(-gain, axis=1, kind="stable")  # ties by lowest index',
            'order = xp.argsort(gain, axis=1, kind="stable")[:, ::-1]',
            STRICT,
        ),
        ("flip before the test", "distance <= limit", "distance < limit", FLIP),
        ("ties above the threshold", "xp.where(score > threshold", "xp.where(score >= threshold", FLIP),
    ],
    "masks.py": [
        ("scale not differentiated", "(dm - mean) * (", "dm * (", MASKS),
        ("budget lost to rounding", "delta * n_hidden + 1e-9", "delta * n_hidden", MASKS),
    ],
    "influence.py": [
        ("states one step late", "g[u] * h[u]", "g[u] * h[u + 1]", MAPS),
        ("u = t left out", "dm = dm + dread[t - 1] * h[t]", "pass", MAPS),
        ("one site without influence is a zero map", "~xp.stack([", "xp.stack([~", ZERO),
        ("one example without influence warns", "check_all(zero, warn)", "check_all(zero | zero.any(), warn)", ZERO),
        ("a sure prediction loses its map", " & (apart <= rounding * size)", "", ZERO),
        ("a feature of another step unseen", ".max(axis=2).max(axis=0)", ".max(axis=2)[0]", ZERO),
    ],
    "objective.py": [
        ("first mask not scaled", "given.append(self.seen(start))", "given.append({**self.fixed, **start})", SEARCH),
        (
            "map of m, not of eps",
            "masks.scale_backward(e, dm[n], self.scale, p=self.p)",
            "dm[n]",
            SEARCH,
        ),
        (
            "both sides under one mask",
            "[self.seen(eps) for eps in several]",
            "[self.seen(several[0])] * len(several)",
            SEARCH,
        ),
        ("the worst kept", "visit.d > top.d", "visit.d < top.d", SEARCH),
        (
            "rounding keeps a mask",
            "return replace(found, d=d), same",
            "return found, same",
            ZERO,
        ),
        ("only the first zero map counted", "self.zero[0] | zero", "self.zero[0] & zero", ZERO),
        ("other sites lose their masks", "return {**self.fixed, **{n:", "return {**{n:", OPTIONS),
        ("passes not counted", "self.spent[0] += len(several)", "self.spent[0] += 1", SEARCH),
        ("margin not counted", "self.lam)\n        self.spent[1] += 1", "self.lam)", RELAX),
        ("a relaxed mask returned", "[visit for visit in visits if not visit.relaxed]", "visits", RELAX),
        (
            "the class of the first step",
            "self.model.logits(self.params, self.base.features[-1:])[0]",
            "self.model.logits(self.params, self.base.features[:1])[0]",
            NEIGHBOURS,
        ),
    ],
    "searches.py": [
        ("one-sided", "for sign in (1, -1)", "for sign in (1, 1)", SEARCH),
        ("budget not cumulative", "math.ceil((k + 1) * b / self.K)", "math.ceil(b / self.K)", SEARCH),
        ("rest of the budget lost", "else rest[n] for n", "else b // self.K for n", OPTIONS),
        ("rule's options lost", "rule=self.rule, **options)", "rule=self.rule)", OPTIONS),
        (
            "swap without giving up a place",
            "candidate[rows, out] = eps0[rows, out]",
            "pass",
            SEARCH,
        ),
        ("re-selection from the random start", "eps = best(scored).eps", "eps = best(visits).eps", SEARCH),
        (
            "swaps take the strongest out",
            "xp.where(flipped, gain, np.inf)",
            "xp.where(flipped, -gain, np.inf)",
            SEARCH,
        ),
        ("small budgets at all sites or no warning", "1 in budgets.values()", "set(budgets.values()) == {1}", OPTIONS),
        (
            "the last mask, whatever is kept",
            'visits[-1] if self.keep == "last" else best(visits)',
            "visits[-1]",
            SEARCH,
        ),
        ("former names unknown", "FORMER.get(option, option)", "option", RECORDS),
    ],
    "adversary.py": [
        ("one noise for both", "adv_noise=noise if adv_noise is None else adv_noise", "adv_noise=noise", OPTIONS),
        (
            "base mask not scaled",
            "scaled = {name: masks.scale(eps, scale, p=p) for name, eps in eps0.items()}",
            "scaled = dict(eps0)",
            SEARCH,
        ),
        ("visits not counted", "result.d, seen.visits + 1)", "result.d, seen.visits)", MEMORY),
        ("sites lend different numbers of masks", "rows = len(flips[name])", "pass", MEMORY),
        ("base pass forgotten", "        keep(base.cache)\n", "", TOGETHER),
        ("base pass lost to the search", "keep_for_search(base.cache)", "pass", TOGETHER),
    ],
    "relax.py": [
        ("margin's side reversed", "xp.where(surer, g, -g)", "xp.where(surer, -g, g)", RELAX),
        ("equal promises to the other side", "promises[1] > promises[0]", "promises[1] >= promises[0]", RELAX),
        ("margin of m, not of eps", "masks.scale_backward(e, dm[n], objective.scale, p=objective.p)", "dm[n]", RELAX),
        ("changes from the full network", "objective.m0.get(n, 1)", "1", RELAX),
        (
            "relaxed by 1 instead of 1/L",
            "(flip(e, im[name], e, units) - e) / L",
            "flip(e, im[name], e, units) - e",
            RELAX,
        ),
        ("b units relaxed", "min(L * objective.budgets[name], e.shape[1])", "objective.budgets[name]", RELAX),
        ("a relaxed mask competes", "relaxed=L > 1", "relaxed=False", RELAX),
        (
            "runner-up without giving the place back",
            " | ((columns == leaves[:, None]) & full[:, None])",
            "",
            NEIGHBOURS,
        ),
        (
            "runner-up at every site",
            "xp.where((cheapest == k)[:, None], tried[n], selected[n])",
            "tried[n]",
            NEIGHBOURS,
        ),
        ("borrowed across groups", "group[:, None] == group", "group[:, None] >= 0 * group", NEIGHBOURS),
        ("borrowed across classes", "may &= predicted[:, None] == predicted", "pass", NEIGHBOURS),
        ("one's own mask borrowed", "    may &= ~same\n", "", NEIGHBOURS),
        ("the same mask borrowed again", "        may &= ~same[lender]\n", "", NEIGHBOURS),
        ("the least moved lends", "xp.where(may, top.d, -np.inf)", "xp.where(may, -top.d, -np.inf)", NEIGHBOURS),
        ("masks alike that overlap", "(shared == n) & (shared == n[:, None])", "shared == n", NEIGHBOURS),
        (
            "exchange without giving the place back",
            "(units == out[best_left, rows][:, None]) | (units == into[best_left, rows][:, None])",
            "units == into[best_left, rows][:, None]",
            NEIGHBOURS,
        ),
        (
            "the strongest gives up its place",
            "xp.where(flipped, gain, np.inf)",
            "xp.where(flipped, -gain, np.inf)",
            NEIGHBOURS,
        ),
    ],
    "memory.py": [
        (
            "the remembered mask forgotten on fresh visits",
            "[either(seen, kept, second), *lent]",
            "[second, *lent]",
            MEMORY,
        ),
        ("rows of the never seen", "xp.where(seen & memory.flips[n]", "xp.where(memory.flips[n]", MEMORY),
        ("always afresh", "start = {n: xp.where(afresh, half[n], kept[n])", "start = {n: half[n]", MEMORY),
        ("remembered distance of another mask", "xp.where(afresh[:, 0], visits[0].d, there.d)", "visits[0].d", MEMORY),
        ("the base mask at distance zero", "xp.where(afresh, selected[n], kept[n])", "kept[n]", MEMORY),
        ("the remembered mask lent", "(selected, kept), second)", "(selected,), second)", MEMORY),
        (
            "lent by the sign of the map",
            "(((1 - 2 * e) * im[n])[:, None] * lent[n])",
            "(im[n][:, None] * lent[n])",
            MEMORY,
        ),
        ("nothing stands in", "1 - e, e), otherwise[n])", "1 - e, e), e)", MEMORY),
        ("the same turn always", "memory.visits // 2 % 2 == 0", "memory.visits >= 0", MEMORY),
        ("lent masks alike at one site", ".stack(differ).any(axis=0)", ".stack(differ).all(axis=0)", MEMORY),
    ],
    "protocol.py": [
        (
            "margin not divided by 1 - p",
            "xp.maximum(total * doubt, tiny)",
            "xp.maximum(total + 0 * doubt, tiny)",
            RELAX,
        ),
        ("margin of the sum", "seen.d.astype(np.float64) / total", "seen.d.astype(np.float64)", RELAX),
        ("margin in double precision", "dlogodds.astype(features.dtype)", "dlogodds", RELAX),
        ("no weight divided by", "xp.maximum(total * doubt, tiny)", "(total * doubt)", RELAX),
        ("what ignores the distance passes", "if not asked:", "if False:", "test_foreign_model.py"),
    ],
    "distances.py": [
        ("a sure prediction rounded", "xp.log1p(against)", "xp.log(1 + against)", "test_distances.py"),
        ("surprise at another class", "== logits0.argmax(axis=-1)", "== logits1.argmax(axis=-1)", "test_distances.py"),
    ],
    "models/comparing.py": [
        ("base not stopped in the head", "if not stop_base:", "if True:", GRADIENTS),
    ],
    "models/classifier.py": [
        ("recurrent term overwritten", "dmasks.get(name, 0) + du", "du", MAPS),
        ("a mask's gradient only where it was given", "if name in masks:", "if name in cache.masks:", MODEL),
    ],
    "terms.py": [
        ("likelihood overwritten", "pending + factor * dfeatures", "factor * dfeatures", GRADIENTS),
        ("sum instead of mean", "weight / len(self._on.batch)", "weight", GRADIENTS),
    ],
    "regularizers.py": [
        (
            "likelihood at the wrong pass",
            "tally.add_nll(run, on.likelihood / self.samples)",
            "tally.add_nll(base, on.likelihood / self.samples)",
            GRADIENTS,
        ),
        ("likelihood taken twice", "share, likelihood=0.0))", "share))", TERMS),
        ("other noise in the last pass", "adversarial = on.run(m, noise=noise)", "adversarial = on.run(m)", TERMS),
    ],
    "perturbations.py": [
        ("start on the last step", "steps < steps.max(axis=0)", "steps <= steps.max(axis=0)", INPUTS),
        ("a norm for each step", "(unit * unit).sum(axis=(0, 2)", "(unit * unit).sum(axis=2", INPUTS),
    ],
    "bounds.py": [
        ("impossible masks in the maximum", "to_base[w > 0].max", "to_base.max", "test_bounds.py"),
        ("bias of the wrong sign", "np.concatenate([[1.0], -w])", "np.concatenate([[1.0], w])", "test_bounds.py"),
    ],
}
MUTANTS = [Mutant(file, *row) for file, rows in TABLE.items() for row in rows]

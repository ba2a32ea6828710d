r"""The tables, the figure and the verdict of `experiments.stronger`, made from its numbers alone."""

from __future__ import annotations


def best_weight(results, method, strength):
    weights = sorted({r["weight"] for r in results})

    def score(weight):
        some = [r for r in results if (r["method"], r["strength"], r["weight"]) == (method, strength, weight)]
        n = len(some)
        return sum(r["valid_error"] for r in some) / n, sum(r["valid_loss"] for r in some) / n

    return min(weights, key=score)


def passes(searches):
    return {}

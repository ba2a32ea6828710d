"""One-line mistakes in what texts and language models need that the suite must notice; run by `tests.test_mutants`."""

from tests.support.mutants import Mutant

EMBEDDING, SAMPLED, BLOCKS = (
    "gradients/test_embedding.py",
    "gradients/test_sampled_softmax.py",
    "words/test_sampled_softmax.py",
)
SWEEPS, LANGUAGE, TEXT = (
    "gradients/test_softmax_blocks.py",
    "models/test_language_gradients.py",
    "models/test_text_classifier.py",
)
WINDOWS, NOISE = "data/test_windows.py", "models/test_language_noise.py"
REGULARIZERS = "models/test_language_regularizers.py"

TABLE = {
    "words/embedding.py": [
        ("mean not differentiated", "through_moments += g - at.mean * slope", "pass", EMBEDDING),
        ("variance not differentiated", "slope = at.scale * q", "slope = 0 * q", EMBEDDING),
        ("rare words as heavy as common ones", "through_moments *= at.frequencies[:, None]", "pass", EMBEDDING),
    ],
    "words/sampled_softmax.py": [
        ("the word told from itself", "z[xp.arange(n), place[words_part]] = -np.inf", "pass", BLOCKS),
        ("correction of the wrong sign", "b_c = b_c - targets", "b_c = b_c + targets", BLOCKS),
        ("candidates lose their gradient", "dV[cs] += dV_c", "pass", SAMPLED),
        ("the true word's share of hidden", "dhidden[part] += dz[:, S:] * V_y", "pass", SAMPLED),
    ],
    "words/softmax_blocks.py": [
        ("blocks overwrite each other", "self.b += w[:, 0] @ dz", "self.b = w[:, 0] @ dz", SWEEPS),
        ("a gradient without its weight", "df1[rows] = w[rows] * (z1 @ W)", "df1[rows] = z1 @ W", SWEEPS),
        ("base stopped in the weights", "total.add(z0, flat0[rows], w[rows])", "pass", SWEEPS),
    ],
    "models/language/activation.py": [
        ("slow only forwards", "dh[:-1] -= (2 * share) * step", "pass", LANGUAGE),
    ],
    "models/language/model.py": [
        ("DropConnect's gradient to the dropped weight", "U=drop(summed.U, keep, rates.U)", "U=summed.U", LANGUAGE),
        ("the raw output's penalty lost", "dh if raw is None else dh + raw", "dh", LANGUAGE),
        (
            "outputs not dropped on the way back",
            "dhs = [drop(dx, c.noise.outputs[n], rates.outputs[n])",
            "dhs = [dx",
            LANGUAGE,
        ),
    ],
    "models/language/noise.py": [
        ("one U for all passes", "found.setdefault(id(noise.U[n])", "found.setdefault(0", REGULARIZERS),
        ("not scaled", "(1 / (1 - float(p)))", "1", NOISE),
        ("everything drawn anew", "wanted = set(parts)", "wanted = set(PARTS)", NOISE),
    ],
    "models/text.py": [
        ("truncation takes the first steps", "run(T - kept, T, state)", "run(0, kept, state)", TEXT),
        (
            "the sigmoid's other logit",
            "dlogits = dlogits[..., 1:]",
            "dlogits = dlogits[..., :1]",
            TEXT,
        ),
    ],
    "models/encoder.py": [
        ("dropout not on the way back", "back.inputs * piece.k", "back.inputs", TEXT),
        ("frequencies left aside", "f = self.frequencies\n", "f = None\n", TEXT),
    ],
    "data/language/windows.py": [
        (
            "a word predicts itself",
            "for shift in (0, 1))\n        if x.shape",
            "for shift in (0, 0))\n        if x.shape",
            WINDOWS,
        ),
        ("one order for all epochs", 'stream(seed, "lengths", epoch)', 'stream(seed, "lengths", 0)', WINDOWS),
    ],
}
MUTANTS = [Mutant(file, *row) for file, rows in TABLE.items() for row in rows]

"""Mistakes that libraries like this one have had, planted here: what each does to the numbers, and what notices it.

A piece is a `Mutant` that `tests/test_mutants.py` runs like any other, with a sentence on its effect, and the address
where such a mistake was reported in public, or the part of the paper or of its released code that has it. The mistakes
are described in minadv's own lines; no other code is here.
"""

from dataclasses import dataclass

from tests.support.mutants import CELLS, FORWARD, Mutant


@dataclass(frozen=True)
class Piece:
    """A mutant, its effect in one sentence, and the address of a public report or of the code that has it, or words."""

    mutant: Mutant
    effect: str
    source: str


MUSEUM = [
    Piece(
        Mutant(
            "lstm.py",
            "museum: one gate's bias for three gates",
            "hhat @ params.U + params.b  # (B, 4H)",
            "hhat @ params.U + params.b[xp.r_[3 * H : 4 * H, 3 * H : 4 * H, 2 * H : 4 * H]]",
            FORWARD,
        ),
        "Input and forget gate use the output gate's bias: with equal initial biases nothing shows, and later training "
        "can neither open nor shut these gates by themselves.",
        "https://github.com/ddbourgin/numpy-ml/issues/42",
    ),
    Piece(
        Mutant(
            "lstm.py",
            "museum: one gate's bias gradient for three gates",
            "b=flat_dpre.sum(axis=0)",
            "b=flat_dpre.sum(axis=0)[xp.r_[H : 2 * H, H : 3 * H, H : 2 * H]]",
            CELLS,
        ),
        "The biases of input and output gate move by the forget gate's gradient: the loss still falls, more slowly, "
        "because all other gradients are right.",
        "https://github.com/hanbt/learn_dl/issues/53",
    ),
    Piece(
        Mutant(
            "lstm.py",
            "museum: bias added twice",
            "hhat @ params.U + params.b  # (B, 4H)",
            "hhat @ params.U + 2 * params.b  # (B, 4H)",
            FORWARD,
        ),
        "Every gate sees twice its bias: the network can learn the same functions, but weights from elsewhere give "
        "other predictions, and a bias moves at another rate.",
        "https://github.com/lisa-lab/DeepLearningTutorials/issues/81",
    ),
    Piece(
        Mutant("lstm.py", "museum: gate added, not multiplied", "+ i * g  # Eq. 1", "+ (i + g)  # Eq. 1", FORWARD),
        "The input gate is added to the candidate instead of scaling it: a shut gate no longer keeps the candidate out "
        "of the cell.",
        "https://github.com/MartinuzziFrancesco/torchrecurrent/issues/22",
    ),
    Piece(
        Mutant(
            "lstm.py",
            "museum: the cell's gradient overwritten",
            "dc_t = dc_t + dh_t * o * (1 - tanh_c**2)",
            "dc_t = dh_t * o * (1 - tanh_c**2)",
            CELLS,
        ),
        "What the later steps say about the cell is forgotten (= for +=): gradients reach back one step through the "
        "cell instead of all of them.",
        "https://github.com/apache/mxnet/issues/4057",
    ),
    Piece(
        Mutant(
            "rnn.py", "museum: the mask lost on the way back", "dh_t = m * dhhat[t - 1]", "dh_t = dhhat[t - 1]", CELLS
        ),
        "The gradient passes through units that were dropped: it is too large, and it points elsewhere than the loss "
        "falls.",
        "https://github.com/ddbourgin/numpy-ml/issues/94",
    ),
    Piece(
        Mutant(
            "rnn.py",
            "museum: padding changes the state",
            "h[t] = xp.where(valid[t - 1], h_t, h[t - 1])",
            "h[t] = h_t",
            FORWARD,
        ),
        "Steps of padding still move the state through the bias: a prediction depends on how long the other documents "
        "of its batch are.",
        "https://github.com/keras-team/keras/issues/1300",
    ),
    Piece(
        Mutant(
            "models/language/noise.py",
            "museum: dropped weights never restored",
            "return replace(layer, U=drop(layer.U, keep, p))",
            "layer.U[...] = drop(layer.U, keep, p)\n        return layer",
            "models/test_language_noise.py",
        ),
        "The weights that a step drops stay zero: after enough steps the recurrent matrix is all zeros.",
        "https://github.com/keitakurita/Better_LSTM_PyTorch/issues/7",
    ),
    Piece(
        Mutant(
            "models/language/model.py",
            "museum: no gradient through the weight drop",
            "U=drop(summed.U, keep, rates.U)",
            "U=0 * summed.U",
            "models/test_language_gradients.py",
        ),
        "The recurrent weights keep their initial values, while all others learn around them.",
        "https://github.com/fastai/fastai2/pull/427",
    ),
    Piece(
        Mutant(
            "regularizers.py",
            "museum: other dropout in the two passes",
            "adversarial = on.run(m, noise=noise)",
            "adversarial = on.run(m, noise=on.second_noise(False))",
            "test_regularizers.py",
        ),
        "The distance measures the difference of two random dropout masks too, not the adversary's effect alone.",
        "https://github.com/enricivi/adversarial_training_methods/issues/4",
    ),
    Piece(
        Mutant(
            "flip.py",
            "museum: the flip off by one",
            "flips = (step != 0) & (excess == before)",
            "flips = (step != 0) & (before == 0)",
            "properties/test_strict_flip.py",
        ),
        "The budget is tested before each flip, as in Algorithm 1 to the letter, so that one unit more than the budget "
        "is flipped.",
        "it is in the paper's Algorithm 1",
    ),
    Piece(
        Mutant(
            "objective.py",
            "museum: rounding picks the units",
            "im, zero = zero_maps(im, same)",
            "_, zero = zero_maps(im, same)",
            "test_zero_maps.py",
        ),
        "Where both passes agree, as at the base mask itself, the distance has no slope, and the influence map is "
        "rounding: units are flipped by the signs of errors of the last digit.",
        "https://github.com/sungraepark/adversarial_dropout_text_classification",
    ),
]

r"""Adversarial dropout for recurrent networks in one sitting: ``python docs/one_sitting.py`` needs NumPy alone.

Park et al., Adversarial Dropout for Recurrent Neural Networks, AAAI 2019. A network reads the image of a digit row by
row. Training asks two things of it: to name the digit, and to say the same after an adversary has cut the few
recurrent units whose absence changes its prediction most. That second wish is AdD, a regularizer: a term added to the
loss. Eq. 1, 4, 6, 7 and 8 are the paper's equations, beside the lines that compute them; the walk explains them.

Sizes: T steps, B examples, I inputs a step, H units, C classes. Arrays have time first: ``x (T, B, I)``. ``h[t]`` is
the state after step t, ``h[0]`` is zero. The prefix ``d`` means "gradient of the loss with respect to". For more cases
see minadv's `rnn`, `distances`, `influence`, `flip`, `searches` and `regularizers`; a test holds this file to them.
"""

from pathlib import Path

import numpy as np

# ---------------------------------------------------------------- the data


def load_digits():
    """1,797 digits of 8 x 8 pixels: rows as steps, x (8, 1797, 8) with values from 0 to 1, and labels y (1797,)."""
    text = Path(__file__).with_name("digits.txt").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    letters = np.array([list(line.encode()) for line in lines]) - ord("a")  # the letter a is 0, b is 1, ...
    y, pixels = letters[:, 0], letters[:, 1:]
    return (pixels.reshape(-1, 8, 8) / 16).swapaxes(0, 1), y


# ---------------------------------------------------------------- a masked RNN and its backpropagation through time


def init(rng, I=8, H=50, C=10):
    """Random weights; U is orthogonal, so that a state neither grows nor dies on its way through the steps."""

    def uniform(n, k):
        limit = np.sqrt(6 / (n + k))
        return rng.uniform(-limit, limit, (n, k))

    W = uniform(I, H)
    Q, R = np.linalg.qr(rng.standard_normal((H, H)))
    return {"W": W, "U": Q * np.sign(np.diag(R)), "b": np.zeros(H), "V": uniform(H, C), "c": np.zeros(C)}


def forward(params, x, m):
    """States h (T+1, B, H) under the masks m (B, H), and the logits (B, C), scores whose softmax is p."""
    T, B, H = len(x), x.shape[1], len(params["b"])
    h = np.zeros((T + 1, B, H))
    for t in range(1, T + 1):
        hhat = m * h[t - 1]  # the same mask at every step
        h[t] = np.tanh(x[t - 1] @ params["W"] + hhat @ params["U"] + params["b"])  # Eq. 1
    return h, h[T] @ params["V"] + params["c"]


def backward(params, x, h, m, dlogits):
    """Gradients of the weights, and dhhat (T, B, H): dhhat[u] is the gradient of hhat_u, the masked copy of h_u."""
    T, U, V = len(x), params["U"], params["V"]
    grads = {name: np.zeros_like(value) for name, value in params.items()}
    grads["V"], grads["c"] = h[T].T @ dlogits, dlogits.sum(axis=0)
    dhhat = np.zeros_like(h[:-1])
    dh = dlogits @ V.T
    for t in range(T, 0, -1):
        dpre = (1 - h[t] ** 2) * dh  # through tanh
        grads["W"] += x[t - 1].T @ dpre
        grads["U"] += (m * h[t - 1]).T @ dpre
        grads["b"] += dpre.sum(axis=0)
        dhhat[t - 1] = dpre @ U.T
        dh = m * dhhat[t - 1]  # the state of step t - 1 reaches step t through its masked copy only
    return grads, dhhat


# ---------------------------------------------------------------- losses, each with its gradient to the logits


def log_softmax(logits):
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def cross_entropy(logits, y):
    """-log p_y of each example, small where the right class y is likely, and its gradient p - 1_y."""
    log_p, rows = log_softmax(logits), np.arange(len(y))
    dlogits = np.exp(log_p)
    dlogits[rows, y] -= 1
    return -log_p[rows, y], dlogits


def js(logits0, logits1):
    """The Jensen-Shannon distance of two predictions, and its gradients to both logits."""
    log_p0, log_p1 = log_softmax(logits0), log_softmax(logits1)
    log_mean = np.logaddexp(log_p0, log_p1) - np.log(2)
    terms, gradients = [], []
    for log_p in (log_p0, log_p1):
        terms.append(0.5 * np.exp(log_p) * (log_p - log_mean))
        gradients.append(terms[-1] - np.exp(log_p) * terms[-1].sum(axis=1, keepdims=True))  # through the softmax
    return (terms[0] + terms[1]).sum(axis=1), *gradients


# ---------------------------------------------------------------- the adversary


def influence_map(h, dhhat):
    """The gradient of the distance with respect to the mask, (B, H): each unit's influence, summed over time."""
    return (dhhat * h[:-1]).sum(axis=0)  # Eq. 6


def flip(eps, im, eps0, budget):
    """Flip the units of largest gain, only where there is a gain, and end at most `budget` units away from eps0."""
    gain = (1 - 2 * eps) * im  # the order of Eq. 7: what flipping each unit adds to the distance, to first order
    flipped = eps.copy()
    for b in range(len(eps)):
        away = np.sum(eps[b] != eps0[b])
        for i in np.argsort(-gain[b], kind="stable"):
            if gain[b, i] <= 0:
                break
            step = 1 if eps[b, i] == eps0[b, i] else -1  # a flip back towards eps0 frees a place
            if away + step <= budget:
                flipped[b, i] = 1 - eps[b, i]
                away += step
    return flipped  # Eq. 7


def find_adversary(params, x, logits0, budget, rng, K=1):
    """A mask within the budget that moves the prediction far from logits0: K times a map, then a flip (Eq. 8)."""
    B, H = x.shape[1], len(params["b"])
    eps0 = np.ones((B, H))
    eps = eps0.copy()
    eps[np.arange(B), rng.integers(H, size=B)] = 0  # at eps0 itself the distance is least and its gradient is zero
    for k in range(K):
        h, logits = forward(params, x, eps)
        _, _, dlogits = js(logits0, logits)
        _, dhhat = backward(params, x, h, eps, dlogits)
        eps = flip(eps, influence_map(h, dhhat), eps0, int(np.ceil((k + 1) * budget / K)))
    return eps


def add_loss(params, x, y, weight, budget, rng):
    """The means of -log p_y and AdD (D under the mask found, Eq. 4) over a batch; gradients of their weighted sum."""
    ones = np.ones((len(y), len(params["b"])))
    h0, logits0 = forward(params, x, ones)
    nll, dnll = cross_entropy(logits0, y)
    if weight == 0:
        return nll.mean(), 0.0, backward(params, x, h0, ones, dnll / len(y))[0]
    eps = find_adversary(params, x, logits0, budget, rng)  # a constant: nothing is differentiated through the search
    h1, logits1 = forward(params, x, eps)
    d, d0, d1 = js(logits0, logits1)  # Eq. 4
    grads0, _ = backward(params, x, h0, ones, (dnll + weight * d0) / len(y))
    grads1, _ = backward(params, x, h1, eps, weight * d1 / len(y))
    return nll.mean(), d.mean(), {name: grads0[name] + grads1[name] for name in params}


# ---------------------------------------------------------------- training


def adam(params, grads, state, lr=0.003, decay=(0.9, 0.999)):
    """One step of Adam; the state holds the running means of each gradient and of its square, and their age."""
    age = state.get("age", 0) + 1
    new, kept = {}, {"age": age}
    for name, g in grads.items():
        mean, square = state.get(name, (0.0, 0.0))
        mean, square = decay[0] * mean + (1 - decay[0]) * g, decay[1] * square + (1 - decay[1]) * g**2
        kept[name] = (mean, square)
        step = mean / (1 - decay[0] ** age) / (np.sqrt(square / (1 - decay[1] ** age)) + 1e-8)
        new[name] = params[name] - lr * step
    return new, kept


def train(x, y, *, weight, budget=3, epochs=15, batch=50, H=50, seed=0, report=print):
    """Weights after some epochs; `report` is called with one line an epoch."""
    rng = np.random.default_rng(seed)
    params, state = init(rng, x.shape[2], H, int(y.max()) + 1), {}
    for epoch in range(1, epochs + 1):
        sums = np.zeros(2)
        for rows in np.array_split(rng.permutation(len(y)), len(y) // batch):
            nll, d, grads = add_loss(params, x[:, rows], y[rows], weight, budget, rng)
            params, state = adam(params, grads, state)
            sums += len(rows) * np.array([nll, d])
        report(f"epoch {epoch:2}  -log p {sums[0] / len(y):.4f}  AdD {sums[1] / len(y):.4f}")
    return params


def errors(params, x, y, budget, rng):
    """Shares of wrong answers: full network, random masks, and masks of an adversary with K = 2 (K = 1 in training)."""
    ones = np.ones((len(y), len(params["b"])))
    _, logits0 = forward(params, x, ones)
    random = ones.copy()
    for row in random:
        row[rng.choice(len(row), budget, replace=False)] = 0
    masks = (ones, random, find_adversary(params, x, logits0, budget, rng, K=2))
    return [np.mean(forward(params, x, m)[1].argmax(axis=1) != y) for m in masks]


if __name__ == "__main__":
    x, y = load_digits()
    order = np.random.default_rng(0).permutation(len(y))
    learn, test = order[:1437], order[1437:]
    for name, weight in (("without a regularizer", 0.0), ("with adversarial dropout", 1.0)):
        print(name)
        params = train(x[:, learn], y[learn], weight=weight)
        whole, random, attacked = errors(params, x[:, test], y[test], 3, np.random.default_rng(1))
        print(f"test error {whole:.1%}, with 3 units cut at random {random:.1%}, by the adversary {attacked:.1%}\n")

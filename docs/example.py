import numpy as np

from minadv import distances, gradcheck, layers, lstm

rng = np.random.default_rng(7)
T, B, I, H, C = 20, 2, 3, 5, 4  # steps, examples, inputs, units, classes
x, V, b = rng.standard_normal((T, B, I)), rng.normal(0, 5, (H, C)), np.zeros(C)
params = lstm.init(rng, I, H, dtype=np.float64)
h, _, _ = lstm.forward(params, x)  # the full network: h (T, B, H)
logits0 = layers.affine(h[-1], V, b)  # its prediction after the last step


def forward(params, m):  # D[full network || network masked by m], for each example
    h, _, _ = lstm.forward(params, x, m=m)
    return distances.js(logits0, layers.affine(h[-1], V, b))[0]


def backward(args, dD):  # its gradients
    h, _, cache = lstm.forward(args["params"], x, m=args["m"])
    _, _, dlogits = distances.js(logits0, layers.affine(h[-1], V, b))
    dh = np.zeros_like(h)
    dh[-1], _, _ = layers.affine_backward(h[-1], V, dD[:, None] * dlogits)
    grads = lstm.backward(args["params"], cache, dh)
    return {"params": grads.params, "m": grads.m}


m = np.ones((B, H))
m[:, 2] = 0  # drop unit 2 of the recurrent connection, at every step
print("distance", forward(params, m).round(4))
print("influence map", backward({"params": params, "m": m}, np.ones(B))["m"].round(4), sep="\n")
print(gradcheck.check(forward, backward, {"params": params, "m": m}, rng=rng))

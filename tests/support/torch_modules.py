"""As much of PyTorch's tensors and modules as `minadv.torch_layout` asks for, on machines that lack it."""

from minadv.torch_layout import to_torch


class Tensor:
    """A part of a graph, on another device."""

    def __init__(self, a):
        self.a = a

    def detach(self):
        return self

    def cpu(self):
        return self.a


class Module:
    """Named tensors and named parts."""

    def __init__(self, tensors=None, **parts):
        self.tensors, self.parts = {name: Tensor(a) for name, a in (tensors or {}).items()}, parts

    def named_modules(self):
        yield "", self
        for name, part in self.parts.items():
            for below, one in part.named_modules():
                yield f"{name}.{below}".rstrip("."), one

    def state_dict(self):
        below = {f"{name}.{key}": a for name, part in self.parts.items() for key, a in part.state_dict().items()}
        return self.tensors | below


class LSTM(Module):
    """A cell of some layers; those of the other cells differ in the name alone."""

    def __init__(self, layers, **options):
        super().__init__(to_torch(layers))
        vars(self).update(options)


class GRU(LSTM):
    pass


class RNN(LSTM):
    pass


class Linear(Module):
    def __init__(self, V, b=None):
        super().__init__({"weight": V.T} if b is None else {"weight": V.T, "bias": b})
        self.in_features = len(V)
        self.weight, self.bias = self.tensors["weight"], self.tensors.get("bias")

"""Torch modules with a forward of their own: taken if they compute Linear, ReLU, Linear, else refused."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from bidual import certify  # noqa: E402
from bidual.networks import from_torch  # noqa: E402

X = np.random.default_rng(0).normal(size=(12, 3))


class Layers(nn.Module):
    """Two layers and a forward to be written."""

    def __init__(self, outputs=1):
        super().__init__()
        self.first, self.last = nn.Linear(3, 5), nn.Linear(5, outputs)
        self.drop, self.body = nn.Dropout(0.5), nn.Sequential(nn.Linear(3, 5), nn.ReLU())


class Functions(Layers):
    def forward(self, x):
        return self.last(F.dropout(F.relu(self.first(x)), training=self.training))


class Method(Layers):
    def forward(self, x):
        return self.last(self.drop(self.first(x).relu())).squeeze(-1)


class Nested(Layers):
    def forward(self, x, mask=None):
        return self.last(self.body(x))


class Weights(Layers):
    def forward(self, x):
        hidden = torch.relu(F.linear(x, self.first.weight, bias=self.first.bias))
        return F.linear(hidden, self.last.weight)


class Own(nn.Linear):
    pass


@pytest.mark.parametrize(
    "module",
    [
        Functions(2),
        Method(),
        Nested(3),
        Weights(2),
        nn.Sequential(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), nn.Linear(4, 2)),
        nn.Sequential(Own(3, 4), nn.ReLU(inplace=True), nn.Identity(), Own(4, 1, bias=False)),
        Functions(2).double(),
        Functions(2).half(),
    ],
    ids=["functions", "method", "nested", "weights", "sequential", "own layers", "double", "half"],
)
def test_a_module_becomes_the_network_it_computes(module):
    module.train()
    network = from_torch(module)
    assert module.training  # left as it was
    assert all(part.training for part in module.modules())
    kind = next(module.parameters()).dtype
    with torch.no_grad():
        expected = module.eval()(torch.as_tensor(X, dtype=kind)).double().numpy()
    np.testing.assert_allclose(network.predict(X), expected.squeeze(), atol=1e-2 if kind == torch.half else 1e-5)


class Skip(Layers):
    def forward(self, x):
        return self.last(F.relu(self.first(x))) + x[:, :1]


class Branch(Layers):
    def forward(self, x):
        return self.last(F.relu(self.first(x))) if x.sum() > 0 else x


class Always(Layers):
    def forward(self, x):
        return self.last(F.dropout(F.relu(self.first(x)), 0.5))


class Tanh(Layers):
    def forward(self, x):
        return self.last(torch.tanh(self.first(x)))


class Hooked(Functions):
    def __init__(self):
        super().__init__()
        self.first.register_forward_hook(lambda module, inputs, output: output + 1.0)


class Two(Layers):
    def forward(self, x, z):
        return self.last(F.relu(self.first(z)))


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (Skip(), "Linear, ReLU, Linear \\+ getitem"),
        (Branch(), "cannot be traced"),
        (Always(), "dropout in training"),
        (Tanh(), "computes Linear, tanh, Linear"),
        (Hooked(), "computes something else"),
        (Two(), "cannot be traced"),
        (nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2), nn.Softmax(dim=1)), "Linear, Softmax"),
        (nn.Sequential(), "computes nothing"),
        ("module", "got str"),
    ],
)
def test_other_modules_are_refused_in_one_sentence(module, words):
    with pytest.raises(ValueError, match=words) as refusal:
        from_torch(module)
    assert "\n" not in str(refusal.value)
    assert "Linear, ReLU, Linear" in str(refusal.value)


def test_a_module_with_its_own_forward_is_certified():
    torch.manual_seed(0)
    module, y = Method().double(), np.abs(X[:, 0])
    certificate = certify(module, X, y, beta=0.05, time_limit=5, random_state=0)
    with torch.no_grad():
        residual = module.eval()(torch.as_tensor(X)).numpy() - y
    weights = [module.first.weight, module.first.bias, module.last.weight]
    penalty = 0.5 * sum(float((w.detach() ** 2).sum()) for w in weights)
    assert certificate.objective == pytest.approx(0.5 * np.mean(residual**2) + 0.05 * penalty, rel=1e-9)
    assert 0 < certificate.lower_bound <= certificate.objective

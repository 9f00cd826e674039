"""Networks read from torch modules: the same function, at the cost it has by definition, or one sentence."""

from __future__ import annotations

import json
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="torch is not installed")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from bidual import BatchNorm, ReLURegressor, certify, load  # noqa: E402
from bidual.cli import main  # noqa: E402
from bidual.networks import (  # noqa: E402
    BatchNormNetwork,
    ConvolutionalNetwork,
    DeepNetwork,
    GatedNetwork,
    LayerwiseNetwork,
    LeakyReLUNetwork,
    ParallelNetwork,
    StandardisedNetwork,
    TwoLayerNetwork,
    from_torch,
    from_torch_file,
)
from bidual.networks.convolutional import POOLINGS  # noqa: E402

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(12, 3)), RNG.normal(size=12)
SEQUENCES, IMAGES = RNG.normal(size=(7, 5, 2)), RNG.normal(size=(6, 4, 5, 2))


def layer(kind, d, C=1, m=3, bias=True, seed=0):
    """A network of one hidden layer with random weights."""
    rng = np.random.default_rng(seed)
    draw = rng.standard_normal
    W, alpha, b, c = draw((m, d)), draw((m, C)), draw(m) if bias else None, draw(C)
    if kind == "gated":
        return GatedNetwork(W, draw((m, d, C)), b, draw((m, C)) if bias else None, c)
    if kind.startswith("batch norm"):
        sizes = np.exp(draw(m))
        return BatchNormNetwork(W, alpha, draw(m), draw(m), draw(m), sizes, 20, kind.split()[-1], b, c)
    return LeakyReLUNetwork(W, alpha, b, c, 0.2) if kind == "leaky" else TwoLayerNetwork(W, alpha, b, c)


def on_patches(kind, pooling, inputs, m=3):
    """A convolutional network with random weights for such inputs."""
    kernel = {"sequences": (2,), "images": (2, 3), "patches": None}[inputs]
    Z = IMAGES if inputs == "images" else SEQUENCES
    h = 2 * int(np.prod(kernel or ()))
    options = {} if kernel is None else {"stride": (2, 1)[-len(kernel) :], "padding": (1,) * len(kernel)}
    empty = ConvolutionalNetwork(layer(kind, h, m=m), kernel, **options, pooling=None)
    grid = empty.window.grid(Z.shape) if pooling == "flatten" else None
    C = 2 if grid is None else 2 * int(np.prod(grid))
    return ConvolutionalNetwork(
        layer(kind, h, C, m=m), kernel, **options, pooling=pooling, intercept=[0.5, -1.0], grid=grid
    ), Z


def standardised(network, Z):
    d = Z.shape[-1]
    return StandardisedNetwork(network, np.arange(d) + 1.0, np.arange(d) + 0.5)


def parallel(widths, K=2, bias=True, seed=0):
    draw = np.random.default_rng(seed).standard_normal
    layers = [draw((K, a, b)) for a, b in pairwise(widths)]
    return ParallelNetwork(layers, draw((K, widths[1])) if bias else None, draw(widths[-1]))


DENSE = {
    **{(kind, b): layer(kind, 3, bias=b) for kind in ("plain", "leaky", "gated") for b in (True, False)},
    **{("batch norm", at): layer(f"batch norm {at}", 3) for at in ("before", "after")},
    ("parallel", 3): parallel((3, 2, 1, 1)),
    ("parallel", 4): parallel((3, 4, 2, 1, 1), bias=False),
    ("none", "plain"): layer("plain", 3, m=0),
    ("none", "batch norm"): layer("batch norm before", 3, m=0),
}
PATCHES = {
    (kind, str(pooling), inputs): on_patches(kind, pooling, inputs)
    for kind, pooling, inputs in product(
        ("plain", "batch norm before", "gated"), POOLINGS, ("sequences", "images", "patches")
    )
    if (kind, pooling) != ("gated", "flatten")  # torch has no such module
}
NONE = {
    ("none", kind, str(pooling)): on_patches(kind, pooling, "sequences", m=0)
    for kind, pooling in product(("plain", "batch norm before"), POOLINGS)
}
LINE = X[:5, :1]
KNOWN = {
    ("line", "parallel"): (parallel((1, 2, 1, 1)), LINE),
    **{name: (net, X) for name, net in DENSE.items()},
    **PATCHES,
    **NONE,
}


@pytest.mark.parametrize("wrapped", [False, True], ids=["", "standardised"])
@pytest.mark.parametrize("name", KNOWN, ids=lambda name: "-".join(map(str, name)))
def test_what_to_torch_writes_is_read_back(name, wrapped, tmp_path):
    network, Z = KNOWN[name]
    network = standardised(network, Z) if wrapped else network
    module = network.to_torch()
    torch.save(module, tmp_path / "m.pt")
    for back in (from_torch(module, Z), from_torch_file(tmp_path / "m.pt", Z)):
        np.testing.assert_allclose(back.predict(Z), network.predict(Z), rtol=1e-12, atol=1e-12)
        assert back.core.kind == network.core.kind
        assert back.restated(Z).penalty() == pytest.approx(network.restated(Z).penalty(), rel=1e-9)
    single = from_torch(network.to_torch(torch.float32), Z)
    np.testing.assert_allclose(single.predict(Z), network.predict(Z), rtol=1e-3, atol=1e-3)


CERTIFIED = [
    ("plain", False), ("leaky", True), ("gated", False), ("batch norm", "before"), ("batch norm", "after"),
    ("line", "parallel"), ("plain", "flatten", "patches"), ("gated", "average", "sequences"),
    ("batch norm before", "sum", "images"), ("none", "batch norm before", "average"), ("plain", "None", "sequences"),
]  # fmt: skip


@pytest.mark.parametrize("name", CERTIFIED, ids=lambda name: "-".join(map(str, name)))
def test_a_module_has_the_certificate_of_its_network(name):
    network, Z = KNOWN[name]
    shape = network.output_shape(Z.shape)
    y = np.random.default_rng(1).standard_normal(shape if network.n_outputs == 1 else (*shape, network.n_outputs))
    options = {"beta": 0.3, "time_limit": 5, "tol": 0.05, "random_state": 0, "method": "local"}
    if name[0] == "batch norm":  # a module charges scales and shifts in the units of torch, unless it is said otherwise
        options["architecture"] = BatchNorm(name[1])
    ours, theirs = (certify(model, Z, y, **options) for model in (network, network.to_torch()))
    assert theirs.objective == pytest.approx(ours.objective, rel=1e-12)
    assert theirs.scope == ours.scope
    assert theirs.lower_bound <= theirs.objective
    if name[0] != "none":  # a neuron that is silent is another start of the search
        assert theirs.lower_bound == pytest.approx(ours.lower_bound, rel=1e-6)
    assert theirs.verify(Z, y, model=network.to_torch())


@pytest.mark.parametrize(
    "network",
    [
        DeepNetwork([np.ones((3, 2)), np.ones((2, 2)), np.ones((2, 1))]),
        LayerwiseNetwork([layer("plain", 3)]),
        standardised(DeepNetwork([np.ones((3, 2)), np.ones((2, 1))], activation="linear"), X),
    ],
)
def test_kinds_without_a_bound_are_refused_before_any_work(network, monkeypatch):
    monkeypatch.setattr("bidual.certification.search.Search.improve", None)
    with pytest.raises((ValueError, TypeError), match=r"certify knows no architecture of|expected a two-layer network"):
        certify(network, X, Y, beta=0.1)


def test_deep_linear_and_layerwise_modules_are_refused(tmp_path):
    for network in (
        DeepNetwork([np.ones((3, 2)), np.ones((2, 1))], activation="linear"),
        LayerwiseNetwork([layer("plain", 3)]),
    ):
        torch.save(network.to_torch(), tmp_path / "m.pt")
        with pytest.raises(ValueError, match=r"computes (Linear, Linear|LayerwiseModule)$"):
            from_torch_file(tmp_path / "m.pt")


# ---- batch normalisation ---------------------------------------------------------------------------


def normalised(position, affine=True, d=3, m=5, seed=0, eps=1e-2):
    """Running statistics that are those of no rows."""
    torch.manual_seed(seed)
    norm = nn.BatchNorm1d(m, eps=eps, affine=affine)
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2.0)
    if affine:
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    middle = [norm, nn.ReLU()] if position == "before" else [nn.ReLU(), norm]
    return nn.Sequential(nn.Linear(d, m), *middle, nn.Linear(m, 1)).double().eval()


def definition(module, rows, y, beta, counts):
    r"""000 eq. 3 by definition: a neuron's normalised values have the norm gamma and the mean shift / sqrt(n)."""
    n = counts.sum()
    with torch.no_grad():
        x, out = torch.as_tensor(rows), module(torch.as_tensor(rows)).numpy()[:, 0]
        for part in module:
            x = part(x)
            if isinstance(part, nn.BatchNorm1d):
                values = x.numpy()
    mean = counts @ values / n
    gamma, shift = np.sqrt(counts @ (values - mean) ** 2), np.sqrt(n) * mean
    alpha = module[-1].weight.detach().numpy()
    penalty = 0.5 * ((gamma**2).sum() + (shift**2).sum() + (alpha**2).sum())
    return counts @ (0.5 * (out - y) ** 2) / n + beta * penalty


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("position", ["before", "after"])
def test_a_normalised_module_is_charged_in_the_statistics_of_the_rows(position, affine):
    module, counts = normalised(position, affine), np.arange(12) % 3 + 1.0
    for w in (np.ones(12), counts):
        restated = from_torch(module).restated(X, w)
        expected = definition(module, X, Y, 0.05, w)
        assert restated.objective(X, Y, beta=0.05, sample_weight=w) == pytest.approx(expected, rel=1e-12)
        new = 10 * RNG.normal(size=(20, 3))
        np.testing.assert_allclose(restated.predict(new), module(torch.as_tensor(new)).detach()[:, 0], rtol=1e-9)
    options = {"beta": 0.05, "method": "local", "tol": 0.05, "time_limit": 2, "random_state": 0}
    options["architecture"] = BatchNorm(position)
    weighted = certify(module, X, Y, sample_weight=counts, **options)
    assert weighted.objective == pytest.approx(definition(module, X, Y, 0.05, counts), rel=1e-12)
    rows = np.repeat(np.arange(12), counts.astype(int))
    repeated = certify(module, X[rows], Y[rows], **options)
    assert repeated.objective == pytest.approx(weighted.objective, rel=1e-12)
    if affine:
        best = ReLURegressor(0.05, architecture=BatchNorm(position), tol=1e-2, random_state=0).fit(X[rows], Y[rows])
        assert weighted.lower_bound <= best.objective_ * (1 + 1e-9)
    assert weighted.verify(X, Y, counts, model=module)
    assert not weighted.verify(X, Y, counts, model=normalised(position, affine, seed=1))


@settings(max_examples=30)
@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e6), st.sampled_from(["before", "after"]))
def test_far_rows_of_any_size_are_restated_exactly(origin, size, position):
    rows = np.random.default_rng(0).integers(-8, 9, size=(10, 2)) / 8  # moved and scaled without rounding
    origin, size = np.round(origin), 2.0 ** np.round(np.log2(size))
    base = normalised(position, d=2)
    near = from_torch(base).restated(rows)
    W, b = base[0].weight.detach().numpy(), base[0].bias.detach().numpy()
    moved = rows * size
    far = from_torch(base)
    far = BatchNormNetwork(
        **{**far.weights(), "hidden_weights": W / size, "hidden_bias": b, "position": position}
    ).restated(moved)
    np.testing.assert_allclose([far.gamma, far.shift], [near.gamma, near.shift], rtol=1e-9, atol=1e-9)
    shifted = moved + origin
    if not np.array_equal(shifted - origin, moved):
        return
    there = BatchNormNetwork(
        **{**far.weights(), "mean": far.mean + W @ np.full(2, origin) / size, "position": position}
        if position == "before"
        else {**far.weights(), "hidden_bias": b - W @ np.full(2, origin) / size, "position": position}
    ).restated(shifted)
    slack = 1e-9 + 1e-13 * abs(origin) / size * 10
    np.testing.assert_allclose([there.gamma, there.shift], [near.gamma, near.shift], rtol=slack, atol=slack)


def test_neurons_that_are_constant_on_the_rows_are_all_shift():
    module = normalised("after")
    with torch.no_grad():
        module[0].bias[:2] = -100.0  # dead on these rows
    restated = from_torch(module).restated(X)
    np.testing.assert_array_equal(restated.gamma[:2], 0.0)
    np.testing.assert_allclose(restated.predict(X), module(torch.as_tensor(X)).detach()[:, 0], rtol=1e-9)
    assert restated.objective(X, Y, beta=0.1) == pytest.approx(definition(module, X, Y, 0.1, np.ones(12)), rel=1e-12)
    with torch.no_grad():
        module[0].bias[:] = -100.0
    assert not from_torch(module).restated(X).gamma.any()


def test_tiny_variances_do_not_change_the_function():
    module = normalised("before", eps=1e-12)
    module[1].running_var.fill_(1e-20)
    back = from_torch(module)
    expected = module(torch.as_tensor(X)).detach()[:, 0]
    np.testing.assert_allclose(back.predict(X), expected, rtol=1e-9)
    np.testing.assert_allclose(back.restated(X).predict(X), expected, rtol=1e-9)


# ---- more layers, and branches ---------------------------------------------------------------------


class Sum(nn.Module):
    """Branches that are added up, in the ways people write it."""

    def __init__(self, branches, how="sum"):
        super().__init__()
        self.branches, self.how = nn.ModuleList(branches), how

    def forward(self, x):
        outputs = [branch(x) for branch in self.branches]
        if self.how == "stack":
            return torch.stack(outputs).sum(dim=0)
        if self.how == "loop":
            total = 0
            for f in outputs:
                total = total + f
            return total.squeeze(-1)
        return sum(outputs)


def branch(*widths, bias=True):
    linear = [nn.Linear(a, b, bias=bias) for a, b in pairwise(widths)]
    return nn.Sequential(*[part for L in linear for part in (L, nn.ReLU())][:-1])


def paths(module):
    """The path regulariser of a feed-forward module, path by path; biases start at a one, but for the last."""
    layers = [part for part in module if isinstance(part, nn.Linear)]
    total = 0.0
    for start in range(len(layers)):
        if start == 0:
            squares = (layers[0].weight ** 2).sum(dim=1)
        elif start < len(layers) - 1 and layers[start].bias is not None:
            squares = layers[start].bias ** 2
        else:
            continue
        if start == 0 and layers[0].bias is not None:
            squares = squares + layers[0].bias ** 2
        for L in layers[start + 1 :]:
            squares = L.weight**2 @ squares
        total = total + squares.sum()
    return float(total.detach()) ** 0.5


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("widths", [(3, 4, 2, 1), (3, 2, 3, 2), (3, 4, 3, 2, 1)])
def test_feed_forward_modules_are_one_branch(widths, bias):
    torch.manual_seed(0)
    module = branch(*widths, bias=bias).double()
    network = from_torch(module)
    assert isinstance(network, ParallelNetwork)
    assert network.n_branches == 1
    expected = module(torch.as_tensor(X)).detach().numpy()
    np.testing.assert_allclose(network.predict(X).reshape(expected.shape), expected, rtol=1e-12)
    assert network.penalty() == pytest.approx(paths(module), rel=1e-12)


@pytest.mark.parametrize("how", ["sum", "stack", "loop"])
def test_branches_that_are_added_up_are_a_parallel_network(how):
    torch.manual_seed(0)
    module = Sum([branch(3, 4, 2, 1), branch(3, 2, 3, 1), branch(3, 2, 2, 1, bias=False)], how).double()
    network = from_torch(module)
    assert isinstance(network, ParallelNetwork)
    np.testing.assert_allclose(network.predict(X), module(torch.as_tensor(X)).detach().numpy().ravel(), rtol=1e-12)
    assert network.penalty() == pytest.approx(sum(map(paths, module.branches)), rel=1e-12)


def test_a_sum_of_two_layer_networks_is_one():
    torch.manual_seed(0)
    module = Sum([branch(3, 4, 2), branch(3, 2, 2, bias=False)]).double()
    network = from_torch(module)
    assert isinstance(network, TwoLayerNetwork)
    assert network.n_neurons == 6
    np.testing.assert_allclose(network.predict(X), module(torch.as_tensor(X)).detach().numpy(), rtol=1e-12)
    charged = [p for b in module.branches for name, p in b.named_parameters() if name != "2.bias"]
    assert network.penalty() == pytest.approx(0.5 * sum(float((p.detach() ** 2).sum()) for p in charged), rel=1e-12)


@pytest.mark.parametrize("widths", [(1, 1, 2, 1), (1, 2, 1, 1, 1)])
def test_the_bound_of_a_feed_forward_module_is_below_every_branch_that_was_trained(widths):
    rows, y = LINE, np.abs(LINE[:, 0])
    torch.manual_seed(0)
    module = branch(*widths).double()
    certificate = certify(module, rows, y, beta=0.1, method="local", time_limit=2, random_state=0)
    assert certificate.objective == pytest.approx(
        0.5 * np.mean((module(torch.as_tensor(rows)).detach().numpy()[:, 0] - y) ** 2) + 0.1 * paths(module), rel=1e-12
    )
    adam = torch.optim.Adam(module.parameters(), lr=0.03)
    for _ in range(150):
        adam.zero_grad()
        squares = [(module[0].weight ** 2).sum(dim=1) + module[0].bias ** 2]
        for k in range(2, len(module), 2):
            squares.append(module[k].weight ** 2 @ squares[-1] + (module[k].bias ** 2 if k < len(module) - 1 else 0))
        residual = module(torch.as_tensor(rows))[:, 0] - torch.as_tensor(y)
        value = 0.5 * (residual**2).mean() + 0.1 * torch.sqrt(squares[-1].sum() + 1e-30)
        value.backward()
        adam.step()
    assert 0 < certificate.lower_bound <= float(value.detach())


# ---- what looks alike ------------------------------------------------------------------------------


class Own(nn.Module):
    """A forward in one line."""

    def __init__(self, function, **parts):
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.function(self, x)


def dense(function, **more):
    return Own(function, a=nn.Linear(3, 5), b=nn.Linear(5, 1), **more)


def convolution(*rest, **options):
    return nn.Sequential(nn.Conv2d(2, 4, 2, **options), nn.ReLU(), *rest)


def pooled(**options):
    return convolution(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 1), **options)


def tied():
    module = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))
    module[2].weight = module[0].weight
    return module


def hooked(hook):
    module = branch(3, 5, 1)
    module[0].register_forward_hook(hook)
    return module


def broken(**statistics):
    module = normalised("before", eps=0.0)
    for name, value in statistics.items():
        getattr(module[1], name).fill_(value)
    return module


OTHERS = {
    "residual": (dense(lambda s, x: s.b(F.relu(s.a(x))) + x), "Linear, ReLU, Linear \\+ nothing"),
    "residual hidden": (
        dense(lambda s, x: (lambda h: s.b(h + F.relu(s.c(h))))(F.relu(s.a(x))), c=nn.Linear(5, 5)),
        "does not pass",
    ),
    "trunk": (
        dense(lambda s, x: (lambda h: s.b(h) + s.c(h))(F.relu(s.a(x))), c=nn.Linear(5, 1)),
        "does not pass",
    ),
    "shared": (
        Own(lambda s, x: s.b(F.relu(s.a(F.relu(s.a(x))))), a=nn.Linear(3, 3), b=nn.Linear(3, 1)),
        "uses a layer more than once",
    ),
    "tied": (tied(), "uses a layer more than once"),
    "transposed": (Own(lambda s, x: F.linear(F.relu(s.a(x)), s.a.weight.t()), a=nn.Linear(3, 5)), "does not pass"),
    "same branch": (Own(lambda s, x: s.p(x) + s.p(x), p=branch(3, 2, 1)), "uses a layer more than once"),
    "difference": (Own(lambda s, x: s.p(x) - s.q(x), p=branch(3, 2, 1), q=branch(3, 2, 1)), "does not pass"),
    "weighted": (
        Own(lambda s, x: torch.add(s.p(x), s.q(x), alpha=2), p=branch(3, 2, 1), q=branch(3, 2, 1)),
        "does not pass",
    ),
    "mean of branches": (
        Own(lambda s, x: torch.stack([s.p(x), s.q(x)]).mean(0), p=branch(3, 2, 1), q=branch(3, 2, 1)),
        "stacks outputs",
    ),
    "sum over outputs": (
        Own(lambda s, x: torch.stack([s.p(x), s.q(x)], 1).sum(2), p=branch(3, 2, 2), q=branch(3, 2, 2)),
        "computes something else",
    ),
    "relu of a sum": (
        Own(lambda s, x: F.relu(s.p(x) + s.q(x)), p=branch(3, 2, 1), q=branch(3, 2, 1)),
        "adds outputs up before ReLU",
    ),
    "different depth": (Sum([branch(3, 2, 1), branch(3, 2, 2, 1)]), "branches of different depth"),
    "relu at the end": (nn.Sequential(*branch(3, 5, 1), nn.ReLU()), "Linear, ReLU, Linear, ReLU"),
    "two relus": (nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.ReLU(), nn.Linear(5, 1)), "Linear, ReLU, ReLU, Linear"),
    "no relu": (nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 1)), "computes Linear, Linear"),
    "twice the hidden": (dense(lambda s, x: (lambda h: s.b(h + h))(F.relu(s.a(x)))), "adds outputs up before Linear"),
    "twice": (dense(lambda s, x: s.b(F.relu(s.a(x))) * 2), "Linear, ReLU, Linear, mul"),
    "plus one": (dense(lambda s, x: s.b(F.relu(s.a(x))) + 1), "Linear, ReLU, Linear, add"),
    "flipped": (dense(lambda s, x: s.b(F.relu(s.a(x.flip(1))))), "computes flip"),
    "rounded": (dense(lambda s, x: s.b(F.relu(s.a(x)).half().float())), "half, float"),
    "clamped above": (dense(lambda s, x: s.b(s.a(x).clamp(0, 1e9))), "Linear, clamp, Linear"),
    "dropout in training": (dense(lambda s, x: s.b(F.dropout(F.relu(s.a(x)), 1e-9))), "dropout in training"),
    "two outputs": (dense(lambda s, x: (s.b(F.relu(s.a(x))), x)), "does not return one tensor"),
    "ReLU6": (nn.Sequential(nn.Linear(3, 5), nn.ReLU6(), nn.Linear(5, 1)), "Linear, ReLU6, Linear"),
    "slope above one": (nn.Sequential(nn.Linear(3, 5), nn.LeakyReLU(2.0), nn.Linear(5, 1)), "slope must be"),
    "hook, a little": (hooked(lambda m, i, o: o * (1 + 1e-6)), "computes something else"),
    "hook, far away": (hooked(lambda m, i, o: torch.where(o > 1e4, 2 * o, o)), "computes something else"),
    "complex": (nn.Sequential(nn.Linear(3, 5, dtype=torch.complex64), nn.ReLU(), nn.Linear(5, 1)), "real numbers"),
    "lazy": (nn.Sequential(nn.LazyLinear(5), nn.ReLU(), nn.Linear(5, 1)), "no values yet"),
    "meta": (branch(3, 5, 1).to("meta"), "load them first"),
    "no statistics": (
        nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5, track_running_stats=False), nn.ReLU(), nn.Linear(5, 1)),
        "keeps no statistics",
    ),
    "normalised twice": (
        nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.BatchNorm1d(5), nn.Linear(5, 1)),
        "BatchNorm, ReLU, BatchNorm",
    ),
    "normalised inputs": (nn.Sequential(nn.BatchNorm1d(3), *branch(3, 5, 1)), "computes BatchNorm, Linear"),
    "variance zero": (broken(running_var=0.0), "norm must be positive"),
    "mean nan": (broken(running_mean=float("nan")), "mean contains NaN"),
    "groups": (pooled(groups=2), "without groups"),
    "dilation": (pooled(dilation=2), "without groups and dilation"),
    "reflected": (pooled(padding=1, padding_mode="reflect"), "zeros"),
    "wrapped": (pooled(padding=1, padding_mode="circular"), "zeros"),
    "even, same": (pooled(padding="same"), "as many zeros on both sides"),
    "wrapped otherwise": (
        nn.Sequential(nn.CircularPad2d(1), *pooled()),
        r"circular patches must have stride 1, no zeros and the padding \(0, 1, 0, 1\)",
    ),
    "some pooling": (convolution(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 1)), "Conv, ReLU, average, Lin"),
    "max pooling": (convolution(nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(4, 1)), "AdaptiveMaxPool2d"),
    "channels last": (
        Own(lambda s, x: s.b(s.c(x).permute(0, 2, 3, 1).flatten(1)), c=convolution(), b=nn.Linear(48, 1)),
        "permute",
    ),
    "mean over channels": (
        Own(lambda s, x: s.b(s.c(x).mean((1, 3))), c=convolution(), b=nn.Linear(4, 1)),
        "computes something else",
    ),
    "normalised behind": (
        nn.Sequential(nn.Conv2d(2, 4, 2), nn.ReLU(), nn.BatchNorm2d(4), *pooled()[2:]),
        "Conv, ReLU, BatchNorm, average",
    ),
    "no square": (convolution(nn.Flatten(), nn.Linear(48, 1)), "no square: give the training rows"),
    "two convolutions": (nn.Sequential(nn.Conv2d(2, 2, 2), nn.ReLU(), *pooled()), "Conv, ReLU, Conv, ReLU"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_looks_alike_is_refused_in_one_sentence(name):
    module, words = OTHERS[name]
    with pytest.raises(ValueError, match=words) as refusal:
        from_torch(module)
    assert "\n" not in str(refusal.value)


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_compiled_modules_are_taken_by_what_they_were_made_from():
    module = branch(3, 5, 1)
    with pytest.raises(ValueError, match="is compiled: give the module that it was made from"):
        from_torch(torch.jit.script(module))
    assert from_torch(torch.compile(module, backend="eager")).n_neurons == 5


@pytest.mark.parametrize(
    ("module", "rows"),
    [
        (dense(lambda s, x: s.b(s.a(x).clamp(min=0))), X),
        (dense(lambda s, x: s.b(F.leaky_relu(s.a(x), 0.3))), X),
        (dense(lambda s, x: s.b(F.relu(s.a(x.view(x.size(0), -1)))).reshape(x.shape[0])), X),
        (dense(lambda s, x: s.b(F.dropout(F.relu(s.a(x)), 0.5, training=s.training))), X),
        (nn.DataParallel(branch(3, 5, 1)), X),
        (nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(3, 5)), nn.ReLU(), nn.Linear(5, 1)), X),
        (convolution(nn.Flatten(), nn.Linear(48, 1)), IMAGES),
        (Own(lambda s, x: s.b(s.c(x).reshape(x.size(0), -1)), c=convolution(), b=nn.Linear(48, 2)), IMAGES),
        (Own(lambda s, x: s.b(s.c(x).mean((2, 3))), c=convolution(), b=nn.Linear(4, 1)), IMAGES),
        (nn.Sequential(nn.Conv2d(2, 4, 3, padding="same", bias=False), nn.BatchNorm2d(4), *pooled()[1:]), IMAGES),
        (nn.Sequential(nn.Conv1d(2, 3, 2, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(6, 1)), SEQUENCES),
    ],
)
def test_other_ways_of_writing_the_same_are_known(module, rows):
    module = module.double().eval()
    first = np.ascontiguousarray(np.moveaxis(rows, -1, 1)) if rows.ndim > 2 else rows
    expected = module(torch.as_tensor(first)).detach().numpy()
    np.testing.assert_allclose(from_torch(module, rows).predict(rows), expected.squeeze(), rtol=1e-10)


def test_rows_tell_the_grid_and_whether_they_fit():
    module = convolution(nn.Flatten(), nn.Linear(48, 1))
    assert from_torch(module, IMAGES).grid == (3, 4)
    with pytest.raises(ValueError, match="channels must come last"):
        from_torch(module, np.moveaxis(IMAGES, -1, 1))
    with pytest.raises(ValueError, match="channels last"):
        certify(pooled(), np.moveaxis(IMAGES, -1, 1), np.ones(6), beta=0.1)
    flat = nn.Sequential(nn.Flatten(), nn.Linear(10, 4), nn.ReLU(), nn.Linear(4, 1))
    assert isinstance(from_torch(flat, SEQUENCES), TwoLayerNetwork)


def test_random_rows_are_not_deceived_by_the_precision_of_a_module():
    class Rough(nn.Module):
        def __init__(self, off):
            super().__init__()
            self.a, self.b, self.off = nn.Linear(3, 5), nn.Linear(5, 1), off

        def forward(self, x):
            return self.b(F.relu(self.a(x)).flatten(1).unsqueeze(0).squeeze(0))

    module = Rough(0).half()
    module.b.register_forward_hook(lambda m, i, o: o + 1e-3)  # less than half precision shows
    with pytest.raises(ValueError, match="computes something else"):
        from_torch(module)
    small = branch(3, 5, 1).double()
    with torch.no_grad():
        small[2].weight.mul_(1e-12)
        small[2].bias.zero_()
    assert from_torch(small).n_neurons == 5
    small[0].register_forward_hook(lambda m, i, o: -o)
    with pytest.raises(ValueError, match="computes something else"):
        from_torch(small)


# ---- files and the command line --------------------------------------------------------------------


def test_files_of_modules_are_certified_by_the_command_line(tmp_path, capsys):
    rows = "\n".join(",".join(f"{v:.17g}" for v in (*x, y)) for x, y in zip(X, Y, strict=True))
    (tmp_path / "data.csv").write_text(f"a,b,c,y\n{rows}\n")
    for k, module in enumerate((normalised("before"), branch(3, 2, 1, 1), layer("gated", 3).to_torch())):
        torch.save(module, tmp_path / f"{k}.pt")
        call = ["certify", str(tmp_path / f"{k}.pt"), str(tmp_path / "data.csv"), "--target", "y", "--beta", "0.1"]
        assert main([*call, "--method", "local", "--time-limit", "1", "--json", "--seed", "0"]) == 0
        report = json.loads(capsys.readouterr().out)
        network = from_torch(module)
        expected = BatchNorm.of(network).stated(network.restated(X)).objective(X, Y, beta=0.1)
        assert report["objective"] == pytest.approx(expected, rel=1e-9)
        assert report["lower_bound"] <= report["objective"]
    assert main(["info", str(tmp_path / "0.pt")]) == 0
    assert "BatchNormNetwork(3 inputs" in capsys.readouterr().out


def test_a_normalised_module_is_verified_as_it_was_certified(tmp_path, capsys):
    np.savez(tmp_path / "d.npz", X=X, y=Y)
    module = normalised("before")
    certify(module, X, Y, beta=0.1, time_limit=2, random_state=0).save(tmp_path / "c.json")
    from_torch(module).save(tmp_path / "m.json")
    assert load(tmp_path / "m.json").n_neurons == 5
    call = ["verify", str(tmp_path / "c.json"), str(tmp_path / "d.npz"), "--model", str(tmp_path / "m.json")]
    assert main(call) == 0
    assert "PROVEN" in capsys.readouterr().out


def test_the_state_of_other_modules_is_not_enough(tmp_path):
    for module in (normalised("before"), branch(3, 2, 2, 1)):
        torch.save(module.state_dict(), tmp_path / "state.pt")
        with pytest.raises(ValueError, match="not the weights of two linear layers: save the module itself"):
            from_torch_file(tmp_path / "state.pt")
    torch.save(Sum([branch(3, 2, 1)]), tmp_path / "own.pt")
    with pytest.raises(ValueError, match="cannot be read safely"):
        from_torch_file(tmp_path / "own.pt")

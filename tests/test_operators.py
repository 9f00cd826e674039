"""The operators of large problems: products against their definition, blocks against plain formulas."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bidual._util.tuning import tuned
from bidual.losses import Huber, Logistic, Softmax, Squared, SquaredHinge
from bidual.programs.gated import block as on
from bidual.programs.gated.block import Block, Setting
from bidual.programs.gated.products import ByteProducts, MatrixProducts, numpy_products, pack_gates
from bidual.programs.gated.shards import LocalShards
from bidual.programs.gated.sources import LocalSource


def plain(M, active, W, V):
    """The two products as defined."""
    D = active.astype(float)
    return np.einsum("ni,nf,ifc->nc", D, M, W), np.einsum("ni,nf,nc->ifc", D, M, V)


def torch_products(M, bits, n_gates):
    pytest.importorskip("torch")
    from bidual.programs.gated.torch import TorchBackend

    return TorchBackend("cpu")(M, bits, n_gates, 1)


@pytest.mark.parametrize("make", [ByteProducts, MatrixProducts, torch_products])
@pytest.mark.parametrize(("dtype", "tol"), [(np.float32, 3e-6), (np.float64, 1e-14)])
@given(
    n=st.integers(1, 70),
    p=st.integers(1, 9),
    C=st.integers(1, 20),
    P=st.integers(1, 19),
    seed=st.integers(0, 1000),
)
def test_products_are_those_of_the_definition(make, dtype, tol, n, p, C, P, seed):
    rng = np.random.default_rng(seed)
    M, W, V = rng.standard_normal((n, p)), rng.standard_normal((P, p, C)), rng.standard_normal((n, C))
    active = rng.random((n, P)) < rng.random()
    F, G = plain(M, active, W, V)
    products = make(M.astype(dtype), pack_gates(active), P)
    for found, wanted in ((products.outputs(W.astype(dtype)), F), (products.correlations(V.astype(dtype)), G)):
        assert found.dtype == dtype
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=0, atol=tol * max(1.0, np.abs(wanted).max()))


def test_long_rows_are_taken_in_tiles():
    rng = np.random.default_rng(0)
    M, W, V = rng.standard_normal((40, 150)), rng.standard_normal((9, 150, 5)), rng.standard_normal((40, 5))
    active = rng.random((40, 9)) < 0.5
    F, G = plain(M, active, W, V)
    products = numpy_products(M, pack_gates(active), 9, 5)
    assert isinstance(products, ByteProducts)
    np.testing.assert_allclose(products.outputs(W), F, atol=1e-12)
    np.testing.assert_allclose(products.correlations(V), G, atol=1e-12)


def test_outputs_and_correlations_are_adjoint():
    rng = np.random.default_rng(1)
    M, W, V = rng.standard_normal((300, 7)), rng.standard_normal((33, 7, 6)), rng.standard_normal((300, 6))
    products = ByteProducts(M, pack_gates(rng.random((300, 33)) < 0.4), 33)
    assert np.vdot(products.outputs(W), V) == pytest.approx(np.vdot(W, products.correlations(V)), rel=1e-12)


def make_setting(rng, d, C, loss, bias=True, **kw):
    gates = rng.standard_normal((11, d + bias))
    options = {"unit": 1.7, "shift": np.zeros(C), "outputs": 1.0, **kw}
    return Setting(gates=gates, loss=loss, bias=bias, **options)


def targets(rng, loss, n, C):
    if isinstance(loss, Softmax):
        return np.eye(C)[rng.integers(C, size=n)]
    return np.where(rng.random((n, C)) < 0.5, -1.0, 1.0) if loss.classification else rng.standard_normal((n, C))


LOSSES = [Squared(), Huber(0.4), Softmax(), Logistic(), SquaredHinge()]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize("bias", [True, False])
def test_sums_over_blocks_are_those_of_all_rows(loss, bias):
    rng = np.random.default_rng(2)
    n, d, C = 60, 4, 5
    X, Y, w = rng.standard_normal((n, d)), targets(rng, loss, n, C), rng.uniform(0.1, 1.0, n)
    w /= w.sum()
    setting = make_setting(rng, d, C, loss, bias)
    W, b = rng.standard_normal((11, d + bias, C)), rng.standard_normal(C)
    shards = LocalShards([Block(X[k::3], Y[k::3], w[k::3], setting) for k in range(3)])
    handle = shards.map(on.outputs, W=W, intercept=b)
    value, G, g = shards.reduce(on.gradient, handle)
    M = np.column_stack([X, np.ones(n)]) if bias else X
    active = M @ setting.gates.T >= 0
    F = plain(M / 1.7, active, W, np.zeros((n, C)))[0] + b
    V = loss.gradient(F, Y, w)
    assert value == pytest.approx(loss.value(F, Y, w), rel=1e-12)
    np.testing.assert_allclose(G, plain(M / 1.7, active, W, V)[1], atol=1e-13)
    np.testing.assert_allclose(g, V.sum(axis=0), atol=1e-14)
    # the dual point of all rows, centred, from moments of the blocks
    parts = shards.map(on.dual_point, handle)
    moments = shards.reduce(on.moments, parts)[0]
    centred = shards.gather(on.centred, parts, moments=moments)
    whole = loss.dual_point(-V, Y, w, centred=True)
    for k in range(3):
        np.testing.assert_allclose(centred[k], whole[k::3], atol=1e-14)
    assert abs(sum(part.sum(axis=0) for part in centred)).max() < 1e-14
    shards.close()


@pytest.mark.parametrize("loss", [Squared(), Softmax()], ids=lambda loss: loss.name)
def test_the_curvature_of_a_sample_is_right_on_average(loss):
    rng = np.random.default_rng(3)
    n, C = 400, 3
    setting = make_setting(rng, 2, C, loss)
    block = Block(rng.standard_normal((n, 2)), targets(rng, loss, n, C), np.full(n, 1.0 / n), setting)
    F = 3.0 * rng.standard_normal((n, C))
    exact = loss.curvature(F, block.Y, block.w).sum(axis=0)

    def drawn(seed, count):
        H = on.sample(block, F, count=count, seed=seed)[2]
        return (np.einsum("naa->a", H) if H.ndim == 3 else H.sum(axis=0)), len(H)

    means = np.mean([drawn(seed, 0.2)[0] for seed in range(300)], axis=0)
    np.testing.assert_allclose(means, exact, rtol=0.03)
    everything, m = drawn(0, 100.0)
    assert m == n
    np.testing.assert_allclose(everything, exact, rtol=1e-12)


def test_a_block_travels_without_what_it_can_compute_again():
    rng = np.random.default_rng(4)
    setting = make_setting(rng, 6, 3, Softmax())
    block = Block(rng.standard_normal((500, 6)).astype(np.float32), np.eye(3)[[0] * 500], np.full(500, 2e-3), setting)
    before = len(pickle.dumps(block))
    first = block.products().outputs(np.ones((11, 7, 3), dtype=np.float32))
    assert len(pickle.dumps(block)) == before
    again = pickle.loads(pickle.dumps(block)).products().outputs(np.ones((11, 7, 3), dtype=np.float32))
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize("keep", [True, False])
@tuned(block_rows=7)
def test_every_row_is_in_one_block(keep):
    rng = np.random.default_rng(5)
    X = np.arange(40.0).reshape(20, 2)
    w = np.full(20, 0.05)
    w[3] = 0.0
    shards = LocalSource(X).shards(rng.random((20, 1)), w, make_setting(rng, 2, 1, Squared(), keep=keep))
    rows = np.concatenate([np.asarray(block.X) for block in shards.blocks])
    assert shards.n_blocks == 3
    assert sorted(rows[:, 0]) == sorted(np.delete(X[:, 0], 3))
    shards.close()

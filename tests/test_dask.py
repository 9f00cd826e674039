"""Rows on a cluster: the same network, a worker that dies, cross-validation by joblib."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest
from sklearn.datasets import make_classification

from bidual import PrincipalAxes, ReLUClassifier, ReLUClassifierCV

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

KW = {"beta": 1e-2, "activation": "gated", "n_patterns": 16, "random_state": 0, "tol": 1e-3}


def classes(n=400):
    X, y = make_classification(n, 6, n_informative=4, n_redundant=0, n_classes=4, random_state=0)
    return X.astype(np.float32), y


@pytest.fixture(scope="module")
def client():
    """Two workers that are threads of this process: quick to start."""
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def test_the_network_is_that_of_the_rows_in_one_place(client):
    X, y = classes()
    near = ReLUClassifier(backend="numpy", **KW).fit(X, y)
    far = ReLUClassifier(**KW).fit(da.from_array(X, chunks=(100, 3)), da.from_array(y, chunks=100))
    assert far.gap_ <= 1e-3
    assert far.objective_ == pytest.approx(near.objective_, rel=1e-3)
    assert far.n_features_in_ == 6
    Y = np.eye(4)[y]
    value = far.network_.objective(X.astype(float), Y, beta=1e-2, loss="softmax")
    assert far.objective_ == pytest.approx(value, rel=1e-12)
    np.testing.assert_array_equal(far.classes_, near.classes_)


def test_gates_are_trained_where_the_rows_are(client):
    X, y = classes()
    near = ReLUClassifier(gates="trained", **KW).fit(X, y)
    far = ReLUClassifier(gates="trained", **KW).fit(da.from_array(X, chunks=(100, 6)), y)
    assert far.gap_ <= 1e-3
    assert far.certificate_.n_patterns == near.certificate_.n_patterns
    assert far.objective_ == pytest.approx(near.objective_, rel=0.1)  # workers train apart, and meet after every pass


def test_beta_is_chosen_where_the_rows_are(client):
    X, y = classes()
    kw = {"betas": [0.3, 0.03], "cv": 2, "activation": "gated", "n_patterns": 8, "random_state": 0, "tol": 1e-2}
    far = ReLUClassifierCV(**kw).fit(da.from_array(X, chunks=(100, 6)), da.from_array(y, chunks=100))
    assert far.scores_.shape == (2, 2)
    assert far.gap_ <= 1e-2


def test_workers_are_left_as_they_were(client):
    X, y = classes()
    ReLUClassifier(**KW).fit(da.from_array(X, chunks=(100, 6)), y)
    running = client.run(lambda dask_worker: dask_worker.periodic_callbacks["profile"].is_running())
    assert all(running.values())


def test_weights_and_unknown_chunks(client):
    X, y = classes()
    weight = np.arange(len(y)) % 3
    lazy = da.from_array(X, chunks=(150, 6))
    unknown = lazy[da.from_array(np.ones(len(X), dtype=bool), chunks=150)]
    near = ReLUClassifier(backend="numpy", **KW).fit(X, y, weight)
    far = ReLUClassifier(**KW).fit(unknown, y, weight)
    assert far.objective_ == pytest.approx(near.objective_, rel=2e-3)


def test_principal_axes_of_a_dask_array(client):
    X, _ = classes()
    lazy = da.from_array(X, chunks=(150, 3))
    axes = PrincipalAxes(4)
    near = axes.fit_transform(X)
    far = axes.fit(lazy).transform(lazy)
    assert far.shape == near.shape
    np.testing.assert_allclose(np.abs(far.compute()), np.abs(near), atol=1e-4)


def test_bad_input(client):
    X, y = classes(60)
    lazy = da.from_array(X, chunks=(30, 6))
    with pytest.raises(ValueError, match="activation='gated'"):
        ReLUClassifier().fit(lazy, y)
    with pytest.raises(ValueError, match="60 rows, y has 59"):
        ReLUClassifier(**KW).fit(lazy, y[:-1])
    with pytest.raises(ValueError, match="NaN"):
        ReLUClassifier(**KW).fit(da.where(lazy > 2, np.nan, lazy), y)


def test_without_a_cluster_the_message_says_what_to_do(monkeypatch):
    def nobody():
        raise ValueError("No global client found")

    monkeypatch.setattr("bidual.programs.gated.dask.get_client", nobody)
    X, y = classes(60)
    with pytest.raises(ValueError, match=r"there is no cluster: make one first, client = dask.distributed.Client\(\)"):
        ReLUClassifier(**KW).fit(da.from_array(X, chunks=(30, 6)), y)


def test_folds_on_the_cluster(client):
    import joblib

    X, y = classes(120)
    kw = {"betas": [0.1, 0.03], "cv": 2, "tol": 1e-2, "random_state": 0, "activation": "relu"}
    here = ReLUClassifierCV(**kw, loss="squared").fit(X, y % 2)
    with joblib.parallel_config("dask"):
        there = ReLUClassifierCV(**kw, loss="squared", n_jobs=2).fit(X, y % 2)
    np.testing.assert_array_equal(there.scores_, here.scores_)


@pytest.mark.slow
def test_a_worker_that_dies_does_not_lose_the_fit(tmp_path):
    X, y = classes(3000)
    near = ReLUClassifier(backend="numpy", **KW).fit(X, y)
    killed = []

    def kill(client):
        time.sleep(2.0)
        pid = next(iter(client.run(os.getpid).values()))
        os.kill(pid, signal.SIGKILL)
        killed.append(pid)

    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):
        lazy = da.from_array(X, chunks=(500, 6))
        ReLUClassifier(**{**KW, "tol": 0.5}).fit(lazy, y)  # workers have loaded everything
        thread = threading.Thread(target=kill, args=(client,))
        thread.start()
        far = ReLUClassifier(**{**KW, "tol": 1e-4}).fit(lazy, y)
        assert killed  # in the middle of it
        thread.join()
    assert far.gap_ <= 1e-4
    assert far.objective_ <= near.objective_ * (1 + 1e-4)

"""Time limits, interruptions and what is left when they strike."""

from __future__ import annotations

import signal
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from bidual import ReLUClassifier, ReLURegressor

from .helpers import (
    X_LINE,
    Y_LINE,
    gap_may_stay_open,
    gaussian_problem,
    plain_objective,
    within,
)

#: Seconds after which a fit hangs, however busy the machine.
HANGING = 300.0


def exact(beta=0.02, **kw):
    return ReLURegressor(beta, method="exact", **kw)


@pytest.mark.parametrize("loss", ["squared", "absolute"])
@pytest.mark.parametrize("limit", [{"time_limit": 0.0}, {"time_limit": 1e-6}, {"max_iter": 1}], ids=str)
@pytest.mark.parametrize("shape", [(6, 2), (25, 2)], ids=["one program", "working set"])
def test_an_impatient_fit_returns_a_network_with_a_true_gap_and_a_warning(loss, limit, shape):
    X, y, _ = gaussian_problem(6, *shape)
    truth = exact(0.02, loss=loss, tol=1e-6).fit(X, y)
    with within(HANGING), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        est = exact(0.02, loss=loss, **limit).fit(X, y)
    assert est.objective_ >= truth.lower_bound_
    assert est.lower_bound_ <= truth.objective_
    # a fast machine may be done in no time
    assert bool(caught) == (est.likely_gap_ > est.tol_)
    assert bool(caught) or "max_iter" not in limit
    assert est.objective_ == pytest.approx(plain_objective(est.network_, X, y, 0.02, loss, delta=1.0), rel=1e-9)
    assert np.isfinite(est.predict(X)).all()


@pytest.mark.parametrize("loss", ["logistic", "hinge", "squared_hinge"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_an_impatient_classifier_returns_a_network_with_a_true_gap_and_a_warning(loss, n_classes):
    X = gaussian_problem(6, 9, 2)[0]
    y = np.arange(9) % n_classes
    with within(HANGING), pytest.warns(ConvergenceWarning, match=r"gap .* is above tol"):
        est = ReLUClassifier(0.02, loss=loss, method="exact", max_iter=1).fit(X, y)
    with gap_may_stay_open():
        truth = ReLUClassifier(0.02, loss=loss, method="exact").fit(X, y)
    assert est.objective_ >= truth.lower_bound_
    assert est.lower_bound_ <= truth.objective_
    assert np.isfinite([est.objective_, est.lower_bound_]).all()


def test_an_impatient_interpolation_does_not_claim_to_fit():
    with within(HANGING), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            est = exact(0.0, max_iter=1).fit(X_LINE, Y_LINE)
        except (ValueError, RuntimeError):
            return  # refusing is honest too
    assert any(issubclass(w.category, ConvergenceWarning) for w in caught)
    residual = np.abs(est.predict(X_LINE) - Y_LINE).max()
    assert residual < 1e-5 or not est.gap_ < 1.0
    assert est.n_neurons_ > 0  # the best there is, not an empty network


def test_a_certificate_can_be_saved_whatever_the_outcome(tmp_path):
    with gap_may_stay_open():
        est = exact(0.0, max_iter=1).fit(X_LINE, Y_LINE)
    assert est.certificate_.save(tmp_path / "c.json").exists()


def test_control_c_during_training_returns_the_best_network_so_far(monkeypatch):
    from bidual.training.train import TrainingSet

    train = TrainingSet.train

    def pressed(self, *args, **options):
        signal.raise_signal(signal.SIGINT)
        return train(self, *args, **options)

    monkeypatch.setattr(TrainingSet, "train", pressed)
    before = signal.getsignal(signal.SIGINT)
    X, y, _ = gaussian_problem(6)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        est = exact().fit(X, y)
    assert 0 <= est.lower_bound_ <= est.objective_
    assert signal.getsignal(signal.SIGINT) is before


def test_an_enumeration_that_cannot_be_is_refused_with_its_numbers():
    X = np.random.default_rng(0).standard_normal((300, 20))
    with within(HANGING), pytest.raises(ValueError, match=r"300 distinct rows of rank 21.*2,000,000"):
        exact().fit(X, X[:, 0])


def test_a_fit_that_runs_out_of_time_has_a_bound():
    X, y, _ = gaussian_problem(0, 40, 3)
    with within(HANGING), gap_may_stay_open():
        est = exact(1e-4, time_limit=0.5).fit(X, y)
    assert 0 <= est.lower_bound_ <= est.objective_

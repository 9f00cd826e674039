"""Claims that are false though every field looks right: refused by the independent checker, and by ``verify``."""

from __future__ import annotations

import copy
import json
import warnings

import numpy as np
import pytest

from bidual import BatchNorm, Parallel, ReLURegressor
from bidual.bounds import Certificate, ContradictionError
from bidual.certification import check_certificate, refusal
from bidual.certification.check_certificate import check
from bidual.losses import ExactFit, Margin, Tube
from bidual.networks import Network, ParallelNetwork

rng = np.random.default_rng(0)
X = rng.standard_normal((8, 2))
Y = np.abs(X[:, 0]) + 0.3


def fitted(inputs=X, **options):
    """Certificate and network as their files hold them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        est = ReLURegressor(**{"beta": 0.05, "random_state": 0, "fit_intercept": False, **options}).fit(inputs, Y)
    return tuple(json.loads(json.dumps(made.to_dict())) for made in (est.certificate_, est.network_))


def verified(data, inputs, model=None):
    """Whether the library accepts a claim: errors are no acceptance."""
    try:
        network = None if model is None else Network.from_dict(copy.deepcopy(model))
        with np.errstate(all="ignore"):
            return refusal(Certificate.from_dict(data), inputs, Y, None, network) is None
    except (ValueError, ContradictionError):
        return False


def claiming(data, objective, lower=None):
    """The same certificate with other numbers that agree."""
    lower = min(data["lower_bound"], objective) if lower is None else lower
    gap = (objective - lower) / objective
    numbers = {"objective": objective, "lower_bound": lower, "likely_bound": lower, "gap": gap, "likely_gap": gap}
    return {**copy.deepcopy(data), **numbers, "rescaled_objective": None}


def zero_is_optimal(inputs, factor=1.0, kind="norms"):
    """That the network of zeros is optimal, by the dual point of its residual times ``factor``."""
    order, size = np.lexsort(inputs.T[::-1]), np.sqrt(np.mean(Y**2))
    data, _ = fitted(bias=False, beta=0.001, prove=False)
    data["evidence"] |= {
        "V": (factor * Y[order] / size / len(Y))[:, None].tolist(),
        "scale": 1 / factor,
        "proof": {"kind": kind},
    }
    return {**claiming(data, float(0.5 * np.mean(Y**2)), float(0.5 * np.mean(Y**2))), "limit": None, "attained": None}


@pytest.mark.parametrize("kind", ["norms", "patterns"])
@pytest.mark.parametrize("factor", [1e-200, 1e-170, 1e-100, 1.0, 1e170])
def test_a_dual_point_whose_squares_underflow_proves_nothing(factor, kind):
    data = zero_is_optimal(X, factor, kind)
    assert not check(data, X, Y)[0]
    assert not verified(data, X)


@pytest.mark.parametrize("size", [1e-310, 1e-200, 1e200, 1e308])
def test_features_that_overflow_are_not_nothing(size):
    inputs = np.clip(X, -1, 1) * size
    data = zero_is_optimal(inputs)
    assert not check(data, inputs, Y)[0]
    assert not verified(data, inputs)


def test_complex_numbers_are_no_data():
    data, _ = fitted()
    assert check(data, X, Y)[0]
    assert not check(data, X + 1j, Y)[0]


def test_a_network_that_does_not_fit_is_no_exact_fit_whatever_the_file_tolerates():
    data, model = fitted(beta=0, method="exact")
    assert check(data, X, Y, None, model)[0]
    hidden = np.array(model["weights"]["hidden_weights"])
    model["weights"]["hidden_weights"] = hidden[:, ::-1].tolist()
    data["evidence"]["loss"]["tol"] = 1e10
    assert not check(data, X, Y, None, model)[0]
    assert not verified(data, X, model)


@pytest.mark.parametrize("loss", [ExactFit, Margin, Tube])
@pytest.mark.parametrize("tol", [-1.0, 0.1, np.inf, np.nan])
def test_tolerances_of_exact_fits_are_small(loss, tol):
    with pytest.raises(ValueError, match="tol of an exact fit"):
        loss(tol=tol)


def normalised(model, **weights):
    """A network of one neuron that is normalised before the ReLU."""
    plain = {"hidden_bias": [0.0], "intercept": None, "output_weights": [[1.0]]}
    return {**model, "weights": {**model["weights"], **plain, **weights}}


def objective(model, inputs):
    network = Network.from_dict(copy.deepcopy(model))
    return float(0.5 * np.mean((np.ravel(network.predict(inputs)) - Y) ** 2) + 0.05 * network.penalty())


@pytest.mark.parametrize("normalisation", ["norm", "std"])
def test_shifts_are_not_cheaper_for_a_network_that_says_it_has_seen_fewer_rows(normalisation):
    data, model = fitted(architecture=BatchNorm(normalisation=normalisation))
    column, rows = X[:, 0], 1 if normalisation == "std" else len(X)
    forged = normalised(
        model, hidden_weights=[[1.0, 0.0]], gamma=[0.0], shift=[0.01], mean=[column.mean()],
        norm=[np.sqrt(rows) * column.std()], output_weights=[[0.01]], n_samples=1e-6,
    )  # fmt: skip
    forged = json.loads(json.dumps(forged))
    honest = copy.deepcopy(forged)
    honest["weights"]["n_samples"] = rows
    assert check(claiming(data, objective(honest, X)), X, Y, None, honest)[0]
    claim = claiming(data, objective(forged, X))
    assert not check(claim, X, Y, None, forged)[0]
    assert not verified(claim, X, forged)


def test_a_file_that_does_not_say_how_it_normalises_does_so_by_norms():
    for normalisation in ("norm", "std"):
        data, model = fitted(architecture=BatchNorm(normalisation=normalisation))
        assert check(data, X, Y, None, model)[0]
        for other in ("deviation", True, None, ["norm"]):
            data["evidence"]["options"]["normalisation"] = other
            assert not check(data, X, Y)[0]
            assert not verified(data, X)
        del data["evidence"]["options"]["normalisation"]
        assert check(data, X, Y, None, model)[0] == verified(data, X, model) == (normalisation == "norm")


def test_a_norm_of_rounding_makes_no_neuron_of_a_constant():
    data, model = fitted(architecture="batch_norm")
    off = 32 * 2.0**-53
    forged = normalised(
        model, hidden_weights=[[0.0, 0.0]], hidden_bias=[1.0], gamma=[0.1], shift=[0.0], mean=[1 - off], norm=[1e-15]
    )
    forged["weights"]["output_weights"] = [[0.1]]
    claim = claiming(data, objective(forged, X))
    assert not check(claim, X, Y, None, forged)[0]
    assert not verified(claim, X, forged)


def test_means_are_those_of_the_data_in_units_of_their_deviation():
    inputs = X + np.array([1e6, 0.0])
    data, model = fitted(inputs, architecture="batch_norm")
    assert check(data, inputs, Y, None, model)[0]
    mean, norm = inputs[:, 0].mean(), np.linalg.norm(inputs[:, 0] - inputs[:, 0].mean())
    forged = normalised(model, hidden_weights=[[1.0, 0.0]], gamma=[norm], shift=[0.0], mean=[mean - 0.9], norm=[norm])
    assert not check(claiming(data, objective(forged, inputs)), inputs, Y, None, forged)[0]


def test_white_features_that_rounding_has_changed_are_charged():
    # the columns span what (a, b) span, whose optimum is below .31423; as they stand their SVD loses four digits
    draws = np.random.default_rng(3).standard_normal((10, 2))
    inputs = np.column_stack([draws[:, 0], draws[:, 0] + 1e-13 * draws[:, 1]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        targets = np.abs(draws[:, 1])
        est = ReLURegressor(beta=0.05, architecture="batch_norm", random_state=0)
        data = json.loads(json.dumps(est.fit(inputs, targets).certificate_.to_dict()))
        exact = np.column_stack([inputs[:, 0], inputs[:, 1] - inputs[:, 0]])
        true = est.fit(exact, targets).objective_
    assert not check(claiming(data, true * (1 + 2e-4), true * (1 + 2e-4)), inputs, targets)[0]


def test_path_norms_do_not_underflow():
    data, model = fitted(architecture=Parallel(1), bias=False)
    forged, factors = copy.deepcopy(model), {"layer_1": 1e-170, "layer_2": 1e150, "layer_3": 1e20}
    for name, factor in factors.items():
        forged["weights"][name] = (factor * np.array(model["weights"][name])).tolist()
    honest, scaled = Network.from_dict(copy.deepcopy(model)), Network.from_dict(copy.deepcopy(forged))
    assert isinstance(scaled, ParallelNetwork)
    assert scaled.penalty() == pytest.approx(honest.penalty(), rel=1e-12)
    loss = data["objective"] - 0.05 * honest.penalty()
    for claim in (claiming(data, loss), claiming(data, loss + 1.01 * (data["lower_bound"] - loss))):
        assert not check(claim, X, Y, None, forged)[0]
        assert not verified(claim, X, forged)


def test_a_bound_is_not_lost_beside_the_units_of_the_targets():
    data, model = fitted(beta=1e-15, prove=False, max_iter=50)
    hidden = np.array(model["weights"]["hidden_weights"])
    model["weights"]["hidden_weights"] = (hidden * (1 + 2e-7)).tolist()
    network = Network.from_dict(copy.deepcopy(model))
    worse = float(0.5 * np.mean((np.ravel(network.predict(X)) - Y) ** 2) + 1e-15 * network.penalty())
    assert worse < 1e-12
    claim = claiming(data, worse, worse)
    assert not check(claim, X, Y, None, model)[0]
    assert not verified(claim, X, model)


def test_no_value_of_the_constraint_is_negative():
    data, _ = fitted()
    data["attained"] = -data["attained"]
    assert not check(data, X, Y)[0]
    assert not verified(data, X)


def test_a_field_that_is_there_twice_is_not_read(tmp_path, capsys):
    data, _ = fitted()
    text = json.dumps(data)
    (tmp_path / "c.json").write_text(text[:-1] + ', "lower_bound": 0.0}')
    np.savetxt(tmp_path / "d.csv", np.column_stack([X, Y]), delimiter=",", header="a,b,y", comments="", fmt="%.17g")
    assert check_certificate.main([str(tmp_path / "c.json"), str(tmp_path / "d.csv")]) == 2
    assert "twice" in capsys.readouterr().err


def test_a_bound_on_relu_networks_is_none_on_networks_with_gates():
    data, _ = fitted(method="exact")
    gated, _ = fitted(activation="gated", method="exact", tol=1e-6)
    assert gated["objective"] < data["lower_bound"]
    assert check({**data, "scope": "patterns"}, X, Y)[0]
    for scope in ("gates", "whitened", "parallel", "patterns, gates", "", "all"):
        assert not check({**data, "scope": scope}, X, Y)[0]
        assert not verified({**data, "scope": scope}, X)


def test_a_proof_may_be_about_no_pattern_at_all():
    # a gated network whose gates all went away: what is left is the intercept
    assert check_certificate.bits({"shape": [0, 8], "bits": ""}).shape == (0, 8)
    evidence = {
        "architecture": "two_layer",
        "options": {},
        "bias": False,
        "proof": {"kind": "gates", "active": {"shape": [0, 8], "bits": ""}},
    }
    problem = check_certificate.Problem(evidence, X, np.full(8, 0.125), X, None, Y[:, None])
    g, scope = check_certificate.constraint(problem, 0.0)
    assert scope == "gates"
    assert 0 <= g <= 1e-12

"""Certificate files: reading them, the command line, losses and architectures of users."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest

from bidual import Convolutional, ReLURegressor
from bidual.bounds import Certificate
from bidual.certification import check_certificate
from bidual.certification.check_certificate import check
from bidual.cli import main
from bidual.losses import Squared

rng = np.random.default_rng(1)
X = rng.standard_normal((12, 2))
Y = np.abs(X[:, 0]) + 0.1 * rng.standard_normal(12)


def fitted(**options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ReLURegressor(**{"beta": 0.05, "random_state": 0, **options}).fit(X, Y)


@pytest.fixture(scope="module")
def honest():
    return json.loads(json.dumps(fitted().certificate_.to_dict()))


DAMAGE = {
    "no object": lambda d: [],
    "V of text": lambda d: {**d, "evidence": {**d["evidence"], "V": "x"}},
    "V ragged": lambda d: {**d, "evidence": {**d["evidence"], "V": [[1.0], [1.0, 2.0]]}},
    "V of strings": lambda d: {**d, "evidence": {**d["evidence"], "V": [["a"]]}},
    "V flat": lambda d: {**d, "evidence": {**d["evidence"], "V": [1.0, 2.0]}},
    "V of NaN": lambda d: {**d, "evidence": {**d["evidence"], "V": [[float("nan")]]}},
    "V of huge integers": lambda d: {**d, "evidence": {**d["evidence"], "V": [[10**400]]}},
    "a huge bound": lambda d: {**d, "lower_bound": 10**400},
    "a bound that is true": lambda d: {**d, "lower_bound": True},
    "a bound of text": lambda d: {**d, "lower_bound": "much"},
    "beta of text": lambda d: {**d, "beta": "a"},
    "scope of numbers": lambda d: {**d, "scope": 3},
    "an unknown scope": lambda d: {**d, "scope": "universal"},
    "no beta": lambda d: {k: v for k, v in d.items() if k != "beta"},
    "no proof": lambda d: {**d, "evidence": {k: v for k, v in d["evidence"].items() if k != "proof"}},
    "a proof of text": lambda d: {**d, "evidence": {**d["evidence"], "proof": "trust me"}},
    "an unknown proof": lambda d: {**d, "evidence": {**d["evidence"], "proof": {"kind": "oracle"}}},
    "an unstored proof": lambda d: {**d, "evidence": {**d["evidence"], "proof": {"kind": "formula"}}},
    "an unknown loss": lambda d: {**d, "evidence": {**d["evidence"], "loss": {"name": "mine"}}},
    "a loss with other parameters": lambda d: {**d, "evidence": {**d["evidence"], "loss": {"name": "huber", "tau": 1}}},
    "cones without a limit": lambda d: {**d, "evidence": {**d["evidence"], "proof": {"kind": "cones", "cones": 1}}},
    "cones below zero": lambda d: {
        **d, "evidence": {**d["evidence"], "proof": {"kind": "cones", "cones": 1, "limit": -1.0}},
    },
    "bits of another shape": lambda d: {
        **d,
        "evidence": {**d["evidence"], "proof": {"kind": "gates", "active": {"shape": [3, 9], "bits": "AAAA"}}},
    },
    "bits that are none": lambda d: {
        **d, "evidence": {**d["evidence"], "proof": {"kind": "gates", "active": {"shape": [1, 8], "bits": "%"}}},
    },
    "evidence of numbers": lambda d: {**d, "evidence": 3},
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_certificate_is_refused_in_one_sentence(honest, damage):
    data = DAMAGE[damage](honest)
    with pytest.raises(ValueError, match=r"^(?!.*Traceback).{10,400}$"):
        Certificate.from_dict(data)
    assert not check(data, X, Y)[0]


@pytest.mark.parametrize("name", ["gap", "likely_gap"])
def test_a_gap_that_does_not_follow_from_the_bounds_is_refused_by_both(honest, name):
    data = {**honest, name: 0.5}
    assert not Certificate.from_dict(data).verify(X, Y)
    assert not check(data, X, Y)[0]


def test_a_deeply_nested_file_is_refused(tmp_path):
    path = tmp_path / "deep.json"
    path.write_text("[" * 100_000 + "]" * 100_000)
    with pytest.raises(ValueError, match="is not a certificate"):
        Certificate.load(path)


def test_a_certificate_without_evidence_cannot_be_verified():
    with pytest.raises(ValueError, match="its proof was not kept"):
        fitted().certificate_.without_evidence().verify(X, Y)


@pytest.mark.parametrize("y", [np.zeros(8), np.full(8, 3.0)], ids=["zeros", "constant"])
def test_a_sampled_training_with_nothing_to_learn_is_verified(y):
    X = np.random.default_rng(0).standard_normal((8, 2))
    est = ReLURegressor(0.1, method="sampled", n_patterns=6, random_state=0).fit(X, y)
    assert est.certificate_.scope == "global"  # the dual point zero needs no patterns
    assert est.certificate_.verify(X, y, model=est)


def test_the_bound_of_a_certificate_is_what_its_proof_evaluates_to():
    for options in ({}, {"method": "sampled", "n_patterns": 6}, {"activation": "gated"}, {"prove": False}):
        certificate = fitted(**options).certificate_
        limit = certificate.evidence.proof.bound
        assert callable(limit)
        assert certificate.verify(X, Y)


class Doubled(Squared):
    """A loss of a user: twice the squared one."""

    name = "doubled_in_test_verify"
    lipschitz = 2.0
    formula = False

    def rows(self, F, Y):
        return 2.0 * super().rows(F, Y)

    def row_gradients(self, F, Y):
        return 2.0 * super().row_gradients(F, Y)

    def row_curvatures(self, F, Y):
        return 2.0 * super().row_curvatures(F, Y)

    def row_conjugates(self, V, Y):
        return 2.0 * super().row_conjugates(V / 2.0, Y)

    def rescaled(self, t):
        return self, 2

    def dual_box(self, Y):
        return None

    def cone_form(self, Y, w):
        return None


def test_a_loss_of_a_user_is_verified_and_named_by_the_checker():
    est = fitted(loss=Doubled())
    data = json.loads(json.dumps(est.certificate_.to_dict()))
    assert Certificate.from_dict(data).verify(X, Y, model=est)
    proven, reason = check(data, X, Y)
    assert not proven
    assert "does not know the loss 'doubled_in_test_verify'" in reason


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = np.column_stack([X, Y])
    np.savetxt("d.csv", table, delimiter=",", header="a,b,y", comments="", fmt="%.17g")
    assert main(["fit", "d.csv", "--target", "y", "--beta", "0.05", "--out", "m.json", "--seed", "0", "--quiet"]) == 0
    return tmp_path


def test_verify_of_a_model_file_says_proven(files, capsys):
    capsys.readouterr()
    assert main(["verify", "m.json", "d.csv"]) == 0
    assert capsys.readouterr().out.startswith("PROVEN: ")


def test_verify_of_a_certificate_file_with_its_model(files, capsys):
    assert main(["certify", "m.json", "d.csv", "--out", "c.json", "--quiet"]) == 0
    capsys.readouterr()
    assert main(["verify", "c.json", "d.csv", "--model", "m.json", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["proven"]
    assert told["objective_checked"]


def test_verify_refuses_a_raised_bound_with_code_3(files, capsys):
    model = json.loads((files / "m.json").read_text())
    c = model["certificate"]
    c["lower_bound"] = c["likely_bound"] = c["objective"]
    c["gap"] = c["likely_gap"] = 0.0
    (files / "m.json").write_text(json.dumps(model))
    capsys.readouterr()
    assert main(["verify", "m.json", "d.csv"]) == 3
    assert capsys.readouterr().out.startswith("REFUSED: ")


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"certificate": 3}'])
def test_verify_says_what_is_wrong_with_a_bad_file_with_code_2(files, capsys, text):
    (files / "bad.json").write_text(text)
    capsys.readouterr()
    assert main(["verify", "bad.json", "d.csv", "--target", "y"]) == 2
    assert capsys.readouterr().err.startswith("bidual: error: ")


def test_verify_says_so_where_only_one_of_the_two_can_tell(files, capsys, monkeypatch):
    # as the independent checker answers where users have made a loss or an architecture of their own
    answer = f"{check_certificate.UNKNOWN}does not know the loss 'mine'"
    monkeypatch.setattr(check_certificate, "check", lambda *given: (False, answer))
    assert main(["verify", "m.json", "d.csv"]) == 0
    assert f"by bidual itself only: {answer}" in capsys.readouterr().out


def test_options_and_classes_that_nobody_trains_with_are_refused_without_a_crash():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((6, 4, 1)), rng.standard_normal((6, 2))
    est = ReLURegressor(0.1, architecture=Convolutional(2), random_state=0).fit(X, Y)
    evidence = est.certificate_.evidence
    huge = replace(evidence, options={**evidence.options, "padding": 10**9})
    assert not replace(est.certificate_, evidence=huge).verify(X, Y)
    with pytest.raises(ValueError, match="labels have one"):
        replace(est.certificate_, evidence=replace(evidence, classes=(0, 1))).verify(X, Y)


def test_a_bound_for_all_networks_is_one_for_fewer(honest):
    assert honest["scope"] == "global"
    data = {**honest, "scope": "patterns"}
    assert Certificate.from_dict(data).verify(X, Y)
    assert check(data, X, Y)[0]
    given = fitted(method="sampled", n_patterns=6).certificate_.to_dict()
    assert given["scope"] == "patterns"
    wider = {**given, "scope": "global"}
    assert not Certificate.from_dict(wider).verify(X, Y)
    assert not check(wider, X, Y)[0]

"""What the playground accepts and answers, as JSON Schema: the same objects check requests and describe the API."""

from __future__ import annotations

import math
from typing import Any

from bidual import losses

#: The part of the plane that is shown: x from, to; y from, to.
VIEW = {"x": [-3.0, 3.0], "y": [-2.0, 2.0]}
MAX_POINTS, MAX_BODY, LARGEST = 150, 32 * 1024, 100.0
#: The losses of each task; of classes those of the margin (for three classes the logistic one becomes softmax).
LOSSES = {
    task: [
        name
        for name, loss in losses.LOSSES.items()
        if loss.finite and not loss.coupled and loss.classification == (task == "classification")
    ]
    for task in ("regression", "classification")
}
ARCHITECTURES = ["two_layer", "batch_norm", "gated"]

_NUMBER = {"type": "number", "minimum": -LARGEST, "maximum": LARGEST}
_CLASS = {"type": "integer", "minimum": 0, "maximum": 2}
_POINTS = {"regression": [_NUMBER, _NUMBER], "classification": [_NUMBER, _NUMBER, _CLASS]}
_BETA = {"type": "number", "minimum": 1e-5, "maximum": 10.0}


def _problem(task: str) -> dict[str, Any]:
    columns = _POINTS[task]
    point = {"type": "array", "minItems": len(columns), "maxItems": len(columns), "prefixItems": columns}
    return {
        "task": {"type": "string", "enum": [task]},
        "points": {"type": "array", "minItems": 1, "maxItems": MAX_POINTS, "items": point},
        "loss": {"type": "string", "enum": LOSSES[task]},
        "architecture": {"type": "string", "enum": ARCHITECTURES, "default": "two_layer"},
        "bias": {"type": "boolean", "default": True},
    }


def _request(*required: str, **properties: Any) -> dict[str, Any]:
    """One form for each task."""
    return {
        "oneOf": [
            {
                "type": "object",
                "additionalProperties": False,
                "required": ["task", "points", "loss", *required],
                "properties": {**_problem(task), **properties},
            }
            for task in LOSSES
        ]
    }


FIT = _request("beta", beta=_BETA)
PATH = _request(n_betas={"type": "integer", "minimum": 2, "maximum": 20, "default": 12})
DESCENT = _request(
    "beta",
    beta=_BETA,
    width={"type": "integer", "minimum": 1, "maximum": 50, "default": 50},
    runs={"type": "integer", "minimum": 1, "maximum": 8, "default": 5},
    seed={"type": "integer", "minimum": 0, "maximum": 1_000_000, "default": 0},
    steps={"type": "integer", "minimum": 1, "maximum": 3000, "default": 1500},
    optimiser={"type": "string", "enum": ["adam", "sgd"], "default": "adam"},
    learning_rate={"type": "number", "minimum": 1e-4, "maximum": 1.0, "default": 0.02},
)

_NUMBERS = {"type": "array", "items": {"type": "number"}}
_SHAPE = {
    "description": "The function: y on the grid x (regression), or scores[class][row][column] (classification).",
    "type": "object",
    "properties": {
        "x": _NUMBERS,
        "y": _NUMBERS,
        "kinks": {"type": "array", "items": _NUMBERS},
        "scores": {"type": "array", "items": {"type": "array", "items": _NUMBERS}},
        "lines": {"type": "array", "items": _NUMBERS},
    },
}
_CERTIFICATE = {
    "type": "object",
    "required": ["objective", "lower_bound", "gap", "likely_bound", "likely_gap", "sentence", "method", "scope"],
    "properties": {
        "objective": {"type": "number"},
        "lower_bound": {"type": "number", "description": "Proven: no network of the scope has a lower objective."},
        "gap": {"type": "number", "minimum": 0, "description": "Relative distance of the two, proven."},
        "likely_bound": {"type": "number", "description": "The same as audited search believes."},
        "likely_gap": {"type": "number", "minimum": 0},
        "sentence": {"type": "string"},
        "method": {"type": "string"},
        "scope": {"type": "string"},
    },
}
FITTED = {
    "type": "object",
    "required": ["certificate", "n_neurons", "shape", "elapsed", "model"],
    "properties": {
        "certificate": _CERTIFICATE,
        "n_neurons": {"type": "integer", "minimum": 0},
        "shape": _SHAPE,
        "elapsed": {"type": "number", "minimum": 0},
        "model": {"type": "object", "description": "A model file as bidual.load reads it."},
    },
}
PATHS = {
    "type": "object",
    "required": ["betas", "n_neurons", "objectives", "likely_bounds", "shapes"],
    "properties": {
        "betas": _NUMBERS,
        "n_neurons": _NUMBERS,
        "objectives": _NUMBERS,
        "likely_bounds": _NUMBERS,
        "shapes": {"type": "array", "items": _SHAPE},
    },
}
OPTIONS = {
    "type": "object",
    "required": ["version", "view", "losses", "architectures", "max_points"],
    "properties": {
        "version": {"type": "string"},
        "view": {"type": "object"},
        "losses": {"type": "object"},
        "architectures": {"type": "array", "items": {"type": "string"}},
        "max_points": {"type": "integer"},
    },
}
ERROR = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}


class Invalid(ValueError):
    """A request that does not fit its schema; the message says where and why."""


def check(value: Any, schema: dict[str, Any], where: str = "the request") -> Any:
    """The value with defaults filled in; raises :class:`Invalid` unless it fits. Only what is used above is known."""
    if "oneOf" in schema:
        return check(value, _variant(value, schema["oneOf"], where), where)
    _CHECKS[schema["type"]](value, schema, where)
    if "enum" in schema and value not in schema["enum"]:
        raise Invalid(f"{where} must be one of {', '.join(schema['enum'])}")
    if schema["type"] == "array":
        items = schema.get("prefixItems") or [schema["items"]] * len(value)
        return [check(item, form, f"{where}[{k}]") for k, (item, form) in enumerate(zip(value, items, strict=True))]
    if schema["type"] == "object":
        known = schema["properties"]
        given = {k: check(v, known[k], k) for k, v in value.items()}
        return {**{k: s["default"] for k, s in known.items() if "default" in s}, **given}
    return int(value) if schema["type"] == "integer" else value


def _variant(value: Any, forms: list[dict[str, Any]], where: str) -> dict[str, Any]:
    """The form of the task that the request names."""
    if not isinstance(value, dict):
        raise Invalid(f"{where} must be an object")
    for form in forms:
        if value.get("task") in form["properties"]["task"]["enum"]:
            return form
    raise Invalid(f"task must be one of {', '.join(LOSSES)}")


def _is(kind: type | tuple[type, ...], noun: str) -> Any:
    def test(value: Any, schema: dict[str, Any], where: str) -> None:
        if not isinstance(value, kind):
            raise Invalid(f"{where} must be {noun}")

    return test


def _object(value: Any, schema: dict[str, Any], where: str) -> None:
    if missing := [name for name in schema["required"] if name not in value]:
        raise Invalid(f"{where} lacks {', '.join(missing)}")
    if unknown := [name for name in value if name not in schema["properties"]]:
        raise Invalid(f"{where} has an unknown entry {unknown[0][:40]!r}")


def _array(value: Any, schema: dict[str, Any], where: str) -> None:
    if not isinstance(value, list):
        raise Invalid(f"{where} must be an array")
    fewest, most = schema["minItems"], schema["maxItems"]
    if not fewest <= len(value) <= most:
        raise Invalid(f"{where} must have {fewest if fewest == most else f'{fewest} to {most}'} entries")


def _number(value: Any, schema: dict[str, Any], where: str) -> None:
    low, high = schema["minimum"], schema["maximum"]
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise Invalid(f"{where} must be a number from {low:g} to {high:g}")


def _integer(value: Any, schema: dict[str, Any], where: str) -> None:
    _number(value, schema, where)
    if not math.isclose(value, round(value), rel_tol=0.0, abs_tol=0.0):
        raise Invalid(f"{where} must be a whole number")


_CHECKS: dict[str, Any] = {
    "object": _object,
    "array": _array,
    "number": _number,
    "integer": _integer,
    "string": _is(str, "text"),
    "boolean": _is(bool, "true or false"),
}

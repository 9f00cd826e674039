"""The OpenAPI description of the playground, made from the schemas that check it."""

from __future__ import annotations

from typing import Any

import bidual
from bidual.playground import schema


def _json(body: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": body}}


def _errors(*codes: str) -> dict[str, Any]:
    words = {
        "400": "the body is not JSON, or the Host header names another machine",
        "403": "the request comes from another site",
        "408": "the body did not arrive in time",
        "413": "the body is too large",
        "415": "the body is not application/json",
        "422": "the entries are wrong or do not go together",
        "429": "too many requests at once",
    }
    return {code: {"description": words[code], "content": _json(schema.ERROR)} for code in codes}


def _post(name: str, summary: str, body: dict[str, Any], answer: dict[str, Any], content: str) -> dict[str, Any]:
    return {
        "post": {
            "operationId": name,
            "summary": summary,
            "requestBody": {"required": True, "content": _json(body)},
            "responses": {
                "200": {"description": "done", "content": {content: {"schema": answer}}},
                **_errors("400", "403", "408", "413", "415", "422", "429"),
            },
        }
    }


def description() -> dict[str, Any]:
    """The whole document."""
    json = "application/json"
    lines = {"type": "string", "description": "One JSON object per line: step, objectives, shapes; or error."}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "bidual playground",
            "version": bidual.__version__,
            "description": "Global optima of small ReLU networks, and gradient descent beside them.",
        },
        "paths": {
            "/api/options": {
                "get": {
                    "operationId": "options",
                    "summary": "What can be chosen, and the limits",
                    "responses": {
                        "200": {"description": "done", "content": _json(schema.OPTIONS)},
                        **_errors("400"),
                    },
                }
            },
            "/api/fit": _post("fit", "Train to the global optimum", schema.FIT, schema.FITTED, json),
            "/api/path": _post("path", "Train for a sequence of betas", schema.PATH, schema.PATHS, json),
            "/api/descent": _post(
                "descent", "Gradient descent from several seeds", schema.DESCENT, lines, "application/x-ndjson"
            ),
        },
    }

"""Models (scaling, network, labels) as ONNX files. Imported only when asked for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, numpy_helper

from bidual.networks.onnx_bridge import TYPES, Graph, body, save_graph

if TYPE_CHECKING:
    from bidual.models import Model


def write_model(path: str | os.PathLike[str], model: Model, dtype: str = "float64") -> Path:
    """A model on raw columns: outputs ``prediction (n,)``, ``scores (n, C)``, ``probabilities`` if there are any."""
    network, classes = model.network, model.target.classes
    graph = Graph(dtype, (network.n_inputs,) if model.input_shape is None else model.input_shape)
    x, kind = "x", TYPES[dtype]
    if model.centre is not None:
        x = graph.add("Sub", x, graph.constant(model.centre.reshape(graph.input_shape)))
    if model.scale is not None:
        x = graph.add("Div", x, graph.constant(model.scale.reshape(graph.input_shape)))
    scores = graph.add("Identity", body(network, graph, x), output="scores")
    outputs = [("scores", kind, ["n", network.n_outputs])]
    flat = graph.add("Squeeze", scores, graph.constant([1], np.int64)) if network.n_outputs == 1 else scores
    if classes is None:
        scaled = graph.add("Mul", flat, graph.constant(np.float64(model.target.scale)))
        graph.add("Add", scaled, graph.constant(np.float64(model.target.centre)), output="prediction")
        outputs.insert(0, ("prediction", kind, ["n"]))
    else:
        outputs.insert(0, ("prediction", _label(graph, flat, classes), ["n"]))
        if _probabilities(graph, flat, model):
            outputs.append(("probabilities", kind, ["n", len(classes)]))
    about = {"kind": network.kind, "features": ", ".join(model.feature_names), "target": model.target.name}
    return save_graph(path, graph, outputs, about)


def _label(graph: Graph, scores: str, classes: tuple[Any, ...]) -> int:
    """The label of the highest score, in the type of the labels."""
    if len(classes) == 2:
        above = graph.add("Greater", scores, graph.constant(np.zeros(())))
        code = graph.add("Cast", above, to=TensorProto.INT64)
    else:
        code = graph.add("ArgMax", scores, axis=1, keepdims=0)
    labels = np.array(classes)
    text = labels.dtype.kind not in "biuf"
    values = np.array([str(c) for c in classes], dtype=object) if text else labels
    name = f"c{len(graph.constants)}"
    graph.constants.append(numpy_helper.from_array(values, name))
    graph.add("Gather", name, code, output="prediction", axis=0)
    return int(graph.constants[-1].data_type)


def _probabilities(graph: Graph, scores: str, model: Model) -> bool:
    """Append class probabilities if the loss has them: logistic or softmax."""
    if model.training.loss.probabilities(np.zeros((1, model.network.n_outputs))) is None:
        return False
    if model.network.n_outputs == 1:
        column = graph.add("Unsqueeze", graph.add("Sigmoid", scores), graph.constant([1], np.int64))
        rest = graph.add("Sub", graph.constant(np.ones(())), column)
        graph.add("Concat", rest, column, output="probabilities", axis=1)
    else:
        graph.add("Softmax", scores, output="probabilities", axis=1)
    return True

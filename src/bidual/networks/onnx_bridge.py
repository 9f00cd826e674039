"""To and from ONNX. Imported only when asked for.

:func:`write` builds the graph of a network operator by operator, so that neither torch nor a converter is needed; a
kind of network adds itself by its method ``onnx_hidden``, or with ``body.register``. Whole models (scaling,
network, labels): :mod:`bidual.models_onnx`.
"""

from __future__ import annotations

import os
from functools import singledispatch
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from bidual._util.extras import advice

try:
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:  # pragma: no cover - depends on the installation
    raise ImportError(advice("this", "onnx", "onnx")) from error

from bidual._util.files import write_atomically
from bidual._util.typing import Array, FloatArray
from bidual._util.version import __version__
from bidual.networks.base import Network
from bidual.networks.batch_norm import BatchNormNetwork
from bidual.networks.convolutional import ConvolutionalNetwork
from bidual.networks.deep import DeepNetwork
from bidual.networks.gated import GatedNetwork
from bidual.networks.layerwise import LayerwiseNetwork
from bidual.networks.parallel import ParallelNetwork
from bidual.networks.standardised import StandardisedNetwork
from bidual.networks.two_layer import TwoLayerNetwork

#: Old enough for every runtime in use, new enough for all operators in double precision.
OPSET, IR_VERSION = 17, 8
TYPES = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE}


class Graph:
    """Nodes and constants of a graph under construction; methods return the name of their result."""

    def __init__(self, dtype: str, input_shape: tuple[int, ...]) -> None:
        if dtype not in TYPES:
            raise ValueError(f"dtype must be one of {', '.join(map(repr, TYPES))}, got {dtype!r}")
        self.dtype, self.input_shape = dtype, input_shape
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, values: Any, dtype: Any = None) -> str:
        """A constant tensor, in the precision of the graph unless said otherwise."""
        name = f"c{len(self.constants)}"
        array = np.ascontiguousarray(np.asarray(values, dtype=self.dtype if dtype is None else dtype))
        self.constants.append(numpy_helper.from_array(array.reshape(np.shape(values)), name))
        return name

    def add(self, operator: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        """A node with one result."""
        result = output or f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [result], **attributes))
        return result

    def affine(self, x: str, weights: Array, bias: Array | None) -> str:
        """``x W + b``."""
        product = self.add("MatMul", x, self.constant(weights))
        return product if bias is None else self.add("Add", product, self.constant(bias))


@singledispatch
def body(network: Any, graph: Graph, x: str) -> str:
    """Append the network to the graph, from the inputs ``x (n, d)`` to outputs ``(n, C)``.

    Most have a linear layer after the hidden ones; others register what they have.
    """
    return graph.affine(hidden(network, graph, x), network.output_weights, network.intercept)


@body.register
def _(network: DeepNetwork, graph: Graph, x: str) -> str:
    return graph.affine(hidden(network, graph, x), network.layers[-1], network.biases[-1])


@singledispatch
def hidden(network: Network, graph: Graph, x: str) -> str:
    """Append what stands before the last layer."""
    return network.onnx_hidden(graph, x)


@hidden.register
def _(network: TwoLayerNetwork, graph: Graph, x: str) -> str:
    return graph.add("Relu", graph.affine(x, network.hidden_weights.T, network.hidden_bias))


@hidden.register
def _(network: BatchNormNetwork, graph: Graph, x: str) -> str:
    scale = network.gamma / network.norm
    shift = network.shift / np.sqrt(network.n_samples) - scale * network.mean

    def normalise(z: str) -> str:
        return graph.add("Add", graph.add("Mul", z, graph.constant(scale)), graph.constant(shift))

    z = graph.affine(x, network.hidden_weights.T, network.hidden_bias)
    return graph.add("Relu", normalise(z)) if network.position == "before" else normalise(graph.add("Relu", z))


@hidden.register
def _(network: DeepNetwork, graph: Graph, x: str) -> str:
    if network.whitening is not None:
        x = graph.add("MatMul", x, graph.constant(network.whitening))
    if network.whitening_bias is not None:
        x = graph.add("Add", x, graph.constant(network.whitening_bias))
    for W, b in zip(network.layers[:-1], network.biases[:-1], strict=True):
        x = graph.affine(x, W, b)
        if network.activation == "relu":
            x = graph.add("Relu", x)
    return x


@hidden.register
def _(network: ParallelNetwork, graph: Graph, x: str) -> str:
    # branches as a leading axis, (K, n, m), and side by side at the end
    bias = None if network.hidden_bias is None else network.hidden_bias[:, None, :]
    z = graph.add(
        "Relu", graph.affine(graph.add("Unsqueeze", x, graph.constant([0], np.int64)), network.layers[0], bias)
    )
    for W in network.layers[1:-1]:
        z = graph.add("Relu", graph.affine(z, W, None))
    wide = graph.constant([-1, len(network.output_weights)], np.int64)
    return graph.add("Reshape", graph.add("Transpose", z, perm=[1, 0, 2]), wide)


@body.register
def _(network: LayerwiseNetwork, graph: Graph, x: str) -> str:
    now = x
    for stage in network.stages[:-1]:
        heads = np.linalg.norm(stage.output_weights, axis=1)  # type: ignore[attr-defined]
        now = graph.add("Mul", hidden(stage, graph, now), graph.constant(heads))
        if network.passthrough:
            now = graph.add("Concat", now, x, axis=1)
    return body(network.stages[-1], graph, now)


@body.register
def _(network: StandardisedNetwork, graph: Graph, x: str) -> str:
    centred = graph.add("Sub", x, graph.constant(network.centre))
    return body(network.layer, graph, graph.add("Div", centred, graph.constant(network.scale)))


@body.register
def _(network: ConvolutionalNetwork, graph: Graph, x: str) -> str:
    # Patches by index, then the network on patches: runtimes know convolutions in single precision only.
    shape, C = (1, *graph.input_shape), network.n_outputs
    grid, entries = network.window.grid(shape), prod(graph.input_shape)
    index = network.window.rows(np.arange(1.0, entries + 1).reshape(shape)).astype(np.int64)  # 0: padding
    flat = graph.add("Reshape", x, graph.constant([-1, entries], np.int64))
    padded = graph.add("Pad", flat, graph.constant([0, 1, 0, 0], np.int64), graph.constant(np.zeros(())))
    gathered = graph.add("Gather", padded, graph.constant(index.ravel(), np.int64), axis=1)
    rows = graph.add("Reshape", gathered, graph.constant([-1, network.n_inputs], np.int64))
    intercept = graph.constant(network.intercept)
    K = len(index)
    if network.n_positions is not None:
        alpha = network.output_weights.swapaxes(0, 1).reshape(-1, C)
        wide = graph.constant([-1, K * network.n_neurons], np.int64)
        activations = graph.add("Reshape", hidden(network.layer, graph, rows), wide)
        return graph.add("Add", graph.add("MatMul", activations, graph.constant(alpha)), intercept)
    own = graph.constant(np.asarray(getattr(network.layer, "intercept", 0.0)))
    outputs = graph.add("Sub", body(network.layer, graph, rows), own)
    if network.pooling is None:
        placed = graph.add("Reshape", outputs, graph.constant([-1, *grid, C], np.int64))
        return graph.add("Add", placed, intercept)
    by_patch = graph.add("Reshape", outputs, graph.constant([-1, K, C], np.int64))
    operator = "ReduceMean" if network.pooling == "average" else "ReduceSum"
    if operator == "ReduceSum":
        pooled = graph.add(operator, by_patch, graph.constant([1], np.int64), keepdims=0)
    else:
        pooled = graph.add(operator, by_patch, axes=[1], keepdims=0)
    return graph.add("Add", pooled, intercept)


@body.register
def _(network: GatedNetwork, graph: Graph, x: str) -> str:
    # gates (n, m), all linear maps at once (n, m C), summed over the open gates
    m, d, C = network.linear_weights.shape
    if m == 0:
        return graph.affine(x, np.zeros((d, C)), network.intercept)
    z = graph.affine(x, network.gate_weights.T, network.gate_bias)
    is_open = graph.add("GreaterOrEqual", z, graph.constant(np.zeros(())))
    gates = graph.add("Cast", is_open, to=TYPES[graph.dtype])
    bias = None if network.linear_bias is None else network.linear_bias.reshape(m * C)
    maps = graph.affine(x, network.linear_weights.transpose(1, 0, 2).reshape(d, m * C), bias)
    by_gate = graph.add("Reshape", maps, graph.constant([-1, m, C], np.int64))
    masked = graph.add("Mul", by_gate, graph.add("Unsqueeze", gates, graph.constant([2], np.int64)))
    total = graph.add("ReduceSum", masked, graph.constant([1], np.int64), keepdims=0)
    return graph.add("Add", total, graph.constant(network.intercept))


def write(
    path: str | os.PathLike[str], network: Network, dtype: str = "float64", input_shape: tuple[int, ...] | None = None
) -> Path:
    """A network as an ONNX file: input ``x (n, d)``, output ``y (n, C)``."""
    seen = network.layer if isinstance(network, StandardisedNetwork) else network
    if isinstance(seen, ConvolutionalNetwork) and input_shape is None:
        raise ValueError("a convolutional network needs input_shape=, the shape of one sample: X.shape[1:]")
    graph = Graph(dtype, (network.n_inputs,) if input_shape is None else tuple(int(k) for k in input_shape))
    shape = network.output_shape((1, *graph.input_shape))[1:]
    graph.add("Identity", body(network, graph, "x"), output="y")
    return save_graph(path, graph, [("y", TYPES[dtype], ["n", *shape, network.n_outputs])], {"kind": network.kind})


def save_graph(path: str | os.PathLike[str], graph: Graph, outputs: list[Any], about: dict[str, str]) -> Path:
    """Write the graph, checked by ONNX, with facts about it."""
    proto = helper.make_graph(
        graph.nodes,
        "bidual",
        [helper.make_tensor_value_info("x", TYPES[graph.dtype], ["n", *graph.input_shape])],
        [helper.make_tensor_value_info(*output) for output in outputs],
        graph.constants,
    )
    model = helper.make_model(
        proto,
        producer_name="bidual",
        producer_version=__version__,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    helper.set_model_props(model, about)
    onnx.checker.check_model(model, full_check=True)
    return write_atomically(path, lambda temporary: temporary.write_bytes(model.SerializeToString()))


# ---- reading -----------------------------------------------------------------------------------

#: Precisions between which a Cast changes no more than rounding.
_PRECISIONS = tuple(TYPES.values())


def read(path: str | os.PathLike[str]) -> TwoLayerNetwork:
    """A two-layer ReLU network from a chain of MatMul, Gemm, Add and Relu, as converters write it.

    The chain is followed from the input to the output: every node must be a link of it.
    """
    try:
        graph = onnx.load(os.fspath(path), load_external_data=False).graph  # other files stay closed
        constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
        for node in graph.node:
            if node.op_type == "Constant":
                constants[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
    except FileNotFoundError:
        raise
    except Exception as error:  # protobuf raises its own kinds
        raise ValueError(f"{path} is not a readable ONNX file: {type(error).__name__}") from error
    links = [node for node in graph.node if node.op_type != "Constant"]
    try:
        first, last = _two_layers(graph, links, constants)
        return TwoLayerNetwork(first.W.T, last.W, hidden_bias=first.b, intercept=last.b)
    except ValueError as error:
        held = ", ".join(node.op_type for node in links[:8]) or "nothing"
        raise ValueError(
            f"{path} holds {held}; expected two linear layers with a ReLU between them, but {error}"
        ) from error


class _Layer:
    """``x W + b`` under construction."""

    def __init__(self, W: Array, bias: Array | None) -> None:
        self.W = _numbers(W, "weights")
        self.b: FloatArray | None = None
        if self.W.ndim != 2:
            raise ValueError(f"weights of shape {self.W.shape} are no matrix")
        if bias is not None:
            self.add(bias)

    def add(self, bias: Array) -> None:
        """One more bias, of one number for each output (or one for all)."""
        m = self.W.shape[1]
        b = _numbers(bias, "a bias")
        if b.shape not in ((), (1,), (m,), (1, m)):
            raise ValueError(f"a bias of shape {b.shape} does not fit {m} outputs")
        self.b = np.broadcast_to(b.reshape(-1), m) + (0.0 if self.b is None else self.b)


def _two_layers(graph: Any, links: list[Any], constants: dict[str, Array]) -> list[_Layer]:
    """The two layers; ValueError if the graph is anything but their chain."""
    inputs = [value.name for value in graph.input if value.name not in constants]
    if len(inputs) != 1 or len(graph.output) != 1:
        raise ValueError(f"it has {len(inputs)} inputs and {len(graph.output)} outputs, not one of each")
    layers: list[_Layer] = []
    now, activated = inputs[0], False
    for node in links:
        if node.domain not in ("", "ai.onnx"):
            raise ValueError(f"its {node.op_type} is an operator of {node.domain!r}")
        others = [name for name in node.input if name and name != now]
        if list(node.input).count(now) != 1 or any(name not in constants for name in others):
            raise ValueError(f"its {node.op_type} does not follow the node before it")
        known = [constants[name] for name in others]
        if node.op_type == "Relu":
            if len(layers) != 1 or activated:
                raise ValueError("a ReLU is not between the two layers")
            activated = True
        elif node.op_type in ("MatMul", "Gemm"):
            if node.input[0] != now or len(layers) != activated:
                raise ValueError("its layers do not alternate with the ReLU")
            layers.append(_layer(node, known))
        elif node.op_type == "Add":
            if not layers or (activated and len(layers) == 1):
                raise ValueError("an Add does not follow a linear layer")
            layers[-1].add(known[0])
        elif not _passive(node, known, layers):
            raise ValueError(f"what its {node.op_type} does is not known here")
        now = node.output[0]
    if now != graph.output[0].name or len(layers) != 2:
        raise ValueError("the chain does not end at the output after two layers")
    return layers


def _passive(node: Any, known: list[Array], layers: list[_Layer]) -> bool:
    """Whether a node changes nothing of a matrix of activations, at inference."""
    attributes = _attributes(node)
    if node.op_type in ("Reshape", "Squeeze"):  # of the outputs, which stay where they are
        C = layers[1].W.shape[1] if len(layers) == 2 else 0
        return C == 1 or (node.op_type == "Reshape" and C > 1 and np.array_equal(known[0], [-1, C]))
    return {
        "Identity": True,
        "Dropout": not any(np.any(value) for value in known[1:]),  # training_mode
        "Flatten": attributes.get("axis", 1) == 1,
        "Cast": attributes.get("to") in _PRECISIONS,
    }.get(node.op_type, False)


def _layer(node: Any, known: list[Array]) -> _Layer:
    attributes = _attributes(node)
    if attributes.get("transA", 0):
        raise ValueError("a Gemm with a transposed input is no layer of a network")
    W = known[0] * attributes.get("alpha", 1.0)
    bias = known[1] * attributes.get("beta", 1.0) if len(known) > 1 else None
    return _Layer(W.T if attributes.get("transB", 0) else W, bias)


def _attributes(node: Any) -> dict[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def _numbers(values: Array, what: str) -> FloatArray:
    if np.asarray(values).dtype.kind not in "fiu":
        raise ValueError(f"{what} of type {np.asarray(values).dtype} are not real numbers")
    return np.asarray(values, dtype=np.float64)

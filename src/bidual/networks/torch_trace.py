"""The two linear layers of a torch module, wherever in its ``forward`` they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import fx

from bidual._util.typing import Array, FloatArray
from bidual.networks.torch_bridge import numbers
from bidual.networks.two_layer import TwoLayerNetwork

#: Names of what is a ReLU; of what does nothing at inference; and of what may change the shape of the outputs.
_RELU = ("ReLU", "relu", "relu_")
_NOTHING = ("Identity", "Dropout", "AlphaDropout", "dropout", "dropout_", "contiguous")
_SHAPE = ("squeeze", "flatten", "view", "reshape", "ravel", "Flatten")
#: Random rows on which the module and what was found in it are compared.
_ROWS = 16

#: The name of a step of ``forward``, and its weight and bias if it is linear.
Step: TypeAlias = tuple[str, Any]


def traced_network(module: Any) -> TwoLayerNetwork:
    """The network that a module computes; a ValueError if it is not Linear, ReLU, Linear.

    The module is traced, which runs its ``forward`` with symbols, and compared with what was found on random rows.
    """
    expected = "expected torch.nn.Sequential(Linear, ReLU, Linear), or a module whose forward computes that"
    if not isinstance(module, torch.nn.Module):
        raise ValueError(f"{expected}; got {type(module).__name__}")
    with _at_inference(module):
        steps = [step for step in _steps(module, expected) if step[0] not in _NOTHING]
        while steps and steps[-1][0] in _SHAPE:
            steps.pop()
        kinds = ["ReLU" if kind in _RELU else kind for kind, _ in steps]
        if kinds != ["Linear", "ReLU", "Linear"]:
            raise ValueError(f"{expected}; {type(module).__name__} computes {', '.join(kinds) or 'nothing'}")
        (W, b), (A, c) = steps[0][1], steps[2][1]
        network = TwoLayerNetwork(
            numbers(W), numbers(A).T, None if b is None else numbers(b), None if c is None else numbers(c)
        )
        if not _same(module, network, W):
            raise ValueError(f"{expected}; {type(module).__name__} has these layers, but computes something else")
    return network


@contextmanager
def _at_inference(module: Any) -> Iterator[None]:
    """Every part of the module in evaluation mode, and back."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, training in modes:
            part.training = training


def _steps(module: Any, expected: str) -> Iterator[Step]:
    """What the module does to its input, one step after the other."""
    try:
        nodes = list(fx.Tracer().trace(module).nodes)
    except Exception as error:  # a forward of somebody else's, run with symbols, raises anything
        raise ValueError(f"{expected}; {type(module).__name__} cannot be traced: {type(error).__name__}") from error
    last = next(node for node in nodes if node.op == "placeholder")
    for node in nodes:
        if node is last or node.op == "get_attr" or (node.op == "placeholder" and not node.users):
            continue
        if not node.args or node.args[0] is not last:
            raise ValueError(f"{expected}; {type(module).__name__} does not pass one layer's outputs to the next alone")
        last = node
        if node.op != "output":
            yield _step(module, node)


def _step(module: Any, node: Any) -> Step:
    if node.op == "call_module":
        part = module.get_submodule(node.target)
        linear = isinstance(part, torch.nn.Linear)
        return ("Linear", (part.weight, part.bias)) if linear else (type(part).__name__, None)
    if node.target is torch.nn.functional.linear:
        given = dict(zip(("weight", "bias"), node.args[1:], strict=False)) | dict(node.kwargs)
        found = {name: attrgetter(at.target)(module) for name, at in given.items() if at is not None}
        return "Linear", (found["weight"], found.get("bias"))
    return (node.target if isinstance(node.target, str) else node.target.__name__), None


def _same(module: Any, network: TwoLayerNetwork, like: Any) -> bool:
    """Whether both compute the same on random rows, to the accuracy of the module's numbers."""
    X: FloatArray = np.random.default_rng(0).standard_normal((_ROWS, network.n_inputs))
    outputs: Array = numbers(module(torch.as_tensor(X, dtype=like.dtype, device=like.device)))
    F = network.forward(X)
    close = torch.finfo(like.dtype).eps ** 0.5 * float(np.abs(F).max(initial=1.0))
    shapes = (F.shape, F.shape[:1]) if F.shape[1] == 1 else (F.shape,)
    return outputs.shape in shapes and bool(np.abs(outputs.reshape(F.shape) - F).max(initial=0.0) <= close)

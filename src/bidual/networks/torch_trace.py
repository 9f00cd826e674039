"""What a torch module does to its input, one step after the other, wherever in its ``forward`` that is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch
from torch import fx

#: Steps that do nothing at inference, and those that change the shape of what they are given only.
_NOTHING = ("Identity", "Dropout", "AlphaDropout", "Dropout1d", "Dropout2d", "dropout", "dropout_", "contiguous")
_SHAPE = ("squeeze", "flatten", "view", "reshape", "ravel", "Flatten", "Unflatten", "unsqueeze")
#: One name for what modules, functions and methods call differently.
_KINDS = {
    "relu": "ReLU",
    "relu_": "ReLU",
    "Conv1d": "Conv",
    "Conv2d": "Conv",
    "BatchNorm1d": "BatchNorm",
    "BatchNorm2d": "BatchNorm",
    "SwappedNorm": "BatchNorm",
    "AdaptiveAvgPool1d": "average",
    "AdaptiveAvgPool2d": "average",
    "mean": "average",
    "SumPool": "sum",
    "CircularPad1d": "CircularPad",
    "CircularPad2d": "CircularPad",
    "LeakyReLU": "LeakyReLU",
}


@dataclass(frozen=True)
class Step:
    """One step: its kind; the module that does it, if one does; weight and bias, if it is linear."""

    kind: str
    part: Any = None
    weight: Any = None
    bias: Any = None


class _Tracer(fx.Tracer):
    """Modules of bidual are steps, as those of torch are."""

    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        ours = type(m).__module__.startswith("bidual.networks.")
        return ours or super().is_leaf_module(m, module_qualified_name)


def steps(module: Any, expected: str) -> list[Step]:
    """What the module does but for shapes; ValueError if one step does not hand its result to the next alone.

    The module is traced, which runs its ``forward`` with symbols.
    """
    root, name = torch.nn.Sequential(module), type(module).__name__
    try:
        nodes = list(_Tracer().trace(root).nodes)
    except Exception as error:  # a forward of somebody else's, run with symbols, raises anything
        raise ValueError(f"{expected}; {name} cannot be traced: {type(error).__name__}") from error
    found: list[Step] = []
    last = next(node for node in nodes if node.op == "placeholder")
    for node in nodes:
        if node is last or node.op == "get_attr" or (node.op == "placeholder" and not node.users):
            continue
        if not node.args or node.args[0] is not last:
            raise ValueError(f"{expected}; {name} does not pass one layer's outputs to the next alone")
        last = node
        if node.op != "output":
            found.append(_step(root, node))
    return [step for step in found if step.kind not in _NOTHING + _SHAPE]


def _step(root: Any, node: Any) -> Step:
    if node.op == "call_module":
        part = root.get_submodule(node.target)
        if isinstance(part, torch.nn.Linear):
            return Step("Linear", part, part.weight, part.bias)
        name = type(part).__name__
        if name == "PatchSum":
            return Step("average" if part.average else "sum", part)
        return Step(_KINDS.get(name, name), part)
    if node.target is torch.nn.functional.linear:
        given = dict(zip(("weight", "bias"), node.args[1:], strict=False)) | dict(node.kwargs)
        found = {name: attrgetter(at.target)(root) for name, at in given.items() if at is not None}
        return Step("Linear", None, found["weight"], found.get("bias"))
    name = node.target if isinstance(node.target, str) else node.target.__name__
    return Step(_KINDS.get(name, name))


@contextmanager
def at_inference(module: Any) -> Iterator[None]:
    """Every part of the module in evaluation mode, and back."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, training in modes:
            part.training = training

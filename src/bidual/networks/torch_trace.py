"""What a torch module does to its input, one step after the other, wherever in its ``forward`` that is written."""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeAlias

import torch
from torch import fx

#: Steps that do nothing at inference, and those that change no more than the shape of what they are given.
_NOTHING = (
    "Identity", "Dropout", "Dropout1d", "Dropout2d", "AlphaDropout", "FeatureAlphaDropout", "dropout", "contiguous",
)  # fmt: skip
_SHAPE = ("squeeze", "flatten", "view", "reshape", "ravel", "Flatten", "Unflatten", "unsqueeze")
#: One name for what modules, functions and methods call differently.
_KINDS = {
    "relu": "ReLU",
    "relu_": "ReLU",
    "Conv1d": "Conv",
    "Conv2d": "Conv",
    "BatchNorm1d": "BatchNorm",
    "BatchNorm2d": "BatchNorm",
    "SyncBatchNorm": "BatchNorm",
    "SwappedNorm": "BatchNorm",
    "AdaptiveAvgPool1d": "average",
    "AdaptiveAvgPool2d": "average",
    "adaptive_avg_pool1d": "average",
    "adaptive_avg_pool2d": "average",
    "mean": "average",
    "SumPool": "sum",
    "CircularPad1d": "CircularPad",
    "CircularPad2d": "CircularPad",
    "dropout_": "dropout",
}
_CLAMPS = ("clamp", "clamp_", "clamp_min", "clamp_min_")
#: Methods and attributes of a tensor that tell its shape.
_SIZES = ("size", "dim", "shape", "ndim")
_SUMS = (operator.add, operator.iadd, torch.add, "add", "add_")


@dataclass(frozen=True)
class Step:
    """One step: its kind; the module that does it, if one does; weight and bias, if it is linear."""

    kind: str
    part: Any = None
    weight: Any = None
    bias: Any = None


Chain: TypeAlias = tuple[Step, ...]


@dataclass(frozen=True)
class _Value:
    """What chains of steps have made of the input: their sum, or a stack that is to be summed."""

    chains: tuple[Chain, ...]
    stacked: bool = False


class _Tracer(fx.Tracer):
    """Modules of bidual are steps, as those of torch are."""

    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        ours = type(m).__module__.startswith("bidual.networks.")
        return ours or super().is_leaf_module(m, module_qualified_name)


def chains(module: Any, expected: str) -> list[Chain]:
    """The chains of steps whose results a module adds up, most often one; ValueError if it does anything else.

    The module is traced, which runs its ``forward`` with symbols. Steps that only change shapes are left out, but for
    a "Flatten" before the first other one.
    """
    root, name = torch.nn.Sequential(module), type(module).__name__
    try:
        graph = _Tracer().trace(root)
    except Exception as error:  # a forward of somebody else's, run with symbols, raises anything
        raise ValueError(f"{expected}; {name} cannot be traced: {type(error).__name__}") from error
    try:
        found = [_tidy(steps) for steps in _Walk(root).result(graph)]
    except _OtherError as other:
        raise ValueError(f"{expected}; {name} {other}") from None
    tensors = [key for step in chain(*found) for key in _weights_of(step)]
    if len(tensors) > len(set(tensors)):
        raise ValueError(f"{expected}; {name} uses a layer more than once")
    return found


def unwrapped(module: Any) -> Any:
    """The module in ``torch.compile`` and ``DataParallel``."""
    while isinstance(module, torch.nn.Module):
        if hasattr(module, "_orig_mod"):
            module = module._orig_mod
        elif isinstance(module, torch.nn.DataParallel | torch.nn.parallel.DistributedDataParallel):
            module = module.module
        else:
            break
    return module


class _OtherError(Exception):
    """What a module does that no chains of steps do."""


class _Walk:
    """From the nodes of a graph to the chains of steps that lead to each."""

    def __init__(self, root: torch.nn.Module) -> None:
        self.root = root
        self.values: dict[Any, _Value] = {}
        self.sizes: set[Any] = set()

    def result(self, graph: fx.Graph) -> tuple[Chain, ...]:
        """The chains behind the output."""
        for node in graph.nodes:
            if node.op == "placeholder":
                self.values[node] = _Value(((),))
            elif node.op == "output":
                return self._output(node.args[0])
            elif self._is_size(node):
                self.sizes.add(node)
            elif node.op != "get_attr":
                self.values[node] = self._value(node)
        raise _OtherError("returns nothing")

    def _output(self, node: Any) -> tuple[Chain, ...]:
        if not isinstance(node, fx.Node) or node not in self.values:
            raise _OtherError("does not return one tensor")
        if self.values[node].stacked:
            raise _OtherError("stacks outputs without adding them up")
        return self.values[node].chains

    def _is_size(self, node: Any) -> bool:
        """Whether a node is about shapes, as ``x.size(0)`` is."""
        inputs = node.all_input_nodes
        asks = node.target in _SIZES or (node.target is getattr and node.args[1] in _SIZES)
        return asks or (bool(inputs) and all(n in self.sizes for n in inputs))

    def _value(self, node: Any) -> _Value:
        """What a step makes of the values before it."""
        before = [n for n in node.all_input_nodes if n in self.values]
        weights = [n for n in node.all_input_nodes if n not in self.values and n not in self.sizes]
        for n in before:
            if n.op != "placeholder" and sum(user not in self.sizes for user in n.users) > 1:
                raise _OtherError("does not pass one layer's outputs to the next alone")
        if node.target in _SUMS and not node.kwargs and all(n in self.values or n == 0 for n in node.args):
            return self._joined([n for n in node.args if n in self.values], stacked=False)
        first = node.args[0] if node.args else node.kwargs.get("input")
        if node.target is torch.stack and isinstance(first, list | tuple) and len(first) == len(before):
            return self._joined(first, stacked=True)
        if before != [first] or any(n.op != "get_attr" for n in weights):
            raise _OtherError("does not pass one layer's outputs to the next alone")
        value, step = self.values[first], self._step(node)
        if value.stacked:
            if step.kind != "sum":
                raise _OtherError(f"stacks outputs and computes {step.kind} of them")
            return replace(value, stacked=False)
        if len(value.chains) > 1 and step.kind not in _SHAPE + _NOTHING:
            raise _OtherError(f"adds outputs up before {step.kind}")
        return _Value(tuple((*steps, step) for steps in value.chains))

    def _joined(self, nodes: Any, *, stacked: bool) -> _Value:
        values = [self.values[n] for n in nodes]
        if any(value.stacked for value in values) or (stacked and any(len(value.chains) > 1 for value in values)):
            raise _OtherError("stacks outputs more than once")
        return _Value(tuple(chain.from_iterable(value.chains for value in values)), stacked)

    def _step(self, node: Any) -> Step:
        if node.op == "call_module":
            return _of_module(self.root.get_submodule(node.target))
        name = node.target if isinstance(node.target, str) else node.target.__name__
        given: dict[Any, Any] = {**dict(enumerate(node.args)), **node.kwargs}
        if node.target is torch.nn.functional.linear:
            weight, bias = (self._tensor(given.get(k, given.get(i))) for i, k in ((1, "weight"), (2, "bias")))
            return Step("Linear", None, weight, bias)
        if node.target is torch.nn.functional.leaky_relu:
            return Step("LeakyReLU", torch.nn.LeakyReLU(given.get("negative_slope", given.get(1, 0.01))))
        if name in _CLAMPS and given.get("min", given.get(1)) == 0 and given.get("max", given.get(2)) is None:
            return Step("ReLU")
        if name in ("dropout", "dropout_") and given.get("training", given.get("train", given.get(2, True))):
            return Step("dropout in training")
        return Step(_KINDS.get(name, name))

    def _tensor(self, node: Any) -> Any:
        return None if node is None else operator.attrgetter(node.target)(self.root)


def _of_module(part: torch.nn.Module) -> Step:
    if isinstance(part, torch.nn.Linear):
        return Step("Linear", part, part.weight, part.bias)
    name = type(part).__name__
    if name == "PatchSum":
        return Step("average" if part.average else "sum", part)
    return Step(_KINDS.get(name, name), part)


def _tidy(steps: Chain) -> Chain:
    """The steps that compute, and "Flatten" if the shape is changed before them."""
    left = tuple(step for step in steps if step.kind not in _NOTHING)
    flattened = (Step("Flatten"),) if left and left[0].kind in _SHAPE else ()
    return flattened + tuple(step for step in left if step.kind not in _SHAPE)


def _weights_of(step: Step) -> set[int]:
    """What tells the weights of a step from others: a layer, and a tensor that may be in several."""
    held = [] if step.part is None else list(chain(step.part.parameters(), step.part.buffers()))
    return {id(thing) for thing in (step.part if held else None, step.weight) if thing is not None}

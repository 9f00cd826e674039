"""Networks from torch modules: from what a module does, step by step, to the network that computes the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isqrt, prod
from typing import Any, TypeAlias

import numpy as np
import torch

from bidual._util.patches import Window
from bidual._util.typing import Array, FloatArray
from bidual.networks.base import Network
from bidual.networks.batch_norm import BatchNormNetwork
from bidual.networks.convolutional import ConvolutionalNetwork
from bidual.networks.gated import GatedNetwork
from bidual.networks.leaky import LeakyReLUNetwork
from bidual.networks.standardised import StandardisedNetwork
from bidual.networks.torch_bridge import numbers
from bidual.networks.torch_trace import Step, at_inference, steps
from bidual.networks.two_layer import TwoLayerNetwork

#: Random rows on which the module and what was found in it are compared.
_ROWS = 16
_POOLINGS = ("sum", "average")
EXPECTED = (
    "expected torch.nn.Sequential(Linear, ReLU, Linear), or a module whose forward computes that; a BatchNorm on either "
    "side of the ReLU, a LeakyReLU in its place, and Conv, ReLU, pooling over all positions or none, Linear go too"
)
Steps: TypeAlias = list[Step]


def read(module: Any, X: Array | None = None) -> Network:
    """The network that a module computes, checked on random rows; a ValueError if there is none.

    ``X`` are the training rows, channels last: normalised networks count them, and flattened ones take the grid of
    their positions from them.
    """
    if not isinstance(module, torch.nn.Module):
        raise ValueError(f"{EXPECTED}; got {type(module).__name__}")
    name = type(module).__name__
    with at_inference(module):
        found = steps(module, EXPECTED)
        network = _Reader(None if X is None else np.shape(X)).network(found, name)
        if not _same(module, network, X):
            raise ValueError(f"{EXPECTED}; {name} has these layers, but computes something else")
    return network


@dataclass(frozen=True)
class _Reader:
    """From steps to a network, for training rows of a shape (None: it is not known)."""

    shape: tuple[int, ...] | None

    def network(self, found: Steps, name: str) -> Network:
        kinds = [step.kind for step in found]
        if kinds[:1] == ["Standardise"]:
            first = found[0].part
            return StandardisedNetwork(
                self.network(found[1:], name), *(numbers(t).reshape(-1) for t in (first.centre, first.scale))
            )
        if len(found) == 1 and kinds[0] in _WHOLE:
            return _WHOLE[kinds[0]](found[0].part)
        pads = kinds[:1] == ["CircularPad"]
        if kinds[pads : pads + 1] == ["Conv"]:
            return self._convolutional(found[pads:], pads, name)
        pooled = kinds[-2] in _POOLINGS if len(kinds) > 1 else False
        if pooled or (self.shape is not None and len(self.shape) == 3):  # explicit patches
            *middle, last = found[:-2] + found[-1:] if pooled else found
            layer = self._layer([*middle, _bare(last)], 1 if self.shape is None else self.shape[1], name)
            return ConvolutionalNetwork(layer, None, pooling=kinds[-2] if pooled else None, intercept=_bias(last))
        return self._layer(found, 1, name)

    def _layer(self, found: Steps, positions: int, name: str) -> Any:
        """The network of one hidden layer on a row, or on each of the patches at so many positions."""
        kinds = [step.kind for step in found]
        hidden = kinds[1:-1]
        if kinds[:1] != ["Linear"] or kinds[-1:] != ["Linear"] or len(kinds) < 3:
            raise _other(name, kinds)
        weights = {
            "hidden_weights": numbers(found[0].weight),
            "output_weights": numbers(found[-1].weight).T,
            "hidden_bias": _bias(found[0]),
            "intercept": _bias(found[-1]),
        }
        if hidden == ["ReLU"]:
            return TwoLayerNetwork(**weights)
        if hidden == ["LeakyReLU"]:
            return LeakyReLUNetwork(**weights, slope=found[1].part.negative_slope)
        if sorted(hidden) == ["BatchNorm", "ReLU"]:
            position = "before" if hidden[0] == "BatchNorm" else "after"
            norm = found[1 if position == "before" else 2].part
            return BatchNormNetwork(**weights, **self._statistics(norm, positions), position=position)
        raise _other(name, kinds)

    def _statistics(self, norm: Any, positions: int) -> dict[str, Any]:
        """The numbers of a normalisation: torch divides by the root of variance plus eps, we by the norm."""
        norm = getattr(norm, "norm", norm)  # of the last axis
        if norm.running_mean is None:
            raise ValueError("the batch normalisation keeps no statistics (track_running_stats=False)")
        if self.shape is None:
            raise ValueError("batch normalisation counts the training rows: give them, from_torch(module, X)")
        n = self.shape[0] * positions
        deviation = np.sqrt(numbers(norm.running_var) + norm.eps)
        weight, bias = (np.full(len(deviation), v) if t is None else numbers(t) for v, t in
                        ((1.0, norm.weight), (0.0, norm.bias)))  # fmt: skip
        return {
            "gamma": np.sqrt(n) * weight,
            "shift": np.sqrt(n) * bias,
            "mean": numbers(norm.running_mean),
            "norm": np.sqrt(n) * deviation,
            "n_samples": n,
        }

    def _convolutional(self, found: Steps, circular: bool, name: str) -> ConvolutionalNetwork:
        """Filters on every patch, and what becomes of their answers."""
        conv, kinds = found[0].part, [step.kind for step in found]
        plain = conv.groups == 1 and set(conv.dilation) == {1} and conv.padding_mode == "zeros"
        if not plain or isinstance(conv.padding, str):
            raise ValueError(
                "only convolutions without groups, dilation and with zeros as numeric padding can be converted"
            )
        window = Window(
            tuple(conv.kernel_size), tuple(conv.stride), (0,) * len(conv.stride) if circular else tuple(conv.padding),
            circular,
        )  # fmt: skip
        *middle, last = found[1:]
        pooling = "flatten"
        if kinds[-2:] == ["Conv", "Last"]:  # outputs at every position
            *middle, last = found[1:-1]
            last, pooling = Step("Linear", None, last.part.weight.flatten(1), last.part.bias), None
        elif kinds[-2] in _POOLINGS:
            *middle, pooling = *middle[:-1], kinds[-2]
        if last.kind != "Linear" or last.weight.shape[1] % conv.out_channels:
            raise _other(name, kinds)
        m, (C, entries) = conv.out_channels, last.weight.shape
        grid = self._grid(window, entries // m) if pooling == "flatten" else None
        # (C, m K) to K C outputs of each of m filters; K = 1 where there is pooling
        alpha = last.weight.reshape(C, m, -1).permute(2, 0, 1).reshape(-1, m)
        filters = torch.movedim(conv.weight, 1, -1).flatten(1)
        K = 1 if self.shape is None else prod(window.grid(self.shape))
        layer = self._layer([Step("Linear", None, filters, conv.bias), *middle, Step("Linear", None, alpha)], K, name)
        if isinstance(layer, LeakyReLUNetwork):
            raise _other(name, kinds)
        return ConvolutionalNetwork(
            layer, window.kernel, window.stride, window.padding, pooling, _bias(last), circular, grid
        )

    def _grid(self, window: Window, positions: int) -> tuple[int, ...]:
        """The grid of so many positions: that of the rows, else a line or a square."""
        axes = len(window.kernel or ())
        side = positions if axes == 1 else isqrt(positions)
        grid = (side,) * axes if self.shape is None else window.grid(self.shape)
        if prod(grid) != positions:
            raise ValueError(
                f"the last layer is for {positions} positions, "
                + ("which are no square: give the training rows, from_torch(module, X)" if self.shape is None else
                   f"X has patches at {prod(grid)}")
            )  # fmt: skip
        return grid


def _bare(step: Step) -> Step:
    """A linear step without its bias."""
    return Step(step.kind, None, step.weight)


def _bias(step: Step) -> Array | None:
    return None if step.bias is None else numbers(step.bias)


def _gated(module: Any) -> GatedNetwork:
    return GatedNetwork(*(
        numbers(t) for t in (module.gate_weights, module.linear_weights, module.gate_bias, module.linear_bias,
                             module.intercept)
    ))  # fmt: skip


def _gated_convolution(module: Any) -> ConvolutionalNetwork:
    (m, C), gates, maps = module.sizes, module.gates, module.maps

    def rows(layer: Any) -> FloatArray:
        return numbers(layer.weight if module.patches else torch.movedim(layer.weight, 1, -1).flatten(1))

    layer = GatedNetwork(
        rows(gates), rows(maps).reshape(m, C, -1).swapaxes(1, 2), _bias(gates),
        None if maps.bias is None else numbers(maps.bias).reshape(m, C),
    )  # fmt: skip
    sizes = (None,) if module.patches else (maps.kernel_size, maps.stride, maps.padding)
    return ConvolutionalNetwork(layer, *sizes, pooling=module.pooling, intercept=numbers(module.intercept))


def _parallel(module: Any) -> Network:
    network: Network = module.network()
    return network


#: Modules of ours that are a network each.
_WHOLE: dict[str, Callable[[Any], Network]] = {
    "ParallelModule": _parallel,
    "GatedModule": _gated,
    "GatedConvolution": _gated_convolution,
}


def _other(name: str, kinds: list[str]) -> ValueError:
    return ValueError(f"{EXPECTED}; {name} computes {', '.join(kinds) or 'nothing'}")


def _same(module: Any, network: Network, X: Array | None) -> bool:
    """Whether both compute the same on random rows, to the accuracy of the module's numbers."""
    rows = _random_rows(network, X)
    window = getattr(_inner(network), "window", None)
    like = next((t for t in (*module.parameters(), *module.buffers()) if t.is_floating_point()))
    spatial = window is not None and window.kernel is not None
    T = torch.as_tensor(np.moveaxis(rows, -1, 1) if spatial else rows, dtype=like.dtype, device=like.device)
    try:
        outputs: Array = numbers(module(T))
    except RuntimeError:  # shapes that do not go together
        return False
    F: FloatArray = network.forward(rows)
    F = F.reshape(*network.output_shape(rows.shape), F.shape[1])
    close = torch.finfo(like.dtype).eps ** 0.5 * float(np.abs(F).max(initial=1.0))
    shapes = (F.shape, F.shape[:-1]) if F.shape[-1] == 1 else (F.shape,)
    return outputs.shape in shapes and bool(np.abs(outputs.reshape(F.shape) - F).max(initial=0.0) <= close)


def _inner(network: Network) -> Network:
    """What is behind a standardisation."""
    return network.layer if isinstance(network, StandardisedNetwork) else network


def _random_rows(network: Network, X: Array | None) -> FloatArray:
    """Rows that the network takes: of the shape of X if it is known."""
    inner = _inner(network)
    window = getattr(inner, "window", None)
    if X is not None:
        shape = np.shape(X)[1:]
        if window is not None and window.kernel is not None and len(shape) == len(window.kernel):
            shape = (*shape, 1)
    elif window is None:
        shape = (network.n_inputs,)
    elif window.kernel is None:
        shape = (3, network.n_inputs)
    else:
        grid = inner.grid or (2,) * len(window.kernel)  # type: ignore[union-attr]
        sizes = zip(grid, window.kernel, window.stride, window.padding, strict=True)
        space = tuple(max(k, g) if window.circular else max(1, (g - 1) * s + k - 2 * p) for g, k, s, p in sizes)
        shape = (*space, network.n_inputs // prod(window.kernel))
    rows: FloatArray = np.random.default_rng(0).standard_normal((_ROWS, *shape))
    if isinstance(network, StandardisedNetwork):
        rows = rows * network.scale + network.centre
    return rows

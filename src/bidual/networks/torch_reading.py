"""Networks from torch modules: from what a module does, step by step, to the network that computes the same."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
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
from bidual.networks.parallel import ParallelNetwork
from bidual.networks.standardised import StandardisedNetwork
from bidual.networks.torch_bridge import check_numbers, numbers
from bidual.networks.torch_trace import Chain, Step, chains, unwrapped
from bidual.networks.two_layer import TwoLayerNetwork

EXPECTED = (
    "expected torch.nn.Sequential(Linear, ReLU, Linear), a module whose forward computes that, or another that "
    "bidual.networks.from_torch knows"
)
_POOLINGS = ("sum", "average")
#: Sizes of the random rows on which the module and what was found in it are compared: neurons of small and of large
#: biases act on some of them. In double precision.
_SIZES = np.geomspace(1e-2, 1e6, 32)
#: Outputs may differ by this share of their size, and by what the same share of the inputs changes in them.
_SAME = 1e-9
Shape: TypeAlias = tuple[int, ...] | None


def read(module: Any, X: Array | None = None) -> Network:
    """The network that a module computes, checked on random rows; a ValueError if there is none.

    The shape of X, channels last, says what it does not say itself: which grid was flattened, and whether rows are
    patches.
    """
    if not isinstance(module, torch.nn.Module):
        raise ValueError(f"{EXPECTED}; got {type(module).__name__}")
    module = unwrapped(module)
    name, shape = type(module).__name__, None if X is None else np.shape(X)
    if isinstance(module, torch.jit.ScriptModule):
        raise ValueError(f"{EXPECTED}; {name} is compiled: give the module that it was made from")
    double = _in_double(module)
    with torch.no_grad():
        network = _Reader(name, shape).network(chains(double, EXPECTED))
        if not _same(double, network, shape):
            raise ValueError(f"{EXPECTED}; {name} has these layers, but computes something else")
    return network


def _in_double(module: torch.nn.Module) -> torch.nn.Module:
    """A copy for inference, in double precision; ValueError if that would change its numbers."""
    for t in (*module.parameters(), *module.buffers()):
        check_numbers(t)
    try:
        return copy.deepcopy(module).cpu().double().eval()
    except Exception as error:  # what somebody's module holds may refuse to be copied in any way
        raise ValueError(f"{EXPECTED}; {type(module).__name__} cannot be copied: {type(error).__name__}") from error


@dataclass(frozen=True)
class _Reader:
    """From steps to a network, for training rows of a shape (None: it is not known)."""

    name: str
    shape: Shape

    def network(self, found: list[Chain]) -> Network:
        """The network that adds up what these chains compute."""
        feedforward = [_feedforward(steps) for steps in found]
        if all(feedforward) and (len(found) > 1 or len(feedforward[0]) > 2):
            depths = {len(layers) for layers in feedforward}
            if len(depths) > 1:
                raise self._other(found, "branches of different depth")
            return (_wide if depths == {2} else _parallel)(feedforward)
        if len(found) > 1:
            raise self._other(found)
        return self._single(found[0])

    def _single(self, found: Chain) -> Network:
        kinds = [step.kind for step in found]
        if kinds[:1] == ["Flatten"]:
            return _Reader(self.name, None)._single(found[1:])
        if kinds[:1] == ["Standardise"]:
            first = found[0].part
            layer = self.network([found[1:]])
            return StandardisedNetwork(layer, *(numbers(t).reshape(-1) for t in (first.centre, first.scale)))
        if len(found) == 1 and kinds[0] in _WHOLE:
            return _WHOLE[kinds[0]](found[0].part)
        circular = kinds[:1] == ["CircularPad"]
        if kinds[circular : circular + 1] == ["Conv"]:
            return self._convolutional(found, circular)
        if len(found) < 3 or kinds[0] != "Linear":
            raise self._other([found])
        return self._on_rows(found)

    def _on_rows(self, found: Chain) -> Network:
        """A network of dense layers: on rows, or on the patches that rows of three axes are."""
        first, *middle, last = found
        m, patches = len(first.weight), self.shape is not None and len(self.shape) == 3
        pooling, grid = None, None
        if middle[-1].kind in _POOLINGS:
            pooling = middle.pop().kind
        elif last.kind == "Linear" and last.weight.shape[1] != m:  # (K, m) flattened
            C, entries = last.weight.shape
            if not m or entries % m:
                raise self._other([found])
            pooling, grid = "flatten", (entries // m,)
            last = Step("Linear", None, last.weight.reshape(C, *grid, m).movedim(0, 1).reshape(-1, m), last.bias)
        elif not patches:
            return self._layer(found)
        layer = self._layer((first, *middle, Step(last.kind, None, last.weight)))
        return ConvolutionalNetwork(layer, None, pooling=pooling, intercept=_bias(last), grid=grid)

    def _layer(self, found: Chain) -> Any:
        """The network of one hidden layer, on a row or a patch."""
        first, *hidden, last = found
        kinds = [step.kind for step in hidden]
        if last.kind != "Linear":
            raise self._other([found])
        weights: dict[str, Any] = {
            "hidden_weights": numbers(first.weight),
            "output_weights": numbers(last.weight).T,
            "hidden_bias": _bias(first),
            "intercept": _bias(last),
        }
        if kinds == ["ReLU"]:
            return TwoLayerNetwork(**weights)
        if kinds == ["LeakyReLU"]:
            return LeakyReLUNetwork(**weights, slope=hidden[0].part.negative_slope)
        if sorted(kinds) == ["BatchNorm", "ReLU"]:
            before = kinds[0] == "BatchNorm"
            statistics = _statistics(hidden[0 if before else 1].part)
            return BatchNormNetwork(**weights, **statistics, position="before" if before else "after")
        raise self._other([found])

    def _convolutional(self, found: Chain, circular: bool) -> ConvolutionalNetwork:
        """Filters on every patch, and what becomes of their answers."""
        conv, *middle, last = found[circular:]
        window = _window(conv.part, found[0].part if circular else None)
        m = conv.part.out_channels
        pooling: str | None = "flatten"
        if middle and (middle[-1].kind, last.kind) == ("Conv", "Last"):  # outputs at every position
            one, pooling = middle.pop().part, None
            last = Step("Linear", None, one.weight.flatten(1), one.bias)
        elif middle and middle[-1].kind in _POOLINGS:
            pooling = middle.pop().kind
        # (Filters with a LeakyReLU, or normalised behind the ReLU, can be trained by nobody here.)
        if last.kind != "Linear" or [step.kind for step in middle] not in (["ReLU"], ["BatchNorm", "ReLU"]):
            raise self._other([found])
        C, entries = last.weight.shape
        if entries % m or (pooling != "flatten" and entries != m):
            raise self._other([found])
        grid = self._grid(window, entries // m) if pooling == "flatten" else None
        # (C, m K) to K C outputs of each of m filters; K = 1 where nothing is flattened
        alpha = last.weight.reshape(C, m, -1).permute(2, 0, 1).reshape(-1, m)
        filters = Step("Linear", None, torch.movedim(conv.part.weight, 1, -1).flatten(1), conv.part.bias)
        layer = self._layer((filters, *middle, Step("Linear", None, alpha)))
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
                   f"X has patches at {prod(grid)} (its channels must come last)")
            )  # fmt: skip
        return grid

    def _other(self, found: list[Chain], what: str = "") -> ValueError:
        words = what or " + ".join(", ".join(step.kind for step in steps) or "nothing" for steps in found)
        return ValueError(f"{EXPECTED}; {self.name} computes {words}")


def _bias(step: Step) -> Array | None:
    return None if step.bias is None else numbers(step.bias)


def _statistics(norm: Any) -> dict[str, Any]:
    """The numbers of a normalisation, as torch has it: by the standard deviation, as of one training row.

    :meth:`Network.restated` says the same in terms of the training rows, as weight decay counts it (000 eq. 2).
    """
    norm = getattr(norm, "norm", norm)  # of the last axis
    if norm.running_mean is None:
        raise ValueError("the batch normalisation keeps no statistics (track_running_stats=False): it is no network")
    deviation = np.sqrt(numbers(norm.running_var) + norm.eps)
    return {
        "gamma": np.ones_like(deviation) if norm.weight is None else numbers(norm.weight),
        "shift": np.zeros_like(deviation) if norm.bias is None else numbers(norm.bias),
        "mean": numbers(norm.running_mean),
        "norm": deviation,
        "n_samples": 1,
    }


def _window(conv: Any, pad: Any) -> Window:
    """The window of a convolution; ``pad`` is what wraps its inputs around before it, if anything does."""
    kernel, stride, padding = tuple(conv.kernel_size), tuple(conv.stride), conv.padding
    if padding == "valid" or (padding == "same" and all(k % 2 for k in kernel)):
        padding = [(k - 1) // 2 if padding == "same" else 0 for k in kernel]
    if conv.groups > 1 or set(conv.dilation) != {1} or conv.padding_mode != "zeros" or isinstance(padding, str):
        raise ValueError(
            "only convolutions without groups and dilation, and with as many zeros on both sides as padding, can be "
            "converted"
        )
    if pad is not None:
        around = [e for k in reversed(kernel) for e in (0, k - 1)]
        if list(pad.padding) != around or any(padding) or set(stride) != {1}:
            raise ValueError(f"circular patches must have stride 1, no zeros and the padding {tuple(around)}")
    return Window(kernel, stride, tuple(padding), pad is not None)


def _feedforward(found: Chain) -> list[Step]:
    """The linear steps of Linear, ReLU, ..., Linear; none if it is not that."""
    linear = list(found[::2])
    kinds = ["Linear", "ReLU"] * (len(linear) - 1) + ["Linear"]
    fit = len(linear) > 1 and [step.kind for step in found] == kinds
    if not fit or any(above.weight.shape[1] != len(below.weight) for below, above in pairwise(linear)):
        return []
    return linear


def _wide(branches: list[list[Step]]) -> TwoLayerNetwork:
    """Two-layer networks that are added up: one with all their neurons."""
    first, last = zip(*branches, strict=True)
    some = any(step.bias is not None for step in first)
    return TwoLayerNetwork(
        np.concatenate([numbers(step.weight) for step in first]),
        np.concatenate([numbers(step.weight).T for step in last]),
        np.concatenate([_bias_or_zeros(step) for step in first]) if some else None,
        sum(map(_bias_or_zeros, last)),
    )


def _parallel(branches: list[list[Step]]) -> ParallelNetwork:
    """Feed-forward networks side by side, the narrower ones with neurons of weight zero.

    A bias of a layer behind the first is the weight of one more neuron of the layer before, which is one everywhere.
    """
    biases = [[step.bias is not None for step in layers] for layers in branches]
    constant = any(any(given[1:-1]) for given in biases)
    matrices = [[numbers(step.weight).T for step in layers] for layers in branches]
    first = [_bias_or_zeros(layers[0]) for layers in branches]
    if constant:
        for W, layers in zip(matrices, branches, strict=True):
            W[0] = np.pad(W[0], ((0, 0), (0, 1)))
            for k, step in enumerate(layers[1:-1], start=1):
                W[k] = np.vstack([W[k], _bias_or_zeros(step)])
                if k < len(layers) - 2:  # it is one in this layer too
                    W[k] = np.column_stack([W[k], np.eye(len(W[k]))[:, -1]])
        first = [np.append(b, 1.0) for b in first]
    return ParallelNetwork(
        [_stacked(level) for level in zip(*matrices, strict=True)],
        _stacked(first) if constant or any(given[0] for given in biases) else None,
        sum(_bias_or_zeros(layers[-1]) for layers in branches),
    )


def _stacked(arrays: Any) -> FloatArray:
    """Arrays in one, with zeros behind those that are smaller."""
    largest = np.max([a.shape for a in arrays], axis=0)
    return np.stack([np.pad(a, [(0, k) for k in largest - a.shape]) for a in arrays])


def _bias_or_zeros(step: Step) -> FloatArray:
    return np.zeros(len(step.weight)) if step.bias is None else numbers(step.bias)


def _gated(module: Any) -> GatedNetwork:
    gate_bias, linear_bias = (None if t is None else numbers(t) for t in (module.gate_bias, module.linear_bias))
    gates, maps = numbers(module.gate_weights), numbers(module.linear_weights)
    return GatedNetwork(gates, maps, gate_bias, linear_bias, numbers(module.intercept))


def _gated_convolution(module: Any) -> ConvolutionalNetwork:
    (m, C), gates, maps = module.sizes, module.gates, module.maps

    def rows(layer: Any) -> FloatArray:
        return numbers(layer.weight if module.patches else torch.movedim(layer.weight, 1, -1).flatten(1))

    bias = None if maps.bias is None else numbers(maps.bias).reshape(m, C)
    layer = GatedNetwork(rows(gates), rows(maps).reshape(m, C, -1).swapaxes(1, 2), _bias(gates), bias)
    window = Window(None) if module.patches else _window(maps, None)
    return ConvolutionalNetwork(
        layer,
        window.kernel,
        window.stride or 1,
        window.padding or 0,
        pooling=module.pooling,
        intercept=numbers(module.intercept),
    )


def _branches(module: Any) -> ParallelNetwork:
    network: ParallelNetwork = module.network()
    return network


#: Modules of ours that are a network each.
_WHOLE: dict[str, Callable[[Any], Network]] = {
    "ParallelModule": _branches,
    "GatedModule": _gated,
    "GatedConvolution": _gated_convolution,
}


def _same(module: Any, network: Network, shape: Shape) -> bool:
    """Whether both compute the same on random rows."""
    rng = np.random.default_rng(0)
    rows = _random_rows(network, shape, rng)
    near = rows * (1.0 + _SAME * rng.standard_normal(rows.shape))
    x = torch.as_tensor(np.ascontiguousarray(np.moveaxis(rows, -1, 1)) if _spatial(network) else rows)
    try:
        theirs = numbers(module(x))
    except (RuntimeError, TypeError, ValueError, IndexError):  # shapes that do not go together
        return False
    ours = [network.forward(r).reshape(len(r), -1) for r in (rows, near)]
    places = network.output_shape(rows.shape)
    shapes = [(*places, network.n_outputs), *([places] if network.n_outputs == 1 else [])]
    if theirs.shape not in shapes:
        return False
    off = np.abs(theirs.reshape(ours[0].shape) - ours[0]).max(axis=1)
    allowed = _SAME * np.abs(ours[0]).max(axis=1) + np.abs(ours[1] - ours[0]).max(axis=1)
    return bool((off <= allowed).all())


def _spatial(network: Network) -> bool:
    """Whether torch wants the channels first."""
    window = getattr(_behind(network), "window", None)
    return window is not None and window.kernel is not None


def _behind(network: Network) -> Network:
    """What is behind a standardisation."""
    return network.layer if isinstance(network, StandardisedNetwork) else network


def _random_rows(network: Network, shape: Shape, rng: np.random.Generator) -> FloatArray:
    """Rows that the network takes: those with patches of this shape, if it is known."""
    inner = _behind(network)
    sample: tuple[int, ...] = (network.n_inputs,)
    if isinstance(inner, ConvolutionalNetwork):
        window, grid = inner.window, inner.grid
        if shape is not None:
            network.check_inputs(np.broadcast_to(0.0, shape))
            single = window.kernel is not None and len(shape) == len(window.kernel) + 1  # without an axis of channels
            sample = (*shape[1:], 1) if single else shape[1:]
        elif window.kernel is None:
            sample = (grid[0] if grid else 3, network.n_inputs)
        else:
            grid = grid or (3, 2)[-len(window.kernel) :]
            sizes = zip(grid, window.kernel, window.stride, window.padding, strict=True)
            space = [max(k, g) if window.circular else max(1, (g - 1) * s + k - 2 * p) for g, k, s, p in sizes]
            sample = (*space, network.n_inputs // prod(window.kernel))
    rows: FloatArray = rng.standard_normal((len(_SIZES), *sample)) * _SIZES.reshape(-1, *(1,) * len(sample))
    return rows * network.scale + network.centre if isinstance(network, StandardisedNetwork) else rows

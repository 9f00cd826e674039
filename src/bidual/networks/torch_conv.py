"""Convolutional networks to and from torch. Imported only when asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from bidual._util.patches import Window, as_filters
from bidual._util.typing import Array
from bidual.networks.convolutional import ConvolutionalNetwork
from bidual.networks.gated import GatedNetwork
from bidual.networks.torch_bridge import _linear, batch_norm_layer, heard

_CONVOLUTIONS: dict[int, Any] = {1: torch.nn.Conv1d, 2: torch.nn.Conv2d}
_NORMALISATIONS: dict[int, Any] = {1: torch.nn.BatchNorm1d, 2: torch.nn.BatchNorm2d}
_AVERAGES: dict[int, Any] = {1: torch.nn.AdaptiveAvgPool1d, 2: torch.nn.AdaptiveAvgPool2d}
_WRAPS: dict[int, Any] = {1: torch.nn.CircularPad1d, 2: torch.nn.CircularPad2d}


class SumPool(torch.nn.Module):
    """The sum over all positions: ``(n, m, *space)`` to ``(n, m)``."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sums."""
        return x.flatten(2).sum(dim=2)


class PatchSum(torch.nn.Module):
    """The sum or mean over explicit patches: ``(n, K, m)`` to ``(n, m)``."""

    def __init__(self, average: bool) -> None:
        super().__init__()
        self.average = average

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sums or means."""
        return x.mean(dim=1) if self.average else x.sum(dim=1)


class Last(torch.nn.Module):
    """Channels of ``(n, C, *space)`` moved to the end."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The same numbers, channels last."""
        return x.movedim(1, -1)


class SwappedNorm(torch.nn.Module):
    """Batch normalisation of the last axis of ``(n, K, m)``."""

    def __init__(self, norm: torch.nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The normalised values."""
        return self.norm(x.transpose(1, 2)).transpose(1, 2)


class GatedConvolution(torch.nn.Module):
    r""":math:`\sum_k \sum_i 1[g_i^T x_k + h_i \ge 0] (W_i^T x_k + c_i) + b`; the gates are not trained on.

    Channels first, or explicit patches ``(n, K, h)``; outputs at every position (no pooling) have them last.
    """

    def __init__(self, network: ConvolutionalNetwork, layer: GatedNetwork, dtype: torch.dtype) -> None:
        super().__init__()
        window, (m, _, C) = network.window, layer.linear_weights.shape
        maps = as_filters(layer.linear_weights.swapaxes(1, 2).reshape(m * C, -1), window)
        bias = None if layer.linear_bias is None else layer.linear_bias.reshape(m * C)
        gates = as_filters(layer.gate_weights, window)
        self.gates = _on_patches(gates, layer.gate_bias, window, dtype).requires_grad_(False)
        self.maps = _on_patches(maps, bias, window, dtype)
        self.intercept = torch.nn.Parameter(torch.as_tensor(network.intercept.copy(), dtype=dtype))
        self.sizes, self.pooling, self.patches = (m, C), network.pooling, window.kernel is None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Outputs ``(n, C)``, or ``(n, *grid, C)``."""
        z, f = (t if self.patches else t.movedim(1, -1) for t in (self.gates(x), self.maps(x)))
        f = (f.unflatten(-1, self.sizes) * (z >= 0).unsqueeze(-1)).sum(dim=-2)
        if self.pooling is not None:
            f = f.flatten(1, -2)
            f = f.mean(dim=1) if self.pooling == "average" else f.sum(dim=1)
        return f + self.intercept


def convolutional_module(network: ConvolutionalNetwork, dtype: torch.dtype | None) -> torch.nn.Sequential:
    """``Sequential(Conv, [BatchNorm], ReLU, pooling, Linear)`` with the weights of ``network``, channels first.

    Gates are no standard layer: of them it is ``Sequential(GatedConvolution)``.
    """
    dtype = torch.float64 if dtype is None else dtype
    if not network.n_neurons:
        network = ConvolutionalNetwork(heard(network.layer), **network.options(), intercept=network.intercept)
    layer, window = network.layer, network.window
    axes = None if window.kernel is None else len(window.kernel)
    if isinstance(layer, GatedNetwork):
        return torch.nn.Sequential(GatedConvolution(network, layer, dtype)).eval()
    modules: list[torch.nn.Module] = []
    if axes is not None and window.circular:
        modules.append(_WRAPS[axes](tuple(e for k in reversed(window.kernel or ()) for e in (0, k - 1))))
    modules.append(_on_patches(network.filters, network.hidden_bias, window, dtype))
    if layer.kind == "batch_norm":
        norm = batch_norm_layer(layer, _NORMALISATIONS[axes or 1], dtype)  # type: ignore[arg-type]
        modules.append(SwappedNorm(norm) if axes is None else norm)
    if getattr(layer, "activation", "relu") == "relu":
        modules.append(torch.nn.ReLU())
    modules += _head(network, axes, dtype)
    return torch.nn.Sequential(*modules).eval()


def _head(network: ConvolutionalNetwork, axes: int | None, dtype: torch.dtype) -> list[torch.nn.Module]:
    """From the activations to the outputs."""
    alpha, pooling = network.output_weights, network.pooling
    if pooling == "flatten":  # torch flattens (m, K), explicit patches (K, m)
        order = (1, 0, 2) if axes is None else (0, 1, 2)
        return [
            torch.nn.Flatten(),
            _linear(alpha.transpose(order).reshape(-1, alpha.shape[2]).T, network.intercept, dtype),
        ]
    if pooling is None and axes is not None:
        ones = alpha.T.reshape(alpha.shape[1], *(1,) * axes, alpha.shape[0])
        zeros = (0,) * axes
        return [_convolution(ones, network.intercept, (1,) * axes, zeros, dtype), Last()]
    last = _linear(alpha.T, network.intercept, dtype)
    if pooling is None:
        return [last]
    if axes is None:
        return [PatchSum(pooling == "average"), last]
    if pooling == "sum":
        return [SumPool(), last]
    return [_AVERAGES[axes](1), torch.nn.Flatten(), last]


def _on_patches(filters: Array, bias: Array | None, window: Window, dtype: torch.dtype) -> torch.nn.Module:
    """A linear layer on the patches of a window: a convolution, or ``Linear`` on explicit ones."""
    if window.kernel is None:
        return _linear(filters, bias, dtype)
    return _convolution(filters, bias, window.stride, window.padding, dtype)


def _convolution(
    filters: Array, bias: Array | None, stride: tuple[int, ...], padding: tuple[int, ...], dtype: torch.dtype
) -> torch.nn.Module:
    """A convolution with filters ``(m, *kernel, channels)``."""
    m, *kernel, channels = filters.shape
    with torch.random.fork_rng(devices=[]):  # the initial weights are overwritten
        module = _CONVOLUTIONS[len(kernel)](
            channels, m, tuple(kernel), stride=stride, padding=padding, bias=bias is not None, dtype=dtype
        )
    with torch.no_grad():
        module.weight.copy_(torch.as_tensor(np.ascontiguousarray(np.moveaxis(filters, -1, 1))))
        if bias is not None and module.bias is not None:
            module.bias.copy_(torch.as_tensor(np.ascontiguousarray(bias)))
    return module


#: Layers of convolutional networks that a file may hold, besides those of dense ones.
LAYERS: list[Any] = [
    *_CONVOLUTIONS.values(),
    *_NORMALISATIONS.values(),
    *_AVERAGES.values(),
    *_WRAPS.values(),
    torch.nn.Flatten,
    SumPool,
    PatchSum,
    Last,
    SwappedNorm,
    GatedConvolution,
]

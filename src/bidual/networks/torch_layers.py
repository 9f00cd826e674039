"""The last two layers of a torch module: what comes before them, and others in their place."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import numpy as np
import torch

from bidual._util.typing import Array, FloatArray
from bidual.networks.batch_norm import BatchNormNetwork
from bidual.networks.torch_bridge import numbers

#: How a module ends whose last hidden layer is normalised before its ReLU.
_END = (torch.nn.Linear, torch.nn.BatchNorm1d, torch.nn.ReLU, torch.nn.Linear)
#: Of torch's normalisation, which wants it to be positive; the values that enter have variance one.
_EPS = 1e-12


def last_two_layers(module: torch.nn.Module) -> tuple[torch.nn.Sequential, list[torch.nn.Module]]:
    """What a ``Sequential`` does before its last two layers, and these: ``[Linear, BatchNorm1d, ReLU, Linear]``.

    Raises
    ------
    ValueError
        If it does not end so.
    """
    steps = list(_steps(module))
    end = steps[-len(_END) :]
    if len(end) < len(_END) or not all(isinstance(step, kind) for step, kind in zip(end, _END, strict=True)):
        raise ValueError(
            "the module must be a torch.nn.Sequential that ends in Linear, BatchNorm1d, ReLU, Linear; got "
            f"{', '.join(type(step).__name__ for step in end) or 'nothing'}"
        )
    return torch.nn.Sequential(*steps[: -len(_END)]), end


def _steps(module: torch.nn.Module) -> Iterator[torch.nn.Module]:
    if isinstance(module, torch.nn.Sequential):
        for child in module:
            yield from _steps(child)
    else:
        yield module


def as_network(end: list[torch.nn.Module]) -> BatchNormNetwork:
    """Two last layers as they are in evaluation mode, in the units of torch.

    Raises
    ------
    ValueError
        If the normalisation has no statistics or no weights.
    """
    first, norm, _, last = end
    assert isinstance(first, torch.nn.Linear)
    assert isinstance(norm, torch.nn.BatchNorm1d)
    assert isinstance(last, torch.nn.Linear)
    if norm.running_mean is None or norm.running_var is None or not norm.affine:
        raise ValueError("the last BatchNorm1d must have statistics and weights: track_running_stats, affine=True")
    bias = 0.0 if first.bias is None else numbers(first.bias)
    return BatchNormNetwork(
        hidden_weights=numbers(first.weight),
        output_weights=numbers(last.weight).T,
        gamma=numbers(norm.weight),
        shift=numbers(norm.bias),
        mean=numbers(norm.running_mean) - bias,
        norm=np.sqrt(numbers(norm.running_var) + norm.eps),
        n_samples=1.0,
        intercept=None if last.bias is None else numbers(last.bias),
    )


def feature_map(module: torch.nn.Module, like: torch.nn.Module) -> Callable[[Array], FloatArray]:
    """What a module computes in evaluation mode, of rows in the precision and on the device of the weights ``like``."""
    weight = next(like.parameters())

    def features(X: Array) -> FloatArray:
        frozen = copy.deepcopy(module).eval()  # the module stays as it is, statistics included
        with torch.no_grad():
            H = frozen(torch.as_tensor(np.asarray(X), dtype=weight.dtype, device=weight.device))
        return np.asarray(H.to("cpu", torch.float64).numpy())

    return features


def with_last_layers(module: torch.nn.Module, network: BatchNormNetwork) -> torch.nn.Sequential:
    """A copy of the module in evaluation mode, whose last two layers are those of ``network``.

    The eps of the new ``BatchNorm1d`` is next to nothing, so that its weights are the scales themselves.
    """
    body, end = last_two_layers(module)
    weight = next(end[0].parameters())
    layers = list(network.to_torch(torch.float64))
    norm = layers[1]
    assert isinstance(norm, torch.nn.BatchNorm1d)
    assert norm.running_var is not None
    with torch.no_grad():
        norm.weight.mul_(torch.sqrt((norm.running_var + _EPS) / (norm.running_var + norm.eps)))
    norm.eps = _EPS
    new = torch.nn.Sequential(*layers).to(dtype=weight.dtype, device=weight.device)
    return torch.nn.Sequential(*copy.deepcopy(body), *new).eval()

"""To and from torch. Imported only when asked for."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from bidual._util.extras import advice

try:
    import torch
except ImportError as error:  # pragma: no cover - depends on the installation
    raise ImportError(advice("this", "torch", "torch")) from error

from bidual._util.typing import Array
from bidual.networks.base import Network

if TYPE_CHECKING:
    from bidual.networks.batch_norm import BatchNormNetwork
    from bidual.networks.deep import DeepNetwork
    from bidual.networks.gated import GatedNetwork
    from bidual.networks.standardised import StandardisedNetwork
    from bidual.networks.two_layer import TwoLayerNetwork

Kind = TypeVar("Kind", bound=Network)


def _linear(weight: Array, bias: Array | None, dtype: torch.dtype) -> torch.nn.Linear:
    out_features, in_features = weight.shape
    # The initial weights are overwritten: leave the user's random stream alone, and do not warn if there are none.
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings(action="ignore"):
        layer = torch.nn.Linear(in_features, out_features, bias=bias is not None, dtype=dtype)
    with torch.no_grad():
        layer.weight.copy_(torch.as_tensor(np.ascontiguousarray(weight)))
        if bias is not None:
            layer.bias.copy_(torch.as_tensor(np.ascontiguousarray(bias)))
    return layer


def two_layer_module(network: TwoLayerNetwork, dtype: torch.dtype | None) -> torch.nn.Sequential:
    """``Sequential(Linear, ReLU, Linear)`` with the weights of ``network``."""
    dtype = torch.float64 if dtype is None else dtype
    return torch.nn.Sequential(
        _linear(network.hidden_weights, network.hidden_bias, dtype),
        torch.nn.ReLU(),
        _linear(network.output_weights.T, network.intercept, dtype),
    )


class Standardise(torch.nn.Module):
    """``(x - centre) / scale``, column by column; of tensors with channels first, channel by channel."""

    centre: torch.Tensor
    scale: torch.Tensor

    def __init__(self, centre: torch.Tensor, scale: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("centre", centre)
        self.register_buffer("scale", scale)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Inputs as the network behind sees them."""
        return (x - self.centre) / self.scale


def standardised_module(network: StandardisedNetwork, dtype: torch.dtype | None) -> torch.nn.Sequential:
    """``Sequential(Standardise, the inner module)``."""
    window = getattr(network.layer, "window", None)
    axes = 0 if window is None or window.kernel is None else len(window.kernel)  # behind the channels

    def buffer(values: Array) -> torch.Tensor:
        kind = torch.float64 if dtype is None else dtype
        return torch.as_tensor(values, dtype=kind).reshape(-1, *[1] * axes)

    first = Standardise(buffer(network.centre), buffer(network.scale))
    return torch.nn.Sequential(first, network.layer.to_torch(dtype))


def batch_norm_module(network: BatchNormNetwork, dtype: torch.dtype | None) -> torch.nn.Sequential:
    """``Sequential(Linear, BatchNorm1d, ReLU, Linear)``, or with the ReLU first, in evaluation mode."""
    dtype = torch.float64 if dtype is None else dtype
    network = network if network.n_neurons else heard(network)
    layer = batch_norm_layer(network, torch.nn.BatchNorm1d, dtype)
    middle = [layer, torch.nn.ReLU()] if network.position == "before" else [torch.nn.ReLU(), layer]
    return torch.nn.Sequential(
        _linear(network.hidden_weights, network.hidden_bias, dtype),
        *middle,
        _linear(network.output_weights.T, network.intercept, dtype),
    ).eval()


def heard(network: Kind) -> Kind:
    """A network without neurons with one that does nothing: torch cannot run some layers of none."""
    one = {
        name: np.full((1, *w.shape[1:]), float(name == "norm"))
        for name, w in network.weights().items()
        if w is not None and w.shape[:1] == (0,)
    }
    return type(network)(**{**network.weights(), **one})


def batch_norm_layer(network: BatchNormNetwork, kind: Callable[..., torch.nn.Module], dtype: torch.dtype) -> Any:
    """The normalisation of ``network`` as a torch layer of this kind.

    torch divides by the root of variance plus eps where we divide by the norm: the scale makes up for both.
    """
    layer: Any = kind(network.n_neurons, dtype=dtype)
    variance = network.norm**2 / network.n_samples
    scale = network.gamma * np.sqrt(variance + layer.eps) / network.norm
    with torch.no_grad():
        layer.weight.copy_(torch.as_tensor(scale))
        layer.bias.copy_(torch.as_tensor(network.shift / np.sqrt(network.n_samples)))
        layer.running_mean.copy_(torch.as_tensor(network.mean))
        layer.running_var.copy_(torch.as_tensor(variance))
    return layer


def deep_module(network: DeepNetwork, dtype: torch.dtype | None) -> torch.nn.Sequential:
    """``Sequential(Linear, ReLU, ..., Linear)``; a whitening is a first ``Linear``, not to be trained."""
    dtype = torch.float64 if dtype is None else dtype
    modules: list[torch.nn.Module] = []
    if network.whitening is not None or network.whitening_bias is not None:
        whitening = np.eye(network.n_inputs) if network.whitening is None else network.whitening
        modules.append(_linear(whitening.T, network.whitening_bias, dtype).requires_grad_(False))
    for W, b in zip(network.layers, network.biases, strict=True):
        modules.append(_linear(W.T, b, dtype))
        if network.activation == "relu":
            modules.append(torch.nn.ReLU())
    return torch.nn.Sequential(*(modules[:-1] if network.activation == "relu" else modules))


class GatedModule(torch.nn.Module):
    r""":math:`\sum_i 1[g_i^T x + h_i \ge 0] (W_i^T x + c_i) + b`; gates are buffers, the rest can be trained on."""

    gate_weights: torch.Tensor
    gate_bias: torch.Tensor | None
    linear_bias: torch.nn.Parameter | None

    def __init__(self, network: GatedNetwork, dtype: torch.dtype | None = None) -> None:
        super().__init__()

        def tensor(values: Array) -> torch.Tensor:
            return torch.as_tensor(np.array(values), dtype=torch.float64 if dtype is None else dtype)

        gate_bias, linear_bias = network.gate_bias, network.linear_bias
        self.register_buffer("gate_weights", tensor(network.gate_weights))
        self.register_buffer("gate_bias", None if gate_bias is None else tensor(gate_bias))
        self.linear_weights = torch.nn.Parameter(tensor(network.linear_weights))
        self.linear_bias = None if linear_bias is None else torch.nn.Parameter(tensor(linear_bias))
        self.intercept = torch.nn.Parameter(tensor(network.intercept))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Outputs ``(n, C)``."""
        reach = x @ self.gate_weights.T
        gates = (reach >= 0 if self.gate_bias is None else reach + self.gate_bias >= 0).to(x.dtype)
        mixed = torch.einsum("nm,mdc->ndc", gates, self.linear_weights)
        F = torch.einsum("nd,ndc->nc", x, mixed) + self.intercept
        return F if self.linear_bias is None else F + gates @ self.linear_bias


def numbers(tensor: Any) -> Array:
    """A tensor of weights in double precision; ValueError if it holds anything but real numbers."""
    check_numbers(tensor)
    return np.asarray(tensor.detach().to("cpu", torch.float64).numpy())


def check_numbers(tensor: Any) -> None:
    """ValueError if a tensor of weights holds anything but real numbers."""
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"weights must be tensors, got a {type(tensor).__name__}")
    if tensor.is_complex() or tensor.is_quantized or tensor.layout is not torch.strided:
        raise ValueError(f"weights must be dense tensors of real numbers, got {tensor.dtype} in {tensor.layout}")
    if isinstance(tensor, torch.nn.UninitializedParameter | torch.nn.UninitializedBuffer):
        raise ValueError("the weights of a lazy module have no values yet: run it once")
    if tensor.is_meta:
        raise ValueError("the weights are on the device 'meta', where they have no values: load them first")


#: Layers of dense networks that a file may hold.
_LAYERS: list[Any] = [
    torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ParameterList, torch.nn.Linear, torch.nn.ReLU,
    torch.nn.LeakyReLU, torch.nn.Dropout, torch.nn.Identity,
]  # fmt: skip


def read_module(path: str | os.PathLike[str]) -> torch.nn.Module:
    """What ``torch.save`` wrote: a module of layers that :func:`bidual.networks.from_torch` knows.

    Of Linear, ReLU, Linear the state dict is enough; that of others does not say where the layers stand.
    """
    from bidual.networks.layerwise_torch import LayerwiseModule
    from bidual.networks.parallel_torch import ParallelModule
    from bidual.networks.torch_conv import LAYERS

    ours = [Standardise, GatedModule, ParallelModule, LayerwiseModule]
    try:
        with torch.serialization.safe_globals([*_LAYERS, *ours, *LAYERS]):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise
    except Exception as error:  # torch raises anything from EOFError to RuntimeError
        raise ValueError(
            f"{path} cannot be read safely: save a torch.nn.Sequential of layers that bidual.networks.from_torch "
            "knows, or the state_dict of Sequential(Linear, ReLU, Linear); of a class of your own, from_torch(module) "
            f"as JSON ({type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no details'})"
        ) from error
    if isinstance(content, torch.nn.Module):
        return content
    names = list(content) if isinstance(content, dict) else []
    weights = [name for name in names if isinstance(name, str) and name.endswith("weight")]
    expected = {*weights, *(name[: -len("weight")] + "bias" for name in weights)}
    two = len(weights) == 2 and all(getattr(content[name], "ndim", 0) == 2 for name in weights)
    if not two or not expected.issuperset(names):
        held = ", ".join(map(str, names[:6])) or type(content).__name__
        if any(getattr(content[name], "ndim", 0) > 2 for name in weights):
            raise ValueError(
                f"{path} holds the weights of convolutions ({held}) without their stride, padding and pooling: save "
                "the module itself, torch.save(module, path)"
            )
        raise ValueError(
            f"{path} holds {held}, not the weights of two linear layers: save the module itself, "
            "torch.save(module, path)"
        )

    def linear(name: str) -> torch.nn.Linear:
        weight, bias = numbers(content[name]), content.get(name[: -len("weight")] + "bias")
        b = None if bias is None else numbers(bias)
        if b is not None and b.shape != weight.shape[:1]:
            raise ValueError(
                f"{path} holds a bias of shape {b.shape} beside {name} of shape {weight.shape}: expected one number "
                "for each of its rows"
            )
        return _linear(weight, b, torch.float64)

    return torch.nn.Sequential(linear(weights[0]), torch.nn.ReLU(), linear(weights[1]))


def last_layer(module: torch.nn.Module) -> tuple[Callable[[Array], Array], Array]:
    """What a ``Sequential`` does before its last ``Linear``, as a function of arrays, and the weights ``(m, C)``."""
    layers = list(module.children()) if isinstance(module, torch.nn.Sequential) else []
    if not layers or not isinstance(layers[-1], torch.nn.Linear):
        raise ValueError(
            f"expected a torch.nn.Sequential that ends in Linear, got {type(module).__name__}; give the feature map "
            "as a function instead"
        )
    body, last = torch.nn.Sequential(*layers[:-1]), layers[-1]
    training = module.training

    def features(X: Array) -> Array:
        module.eval()
        with torch.no_grad():
            H = body(torch.as_tensor(X, dtype=last.weight.dtype, device=last.weight.device))
        module.train(training)
        return np.asarray(H.to("cpu", torch.float64).numpy())

    return features, numbers(last.weight).T

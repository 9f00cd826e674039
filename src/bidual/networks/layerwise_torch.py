"""Stages on top of each other as a torch module. Imported only when asked for."""

from __future__ import annotations

from bidual._util.extras import advice

try:
    import torch
except ImportError as error:  # pragma: no cover - depends on the installation
    raise ImportError(advice("this", "torch", "torch")) from error

from bidual.networks.layerwise import LayerwiseNetwork
from bidual.networks.parallel_torch import ParallelModule


class LayerwiseModule(torch.nn.Module):
    """The stages of a :class:`~bidual.networks.LayerwiseNetwork`, each seeing the features of the one before."""

    def __init__(self, network: LayerwiseNetwork, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.passthrough = network.passthrough
        self.stages = torch.nn.ModuleList(stage.to_torch(dtype) for stage in network.stages)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Outputs ``(n, C)``."""
        now = x
        for stage in list(self.stages)[:-1]:
            features = _features(stage, now)
            now = torch.cat([features, x], dim=1) if self.passthrough else features
        return self.stages[-1](now)


def _features(stage: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    """The last hidden activations, each times the norm of its output weights."""
    if isinstance(stage, ParallelModule):
        return stage.hidden(x) * stage.output_weights.norm(dim=1)
    if not isinstance(stage, torch.nn.Sequential) or not isinstance(stage[-1], torch.nn.Linear):
        raise TypeError(f"a {type(stage).__name__} has no last hidden layer to build on")
    return stage[:-1](x) * stage[-1].weight.norm(dim=0)

"""Networks trained one after the other, each on the features of the one before (002 Fig. 6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bidual._util.typing import Array, FloatArray
from bidual.networks.base import Network

if TYPE_CHECKING:
    import torch


class LayerwiseNetwork(Network):
    r"""Stages on top of each other: :math:`f(x) = f_S(h_{S-1}(\cdots h_1(x)))`.

    The features :math:`h_s` of a stage are its last hidden activations, each times the norm of its output weights, and
    beside them the inputs of the network if these pass through.

    Parameters
    ----------
    stages : sequence of Network
    passthrough : bool, default=True
        Whether every stage sees the inputs too.
    """

    kind = "layerwise"

    def __init__(self, stages: Sequence[Network], passthrough: bool = True) -> None:
        if not stages:
            raise ValueError("a layerwise network needs at least one stage")
        self.stages, self.passthrough = list(stages), bool(passthrough)
        for k, (stage, above) in enumerate(zip(self.stages[:-1], self.stages[1:], strict=True), start=1):
            width = n_features(stage) + self.n_inputs * self.passthrough
            if above.n_inputs != width:
                raise ValueError(f"stage {k + 1} takes {above.n_inputs} inputs, but stage {k} has {width} features")

    @property
    def n_inputs(self) -> int:
        return self.stages[0].n_inputs

    @property
    def n_outputs(self) -> int:
        return self.stages[-1].n_outputs

    @property
    def n_neurons(self) -> int:
        return sum(stage.n_neurons for stage in self.stages)

    def features(self, X: FloatArray) -> FloatArray:
        """What the last stage sees."""
        now = X
        for stage in self.stages[:-1]:
            now = stage_features(stage, now, X if self.passthrough else None)
        return now

    def forward(self, X: FloatArray) -> FloatArray:
        return self.stages[-1].forward(self.features(X))

    def penalty(self) -> float:
        """Of the last stage: the ones before it are not trained together with it."""
        return self.stages[-1].penalty()

    def weights(self) -> dict[str, Array | None]:
        return {f"{k}.{name}": w for k, s in enumerate(self.stages, 1) for name, w in s.weights().items()}

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "n_inputs": self.n_inputs,
            "n_outputs": self.n_outputs,
            "passthrough": self.passthrough,
            "stages": [stage.to_dict() for stage in self.stages],
        }

    @classmethod
    def _rebuild(cls, data: dict[str, Any]) -> LayerwiseNetwork:
        return cls([Network.from_dict(stage) for stage in data["stages"]], data["passthrough"])

    def to_torch(self, dtype: torch.dtype | None = None) -> torch.nn.Module:
        from bidual.networks.layerwise_torch import LayerwiseModule

        return LayerwiseModule(self, dtype)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.stages))})"


def n_features(stage: Network) -> int:
    """Number of features of a stage."""
    return len(_heads(stage))


def stage_features(stage: Network, inputs: FloatArray, through: FloatArray | None) -> FloatArray:
    """Features of a stage, and the inputs that pass through beside them."""
    hidden = getattr(stage, "hidden", None)
    if hidden is None:
        raise TypeError(f"a {stage.kind} network has no hidden layer to build on")
    features = hidden(inputs) * np.linalg.norm(_heads(stage), axis=1)
    return features if through is None else np.column_stack([features, through])


def _heads(stage: Network) -> FloatArray:
    heads = getattr(stage, "output_weights", None)
    if heads is None:
        raise TypeError(f"a {stage.kind} network has no output layer to build on")
    return np.asarray(heads)

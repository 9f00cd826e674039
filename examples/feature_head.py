"""A certified head on frozen features.

Any map to features may stand in front: a scikit-learn transformer, or a torch network whose last layer was taken off.
Training the head is a convex problem, so that its optimality can be proven, whatever the features are.

    python examples/feature_head.py [--torch] [--patterns 100] [--beta 1e-3]
"""

from __future__ import annotations

import argparse

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.datasets import load_digits
from sklearn.kernel_approximation import Nystroem
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from bidual import PrincipalAxes, ReLUClassifier


class TorchFeatures(TransformerMixin, BaseEstimator):
    """Outputs of a frozen torch module, batch by batch: any backbone, on any device.

    Parameters
    ----------
    module : torch.nn.Module
        From a batch of inputs to ``(batch, features)``.
    shape : tuple of int
        Shape of one input; rows of X are reshaped to it.
    device : str
    """

    def __init__(self, module, shape, device="cpu", batch=512):
        self.module = module
        self.shape = shape
        self.device = device
        self.batch = batch

    def fit(self, X, y=None):
        """Nothing to learn: the backbone is frozen."""
        return self

    def __sklearn_is_fitted__(self):
        return True

    def transform(self, X):
        """Features in single precision."""
        import torch

        module = self.module.to(self.device).eval()
        parts = []
        with torch.no_grad():
            for i in range(0, len(X), self.batch):
                rows = np.asarray(X[i : i + self.batch], dtype=np.float32).reshape(-1, *self.shape)
                parts.append(module(torch.from_numpy(rows).to(self.device)).cpu().numpy())
        return np.concatenate(parts)


def backbone():
    """A stand-in for yours: random convolutions. With torchvision: a resnet with ``model.fc = torch.nn.Identity()``."""
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 128, 4), torch.nn.ReLU(), torch.nn.AvgPool2d(2, stride=1), torch.nn.Flatten()
    )


def main() -> None:
    """Train the head, and say what is proven about it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torch", action="store_true", help="features of a torch network instead of a kernel map")
    parser.add_argument("--patterns", type=int, default=50, help="gates of the head")
    parser.add_argument("--beta", type=float, default=2e-3, help="weight decay")
    args = parser.parse_args()

    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X / 16.0, y, test_size=0.3, random_state=0)
    frozen = TorchFeatures(backbone(), (1, 8, 8)) if args.torch else Nystroem(n_components=200, random_state=0)
    head = ReLUClassifier(
        beta=args.beta, activation="gated", n_patterns=args.patterns, tol=1e-2, backend="numpy", random_state=0
    )
    # principal axes: the head is trained in few directions of equal size, which changes nothing but the time
    model = make_pipeline(frozen, PrincipalAxes(60), head).fit(X_train, y_train)
    print(head.certificate_)
    print(f"test accuracy {100 * model.score(X_test, y_test):.2f} %")


if __name__ == "__main__":
    main()

"""PyTorch: Adam and L-BFGS on the weights, as one trains a network."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from problems import Problem

from .common import Clock, Trace, network_objective

RATES = (1e-3, 3e-3, 1e-2, 3e-2)


def _network(problem: Problem, width: int, seed: int, dtype: torch.dtype) -> torch.nn.Sequential:
    torch.manual_seed(seed)
    d = problem.shape[1]
    layers = torch.nn.Linear(d, width, bias=False), torch.nn.ReLU(), torch.nn.Linear(width, 1, bias=False)
    return torch.nn.Sequential(*layers).to(dtype)


def _loss(problem: Problem, net: torch.nn.Sequential, dtype: torch.dtype) -> Callable[[], torch.Tensor]:
    X, y = torch.as_tensor(problem.X, dtype=dtype), torch.as_tensor(problem.y, dtype=dtype)[:, None]
    hidden, output = net[0].weight, net[2].weight

    def value() -> torch.Tensor:
        decay = hidden.square().sum() + output.square().sum()
        return 0.5 * (net(X) - y).square().mean() + 0.5 * problem.beta * decay

    return value


def _exact(problem: Problem, net: torch.nn.Sequential) -> float:
    hidden, output = (net[k].weight.detach().double().numpy() for k in (0, 2))
    return network_objective(problem.X, problem.y, problem.beta, hidden, output[0])


class Adam:
    """Full batch, float32, cosine rate over ``steps``; the rate is tuned on seed 0 by short runs of their own.

    Tuning is not charged to the run; its cost is in ``extra``.
    """

    def __init__(self, width: int, steps: int, pilot_steps: int | None = None) -> None:
        self.width, self.steps = width, steps
        self.pilot_steps = steps // 8 if pilot_steps is None else pilot_steps
        self._tuned: dict[str, tuple[float, float]] = {}

    def __call__(self, problem: Problem, seed: int, limit: float) -> Trace:
        """Train until the schedule ends or the time is over."""
        if problem.key not in self._tuned:
            clock = Clock()
            pilots = {rate: self._train(problem, 0, rate, self.pilot_steps, limit).best for rate in RATES}
            self._tuned[problem.key] = min(pilots, key=pilots.__getitem__), clock.seconds
        rate, tuning = self._tuned[problem.key]
        trace = self._train(problem, seed, rate, self.steps, limit)
        trace.extra |= {"rate": rate, "tuning_seconds": tuning}
        return trace

    def _train(self, problem: Problem, seed: int, rate: float, steps: int, limit: float) -> Trace:
        clock, trace = Clock(), Trace(neurons=self.width)
        net = _network(problem, self.width, seed, torch.float32)
        loss = _loss(problem, net, torch.float32)
        optimiser = torch.optim.Adam(net.parameters(), lr=rate)
        every = max(1, steps // 100)
        for step in range(1, steps + 1):
            for group in optimiser.param_groups:
                group["lr"] = 0.5 * rate * (1.0 + math.cos(math.pi * (step - 1) / steps))
            optimiser.zero_grad()
            loss().backward()
            optimiser.step()
            if step % every == 0 or step == steps or clock.seconds > limit:
                with clock.paused():
                    trace.add(clock.seconds, _exact(problem, net))
                if clock.seconds > limit:
                    trace.note = f"stopped by the time limit after {step} of {steps} steps"
                    break
        return trace


class LBFGS:
    """``torch.optim.LBFGS`` with the strong Wolfe line search, float64."""

    def __init__(self, width: int) -> None:
        self.width = width

    def __call__(self, problem: Problem, seed: int, limit: float) -> Trace:
        """Train until the objective no longer falls or the time is over."""
        clock, trace = Clock(), Trace(neurons=self.width)
        net = _network(problem, self.width, seed, torch.float64)
        loss = _loss(problem, net, torch.float64)
        optimiser = torch.optim.LBFGS(
            net.parameters(),
            max_iter=20,
            history_size=20,
            line_search_fn="strong_wolfe",
            tolerance_grad=1e-10,
            tolerance_change=0.0,
        )

        def closure() -> torch.Tensor:
            optimiser.zero_grad()
            value = loss()
            value.backward()
            return value

        stalled = 0
        while clock.seconds < limit and stalled < 10:
            before = trace.best
            optimiser.step(closure)
            with clock.paused():
                trace.add(clock.seconds, _exact(problem, net))
            stalled = 0 if trace.best < before * (1 - 1e-9) else stalled + 1
        trace.note = "stalled" if stalled else ""
        return trace

"""PyTorch: Adam and L-BFGS on the weights, as one trains a network."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

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


def fastest_threads(problem: Problem, width: int) -> tuple[int, float]:
    """The number of threads with the fastest steps, and the seconds of a step.

    More threads are often slower at these sizes, and many times slower when the machine has other work.
    """
    measured = {}
    for threads in dict.fromkeys((1, os.cpu_count() or 1)):
        torch.set_num_threads(threads)
        net = _network(problem, width, 0, torch.float32)
        loss, optimiser = _loss(problem, net, torch.float32), torch.optim.Adam(net.parameters())
        seconds: list[float] = []
        while len(seconds) < 10 or sum(seconds) < 0.5:
            began = time.perf_counter()
            optimiser.zero_grad()
            loss().backward()
            optimiser.step()
            seconds.append(time.perf_counter() - began)
        # the mean: with more threads than free cores most steps are fast and some stall
        measured[threads] = statistics.fmean(seconds[5:])
    # noise must not decide for more threads
    threads = min(measured, key=lambda k: measured[k] * (1.0 if k == 1 else 1.2))
    return threads, measured[threads]


@dataclass(frozen=True)
class _Tuned:
    rate: float
    threads: int
    steps: int
    seconds: float


class Adam:
    """Full batch, float32, cosine rate over ``steps``, or as many of them as fit the time limit.

    Step size and number of threads are tuned on seed 0 by short runs of their own, whose time is not charged; it is
    in ``extra``.
    """

    def __init__(self, width: int, steps: int, pilot_steps: int | None = None) -> None:
        self.width, self.steps = width, steps
        self.pilot_steps = steps // 8 if pilot_steps is None else pilot_steps
        self._tuned: dict[str, _Tuned] = {}

    def __call__(self, problem: Problem, seed: int, limit: float) -> Trace:
        """Train until the schedule ends, or half as long again as the limit if the machine turns slow."""
        if problem.key not in self._tuned:
            self._tuned[problem.key] = self._tune(problem, limit)
        tuned = self._tuned[problem.key]
        torch.set_num_threads(tuned.threads)
        trace = self._train(problem, seed, tuned.rate, tuned.steps, 1.5 * limit)
        if tuned.steps < self.steps:
            trace.note = trace.note or f"fewer steps, so that the schedule fits {limit:g} s"
        trace.extra = {
            "rate": tuned.rate,
            "threads": tuned.threads,
            "steps": tuned.steps,
            "tuning_seconds": tuned.seconds,
        }
        return trace

    def _tune(self, problem: Problem, limit: float) -> _Tuned:
        clock = Clock()
        threads, step = fastest_threads(problem, self.width)
        torch.set_num_threads(threads)
        pilots = {rate: self._train(problem, 0, rate, self.pilot_steps, limit).best for rate in RATES}
        steps = min(self.steps, max(100, int(0.9 * limit / step)))
        return _Tuned(min(pilots, key=pilots.__getitem__), threads, steps, clock.seconds)

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
        torch.set_num_threads(fastest_threads(problem, self.width)[0])
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

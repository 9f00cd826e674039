"""000 Fig. 3: the closed form of Theorem 2.4 against gradient descent."""

from __future__ import annotations

from reproductions.closed_bn import compare
from reproductions.framework import Context, Outcome, experiment, judge


@experiment(
    "000-fig3",
    title="Batch normalisation, three classes: formula and gradient descent",
    claim="The formula finds in a second a global optimum that gradient descent does not reach; its test accuracy "
    "is lower than that of gradient descent.",
    paper="formula 0.578 s, gradient descent 50 minutes for each of 5 runs; test accuracy 47.7 % (formula), 60.1 % "
    "(GD)",
)
def run(context: Context) -> Outcome:
    """n = 1500, d = 3072, m = 1000, beta = 1, three classes."""
    n, m = context.pick(quick=300, default=900, full=1500), context.pick(quick=100, default=200, full=1000)
    epochs, runs = context.pick(quick=300, default=500, full=40_000), context.pick(quick=2, default=3, full=5)
    found = compare(context, "000-fig3", classes=3, n=n, m=m, runs=runs, epochs=epochs)
    return Outcome(
        judge(found.gap < 1e-9 and found.ends.min() > found.formula, found.formula_test < found.tests.mean()),
        ours=f"formula {found.formula:.4f} in {found.seconds:.2f} s, best run {found.ends.min():.4f} "
        f"(+{100 * (found.ends.min() / found.formula - 1):.2g} %); test accuracy {found.formula_test:.1f} % "
        f"(formula), {found.tests.mean():.1f} % (GD)",
        sizes=f"n = {n} (1500), m = {m} (1000), {runs} runs (5) of {epochs} steps (40001); CIFAR-10 for CIFAR-100",
        details=found.details,
    )

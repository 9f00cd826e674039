"""002 Fig. 7: singular values of image sets, and the rank that Theorem 2 asks for."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import svds

from bidual import Parallel, low_rank
from reproductions.framework import Context, Outcome, experiment, judge, table

#: m1 and beta of the image experiments of the paper (Fig. 5); the loss is a mean.
M1, BETA = 100, 1e-3
#: Factors by which low rank may raise the objective.
FACTORS = (2.0, 10.0)
#: Singular values below this fraction of the largest one are left out of the fits of their decay.
FLOOR = 1e-3


@experiment(
    "002-fig7",
    title="Singular values of MNIST and CIFAR-10, and the rank that Theorem 2 needs",
    claim="The singular values of image sets decay exponentially, so that Theorem 2 allows training at low rank.",
    paper="curves only: normalised singular values on a log scale, falling fast",
)
def run(context: Context) -> Outcome:
    """Pixels in [0, 1] as they are; ranks for the cross-entropy of ten classes, at the paper's m1 and beta."""
    n = context.pick(quick=1_000, default=6_000, full=50_000)
    figure, axis = plt.subplots(figsize=(6, 3.8), layout="constrained")
    rows, concentrated, exponential, useful = [], [], [], []
    for name in ("mnist", "cifar10"):
        arrays = context.data.load(name)
        X = arrays["X_train"][:n].reshape(len(arrays["X_train"][:n]), -1) / 255.0
        prices = low_rank(X, arrays["y_train"][:n], beta=BETA, architecture=Parallel(M1), loss="softmax")
        first = float(svds(X, k=1, return_singular_vectors=False, random_state=0)[0])
        sigma = np.append(1.0, prices.sigmas[:-1] / first)
        energy = np.cumsum(sigma**2) / (sigma**2).sum()
        held = int(np.searchsorted(energy, 0.95)) + 1
        seen = sigma[sigma > FLOOR]
        k = np.arange(1.0, len(seen) + 1)
        fits = _straightness(k, np.log(seen)), _straightness(np.log(k), np.log(seen))
        ranks = [prices.rank_for(factor) for factor in FACTORS]
        # of a loss of bounded slope the factor minus one is proportional to 1 / beta
        alone = [BETA * float(prices.factors[rank - 1] - 1.0) for rank in (held, len(sigma) // 2)]
        concentrated.append(held <= 0.2 * len(sigma))
        exponential.append(fits[0] > fits[1])
        useful.append(ranks[0] <= 0.5 * len(sigma))
        rows.append((name, len(X), len(sigma), held, *fits, *ranks, *alone))
        context.log(str(rows[-1]))
        axis.semilogy(np.arange(1, len(sigma) + 1), sigma, label=f"{name}, {len(X)} rows")
        axis.plot(ranks[0], max(sigma[min(ranks[0], len(sigma)) - 1], 1e-6), "o", color=axis.lines[-1].get_color())
    axis.set(xlabel="index", ylabel="singular value / the largest", ylim=(1e-6, 2.0))
    axis.legend(title="dots: rank for a factor of 2", frameon=False)
    context.save(figure, "002-fig7.png")
    header = [
        "set", "rows", "rank", "directions with 95 % of the squares", "R² of an exponential", "R² of a power law",
        *(f"rank for a factor of {factor:g}" for factor in FACTORS), "beta for 2 at that 95 %", "beta for 2 at half",
    ]  # fmt: skip
    note = (
        f"Ranks by `bidual.low_rank`: the smallest with 1 + sqrt(m1) R sigma / beta at most the factor, for m1 = {M1}, "
        f"beta = {BETA:g} and the cross-entropy (mean over the rows). The last two columns turn it round: the beta "
        "from which a factor of two is guaranteed, at the rank that holds 95 % of the squares and at half of the full "
        f"rank. Decays are fitted to the singular values above {FLOOR:g} of the largest, as a straight line of log "
        "sigma over the index (exponential) and over its logarithm (power law). The claim holds if a fifth of the "
        "directions have those 95 %, the exponential fits better, and half of the rank is enough for a factor of two."
    )
    return Outcome(
        judge(all(concentrated), all(exponential), all(useful)),
        ours="; ".join(
            f"{row[0]}: {row[3]} of {row[2]} directions hold 95 % of the squares, Theorem 2 asks for rank {row[6]} for "
            f"a factor of {FACTORS[0]:g}"
            for row in rows
        ),
        sizes=f"{n} rows",
        details=f"{note}\n\n{table(header, rows)}",
    )


def _straightness(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """The share of the variance of y that a straight line in x explains."""
    return float(np.corrcoef(x, y)[0, 1] ** 2)

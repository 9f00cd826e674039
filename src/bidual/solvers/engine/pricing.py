r"""Pricing: which neuron violates the dual constraint most.

For a gradient V at the outputs, :math:`G = A^T V` at the lifted rows, the question is

.. math:: g(V) = \max_{\|u\| \le 1} \| G^T (M u)_+ \|_2,

a non-convex problem with very many nearly equal local maxima. It is answered by local search from many starts, each
polished to an exact local maximum (:func:`bidual.solvers.engine._polish.polish`); the answer is a lower bound on g,
as good as the starts are varied. :meth:`Pricer.quick` serves the inner loop, :meth:`Pricer.strong` ends it, and
:meth:`Pricer.audit` checks the result from starts that neither of the two has used.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from bidual._util.sparse import in_single, is_sparse
from bidual._util.tuning import tuning
from bidual._util.typing import FloatArray
from bidual._util.watch import current
from bidual.problem import Problem
from bidual.solvers.engine import _kernels
from bidual.solvers.engine._polish import polish
from bidual.solvers.engine.ascents import climb_one, climb_several
from bidual.solvers.engine.candidates import Candidates, unit_rows

#: Starts on their way to less than this share of the best are abandoned.
_HOPE = 0.95
#: Starts of one piece of parallel work.
_PIECE = 4
#: Share of the starts that are polished with the sign that looks worse.
_AGAINST = 0.25
#: Earlier maxima that are kept, and the cosine from which on two are one.
_POOL, _KNOWN = 400, 0.9999
#: Entries of the activations in memory at a time, of screening and of an ascent, whose pieces have at least and
#: at most so many starts: smaller ones are all overhead, larger ones leave threads idle.
_SCORE_ENTRIES, _CLIMB_ENTRIES, _CLIMB_RANGE = 500_000, 2_000_000, (32, 512)
#: Of what was screened, this many times more than is wanted are looked through for ones that differ, by that cosine.
_AMONG, _DIFFERENT = 6, 0.995
#: A quick search: Gaussians and noisy neurons screened for each start that is polished, the noise on them, and the
#: steps of the ascents of both.
_SCREENED, _NOISY, _NOISES, _ASCENT, _SHORT = 8, 24, (0.1, 0.2, 0.4, 0.4), 12, 3
#: The same with several outputs: noise, steps, and the most that are found, no two of which have that cosine.
_NOISES_SEVERAL, _ASCENT_SEVERAL, _FOUND, _FOUND_SAME = (0.1, 0.4), 60, 300, 0.999
#: Steps of the ascents of wider searches, entries of the features times starts that can be polished instead, the least
#: number of ends that are polished, and the share of the starts of a family.
_ASCENT_WIDE, _POLISHED, _LEAST_ENDS, _ENDS = 120, 10_000_000, 4, 16
#: Rows of a sample, ends of ascents on it that are taken up on all rows, and the steps there.
_SAMPLE, _TAKEN_UP, _ASCENT_SHORT = 2000, 100, 12
#: Noise on neurons of a strong search: that of a quick one, and more.
_NOISES_STRONG = (0.1, 0.2, 0.4, 0.8)
#: Rows whose signed sums are starts: few; or many, at most one in so many of all, and so many for each dimension.
_FEW, _SHARE, _EACH = 3, 4, 2
#: The audit projects neurons onto some of the nearest hyperplanes, chosen among so many for each dimension.
_NEAREST = 3


class Pricer:
    """Local search for the most violating neuron, with a memory of earlier maxima.

    Parameters
    ----------
    problem : Problem
    rng : Generator
        Source of all random starts; the results are a function of its state alone, not of the number of threads.
    """

    def __init__(self, problem: Problem, rng: np.random.Generator) -> None:
        self.problem = problem
        self.rng = rng
        X = problem.atoms.reduced
        self.X = X if is_sparse(X) else np.ascontiguousarray(X)
        self.scale = problem.atoms.unit
        self.X32 = in_single(X, self.scale)
        self.rank = X.shape[1]
        self.pool = np.zeros((0, self.rank))
        # Gaussians in the metric of the data: columns of very different scales would all give the same few patterns.
        self._whiten = problem.atoms.metric
        self._remembered = int(np.clip(tuning().pair_weights // max(self.rank, 1), _POOL // 4, _POOL))

    @cached_property
    def XT(self) -> FloatArray:
        """Columns of X, which polishing goes along."""
        return np.ascontiguousarray(self.X.T)

    # ---- local search ------------------------------------------------------------------------

    def polish(self, V: FloatArray, U: FloatArray, A: FloatArray | None = None, floor: float = 0.0) -> Candidates:
        """Exact local maxima from the rows of ``U``.

        With one output, ``A`` holds the signs (default: the sign of the value at the start, for a quarter of them the
        opposite: more starts are worth more than both signs of each). With several, the output direction is optimised
        along with u. ``floor`` is a value known to be attained. When it is time to stop, some starts are left out.
        """
        G = np.ascontiguousarray(self.problem.atoms.spread(V))
        C = G.shape[1]
        U = unit_rows(np.asarray(U, dtype=np.float64)) if A is None else np.asarray(U, dtype=np.float64)
        if A is None:
            A = np.ones((len(U), C)) if C > 1 else self._signs(G, U)
        U, A = np.array(U, order="C"), np.array(A, order="C", dtype=np.float64)
        values = np.zeros(len(U))
        if self.rank and len(U):
            late = current().late
            # the first piece says what is worth finishing: decided before the threads start, so that they do not matter
            for k in range(min(_PIECE, len(U))):
                if k == 0 or not late():
                    polish(self.XT, G, U, A, C > 1, 0.0, values, k, k + 1)
            cutoff = _HOPE * max(float(values.max()), floor)

            def work(start: int, stop: int) -> None:
                for k in range(start + _PIECE, stop + _PIECE):
                    if not late():
                        polish(self.XT, G, U, A, C > 1, cutoff, values, k, k + 1)

            _kernels.over_pieces(work, max(len(U) - _PIECE, 0), _PIECE)
        order = np.argsort(-values, kind="stable")
        order = order[values[order] > 0]
        return Candidates(U[order], A[order], values[order])

    def _signs(self, G: FloatArray, U: FloatArray) -> FloatArray:
        ahead = self._scores(G, U) >= 0
        return np.where(ahead ^ (self.rng.random((len(U), 1)) < _AGAINST), 1.0, -1.0)

    def _scores(self, G: FloatArray, U: FloatArray) -> FloatArray:
        """:math:`G^T (X u)_+` for every row u, in pieces: all at once would be the largest array of the engine."""
        size = max(1, _SCORE_ENTRIES // max(1, self.X.shape[0]))
        pieces = [np.maximum(self.X @ U[i : i + size].T, 0.0).T @ G for i in range(0, len(U), size)]
        return np.vstack(pieces) if pieces else np.zeros((0, G.shape[1]))

    def ascend(
        self, V: FloatArray, U: FloatArray, steps: int, near: bool = False, rows: FloatArray | None = None
    ) -> Candidates:
        """Gradient ascent in float32 from the rows of ``U``, both signs at once; values are approximate.

        With several outputs and on samples, where ``rows`` are how often each row counts, the ascents end in kinks, and
        starts that are ``near`` maxima stay near.
        """
        G, X32 = self.problem.atoms.spread(V), self.X32
        if rows is not None:
            picked = np.flatnonzero(rows)
            G, X32 = G[picked] * rows[picked, None], X32[picked]
        C = G.shape[1]
        signs = C == 1 and rows is None and not near
        size = float(np.abs(G).max(initial=0.0)) or 1.0
        G32 = np.asarray(G / size, dtype=np.float32)
        if signs:
            A = np.repeat(np.array([1.0, -1.0], dtype=np.float32), len(U))
            U32 = np.vstack([U, U]).astype(np.float32)
        else:
            U32, A = U.astype(np.float32), np.zeros((len(U), C), dtype=np.float32)
        values = np.zeros(len(U32), dtype=np.float32)
        watch = current()

        def work(start: int, stop: int) -> None:
            watch.check()
            if signs:
                climb_one(X32, G32, U32[start:stop], A[start:stop], values[start:stop], steps)
            else:
                climb_several(X32, G32, U32[start:stop], A[start:stop], values[start:stop], steps, near, watch)

        # fixed pieces: rounding must not depend on the number of threads
        _kernels.over_pieces(work, len(U32), int(np.clip(_CLIMB_ENTRIES // max(1, X32.shape[0]), *_CLIMB_RANGE)))
        order = np.argsort(-values, kind="stable")
        outputs = A[:, None] if signs else A
        return Candidates(
            U32[order].astype(np.float64),
            outputs[order].astype(np.float64),
            values[order].astype(np.float64) * size * self.scale,
        )

    # ---- start families ----------------------------------------------------------------------

    def gaussians(self, k: int) -> FloatArray:
        """Half of them isotropic, half in the metric of the data."""
        U = self.rng.standard_normal((k, self.rank))
        U[1::2] = U[1::2] @ self._whiten
        return unit_rows(U)

    def explorers(self, k: int) -> FloatArray:
        """``k`` starts of each of four kinds that know nothing of earlier maxima.

        Sums of a few rows with random signs, of many rows, the same in the metric of the data, and Gaussians. Narrow
        maxima lie anywhere, and only numbers find them (one start in thousands; no kind is clearly the best).
        """
        rows = unit_rows(self.X)
        if not len(rows):
            return self.gaussians(k)

        def sums(size: int) -> FloatArray:
            picks = self.rng.integers(len(rows), size=(k, size))
            return np.einsum("ks,ksr->kr", self.rng.choice([-1.0, 1.0], size=(k, size)), rows[picks])

        many = max(2, min(len(rows) // _SHARE, _EACH * self.rank))
        return np.vstack([sums(_FEW), sums(many), sums(many) @ self._whiten, self.gaussians(k)])

    def noisy(self, U: FloatArray, k: int, sigma: float) -> FloatArray:
        """``k`` of the unit rows of ``U``, each moved by Gaussian noise of norm about ``sigma``."""
        if not len(U) or not self.rank:
            return U[:0]
        picked = U[self.rng.integers(len(U), size=k)] if k < len(U) else U
        return unit_rows(picked + sigma / np.sqrt(self.rank) * self.rng.standard_normal(picked.shape))

    def remember(self, found: Candidates) -> None:
        """Keep good maxima as starts for later residuals."""
        pool = np.vstack([found.directions[: self._remembered // 4], self.pool])
        likeness = np.triu(pool @ pool.T, 1) if len(pool) else np.zeros((0, 0))
        self.pool = pool[(likeness < _KNOWN).all(axis=0)][: self._remembered]

    # ---- the three searches ------------------------------------------------------------------

    def _best(self, V: FloatArray, starts: FloatArray, steps: int, k: int) -> tuple[FloatArray, FloatArray]:
        """The best ``k`` distinct points after ``steps`` float32 ascents from ``starts``."""
        chosen = self.ascend(V, starts, steps).take(slice(0, _AMONG * k)).distinct(k, _DIFFERENT)
        return chosen.directions, chosen.outputs

    def _some(self, U: FloatArray, k: int) -> FloatArray:
        return U if len(U) <= k else U[self.rng.permutation(len(U))[:k]]

    def quick(self, V: FloatArray, neurons: FloatArray, effort: int = 32) -> Candidates:
        """Screen many starts in float32, polish ``effort`` of each family: what finds most violations per second.

        Noisy neurons are screened as they are (an ascent would lose the narrow maxima next to them), Gaussians after
        an ascent (as they are, they are worth nothing).
        """
        neurons = unit_rows(neurons)
        if self.problem.n_coefficients > 1:
            return self._quick_vector(V, neurons, effort)
        groups = [self._best(V, self.gaussians(_SCREENED * effort), _ASCENT, effort)]
        if len(neurons):
            copies = 1 + _NOISY * effort // len(neurons)
            near = np.vstack([self.noisy(neurons, len(neurons), s) for s in _NOISES * (1 + copies // len(_NOISES))])
            groups += [
                self._best(V, near, 0, 2 * effort),
                self._best(V, near[: _SCREENED * effort], _SHORT, effort // 2),
                self._best(V, neurons, 0, effort),
            ]
        if len(self.pool):
            groups.append(self._best(V, self.pool, 0, effort))
        found = self.polish(V, np.vstack([u for u, _ in groups]), np.vstack([a for _, a in groups]))
        found = found.joined(self.polish(V, self.explorers(effort // 8), floor=found.best))
        self.remember(found)
        return found

    def _quick_vector(self, V: FloatArray, neurons: FloatArray, effort: int) -> Candidates:
        near = [self.noisy(neurons, max(len(neurons), 2 * effort), s) for s in _NOISES_SEVERAL]
        known = self.ascend(V, np.vstack([neurons, self.pool]), _ASCENT_SEVERAL // 2, near=True)
        climbed = self.ascend(V, np.vstack([self.gaussians(_SCREENED // 2 * effort), *near]), _ASCENT_SEVERAL)
        found = self._polished(V, known.joined(climbed), effort)
        self.remember(found)
        return found

    def sampled(self, V: FloatArray, neurons: FloatArray, effort: int) -> Candidates:
        """A quick search where rows are many: ascents on a sample of them, the best ones taken up on all rows."""
        sizes = np.linalg.norm(self.problem.atoms.spread(V), axis=1)
        if not sizes.any():
            return Candidates.none(self.rank, V.shape[1])
        expected = np.minimum(1.0, _SAMPLE * sizes / sizes.sum())
        rows = (self.rng.random(len(sizes)) < expected) / np.maximum(expected, 1e-300)
        starts = [self.gaussians(_SCREENED // 2 * effort), self.noisy(neurons, 2 * effort, _NOISES_SEVERAL[0])]
        climbed = self.ascend(V, np.vstack([*starts, self.pool]), _ASCENT_SEVERAL, rows=rows)
        best = climbed.distinct(_TAKEN_UP, _FOUND_SAME).directions
        found = self._polished(V, self.ascend(V, np.vstack([best, neurons]), _ASCENT_SHORT, near=True), 0)
        self.remember(found)
        return found

    def _polished(self, V: FloatArray, climbed: Candidates, effort: int, floor: float = 0.0) -> Candidates:
        """The ends of ascents with their values in float64, on which bounds rest; the best of them polished."""
        climbed = climbed.distinct(_FOUND, _FOUND_SAME)
        found = self.valued(self.problem.atoms.spread(V), unit_rows(climbed.directions))
        best = found.take(slice(0, max(_LEAST_ENDS, effort // _ENDS) if effort else 0))
        return self.polish(V, best.directions, best.outputs, floor).joined(found)

    def valued(self, G: FloatArray, U: FloatArray) -> Candidates:
        """The unit rows of ``U`` with their best output directions, those of value zero dropped."""
        H = self._scores(G, U)
        values = np.linalg.norm(H, axis=1)
        return Candidates.none(self.rank, H.shape[1]).joined(
            Candidates(U, H / np.maximum(values, 1e-300)[:, None], values).take(values > 0)
        )

    def _wide(self, V: FloatArray, families: list[FloatArray], effort: int, floor: float) -> Candidates:
        """Local maxima from all these starts."""
        starts = unit_rows(np.vstack(families))
        if self.problem.n_coefficients == 1 or len(starts) * self.X.size <= _POLISHED:
            found = self.polish(V, starts, floor=floor)
        else:
            found = self._polished(V, self.ascend(V, starts, _ASCENT_WIDE), effort, floor)
        self.remember(found)
        return found

    def strong(self, V: FloatArray, neurons: FloatArray, effort: int = 128, floor: float = 0.0) -> Candidates:
        """Search without screening from neurons, neurons with noise, earlier maxima, explorers."""
        neurons = unit_rows(neurons)
        near = [self.noisy(neurons, effort, s) for s in _NOISES_STRONG]
        starts = [self._some(neurons, 2 * effort), *near, self.pool[:effort], self.explorers(effort // 2)]
        return self._wide(V, starts, effort, floor)

    def audit(self, V: FloatArray, neurons: FloatArray, effort: int = 128, floor: float = 0.0) -> Candidates:
        """Search from other families: mixes of neurons, opposites, data points, differences; more explorers."""
        rng, X = self.rng, self.X
        neurons = unit_rows(neurons)
        families = [-neurons[:effort], self.explorers(effort)]
        bases = [b for b in (neurons, self.pool) if len(b)]
        for base in bases:
            i, j = rng.integers(len(base), size=(2, effort))
            families.append(base[i] + rng.uniform(-1.0, 1.0, size=(effort, 1)) * base[j])
        rows = unit_rows(X)
        if len(rows):
            i, j = rng.integers(len(rows), size=(2, effort))
            families += [rows[i[: effort // 2]], -rows[i[effort // 2 :]], rows[i] - rows[j]]
        if len(rows) and len(neurons) and self.rank > 1:
            # neurons projected onto the hyperplanes of some of the rows nearest to them
            base = neurons[rng.integers(len(neurons), size=effort)]
            near = np.argsort(np.abs(base @ rows.T), axis=1)[:, : _NEAREST * self.rank]
            near = rng.permuted(near, axis=1)[:, : max(1, self.rank // 2)]
            S = np.linalg.qr(rows[near].transpose(0, 2, 1))[0]
            families.append(base - np.einsum("krs,ks->kr", S, np.einsum("krs,kr->ks", S, base)))
        return self._wide(V, families, effort, floor)

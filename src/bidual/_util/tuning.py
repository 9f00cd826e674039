"""The sizes that decide which road is taken, in one place: what tests, and users who know why, may set.

Numerical tolerances and the inner settings of an algorithm stay in the modules that they belong to.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Tuning:
    """Sizes, numbers of passes and seconds. None changes what is true of a result, only how it is found, and when."""

    # ---- large matrices (arrangements, bounds) ----
    #: Multiplications from which a matrix is too dear to factorise (a second, in which nothing can be stopped).
    dear_factors: float = 4e9
    #: Columns from which the eigenvectors of a Gram matrix are too dear as well.
    broad_columns: int = 2048
    #: Multiplications of a Gram matrix that take too long for a bound that is had at the last moment (half a second).
    long_gram: float = 1e10
    #: Rows of a Gram matrix at a time: their scaled copy stays small.
    gram_rows: int = 4096
    #: Activations of a network that are held at once (32 MiB).
    activations: int = 2**22

    # ---- which method ----
    #: Targets (rows times outputs) from which gated networks are trained in blocks of rows.
    row_blocks_from: int = 10_000
    #: Targets from which several outputs are trained without corrective steps: they take too long.
    batches_from: int = 100_000
    #: Entries, zeros included, from which sparse rows are kept as they are, if at most this share is not zero.
    sparse_from: int = 5_000_000
    sparse_share: float = 0.1
    #: Cells of parallel networks up to which all are enumerated: no need to search for them.
    parallel_cells: int = 3_000
    #: Activation patterns of normalised neurons up to which all are enumerated.
    normalised_patterns: int = 5_000
    #: Activation patterns of neurons with free biases up to which all are enumerated.
    free_patterns: int = 1_000
    #: Entries of all cone constraints beyond which they are not written down.
    written_entries: int = 1_000_000
    #: Seconds that prove="auto" takes at most, as a multiple of the seconds of training.
    proof_share: float = 0.5

    # ---- gated networks in blocks of rows ----
    #: Rows of a block: the pieces of work that threads and machines share.
    block_rows: int = 16_384
    #: Bytes of all rows in single precision up to which they are kept; beyond, they are read again in every pass.
    kept_bytes: int = 2**30
    #: Rows that are looked at together in double precision.
    double_rows: int = 4096
    #: Rows that decide where gates are placed.
    gate_rows: int = 4096
    #: Passes of the first phase at the least, and the steps that it aims at where rows are few.
    block_epochs: int = 8
    block_steps: int = 1000
    #: Rows of a sample of the curvature in the beginning, and rank-one terms of the preconditioner made of it.
    sample_rows: int = 12_000
    sample_terms: int = 2500
    #: Seconds between two checkpoints.
    checkpoint_seconds: float = 30.0

    # ---- several outputs on many rows ----
    #: Neurons up to which fewer are looked for, and hidden weights times rows of these: moves take too long otherwise.
    gathered: int = 500
    thinned: int = 300_000
    #: Largest width of the start, and hidden weights of the widest network: quasi-Newton steps remember many of them.
    start_width: int = 500
    pair_weights: int = 4_000_000

    # ---- pieces of work elsewhere ----
    #: Entries of the largest array of a search for normalised neurons: so many directions are looked at at a time.
    priced_entries: int = 4_000_000
    #: Entries of the largest block of patches, or of answers of filters to them: about what a cache holds.
    patch_entries: int = 2**19
    #: Filters that are applied at once.
    filters: int = 512
    #: Seconds between two lines of progress about images.
    report_seconds: float = 5.0
    #: Seconds between two drawings of the bars in a notebook: each is a message to the browser.
    redraw_seconds: float = 0.1

    # ---- the playground ----
    #: Seconds for one training, and for each of a path: somebody is waiting.
    playground_seconds: float = 5.0
    playground_path_seconds: float = 1.0
    #: Requests that may wait for their turn.
    playground_waiting: int = 12


_tuning = Tuning()


def tuning() -> Tuning:
    """The numbers in force."""
    return _tuning


@contextmanager
def tuned(**numbers: Any) -> Iterator[Tuning]:
    """Other numbers for a while, for all threads of this process; also a decorator.

    Examples
    --------
    >>> from bidual._util.tuning import tuned, tuning
    >>> with tuned(block_rows=100):
    ...     tuning().block_rows
    100
    >>> tuning().block_rows
    16384
    """
    global _tuning
    before, _tuning = _tuning, replace(_tuning, **numbers)
    try:
        yield _tuning
    finally:
        _tuning = before

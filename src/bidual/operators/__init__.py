"""Training data in blocks of rows, and what is computed on them: on this machine, on a device, or on a cluster.

One thin layer, arrays in and arrays out: :mod:`bidual.operators.products` (two products with gated weights, with a
compiled and a torch version), :mod:`bidual.operators.block` (pure functions of a block of rows: values, gradients,
samples), :mod:`bidual.operators.shards` (such functions on all blocks, by threads or by Dask) and
:mod:`bidual.operators.sources` (where rows come from). The solver of :mod:`bidual.solvers.large` knows nothing else.
"""

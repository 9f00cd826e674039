"""Training data in blocks of rows, and what is computed on them: on this machine, on a device, or on a cluster.

One thin layer, arrays in and arrays out: :mod:`bidual.programs.gated.products` (two products with gated weights, with a
compiled and a torch version), :mod:`bidual.programs.gated.block` (pure functions of a block of rows: values, gradients,
samples), :mod:`bidual.programs.gated.shards` (such functions on all blocks, by threads or by Dask) and
:mod:`bidual.programs.gated.sources` (where rows come from). The solver of :mod:`bidual.solvers.blocks`
knows nothing else.
"""

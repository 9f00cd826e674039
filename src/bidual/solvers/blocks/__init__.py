"""Training on many rows: gated networks on blocks of rows, wherever these are."""

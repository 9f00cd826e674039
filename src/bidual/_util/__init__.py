"""What every room uses: types, files, memory, cores, the watch, progress, rounding. It knows nothing of networks."""

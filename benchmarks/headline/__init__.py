"""Accuracy at a given epsilon: the tables of the papers, and ours beside them. `python -m benchmarks.headline.run`."""

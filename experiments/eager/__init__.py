"""The spec of the simulated table of Eager Updates (arXiv 2502.12996)."""

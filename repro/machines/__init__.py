"""Accelerators: the placement rule, ahead-of-time compilation, transfers read from compiled programs."""

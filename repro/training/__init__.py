"""One run, step after step: its state, the loop, exact resume."""

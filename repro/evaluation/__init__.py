"""Downstream scores: lm-eval's tasks and models, and scoring."""

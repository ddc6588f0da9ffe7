"""Runs on TPU pods through an engine that exists, xpk (GKE: JobSet and Kueue): one JobSet a run.

Which slices a run takes is the rule of `repro.placement`; where the pods are, and who pays, comes from the user's
launch.toml, never from `experiments/`. Nothing here schedules, restarts or watches: JobSet and Kueue do.
"""

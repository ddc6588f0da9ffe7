"""The command line and the benches: the only place that imports everything."""

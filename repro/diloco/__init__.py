"""One step as an XLA program: model, inner and outer optimiser, quantised exchange; all of drjax."""

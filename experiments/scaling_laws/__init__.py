"""The specs of Scaling Laws for DiLoCo (arXiv 2503.09799), a module a table or figure."""

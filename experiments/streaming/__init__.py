"""The specs of Streaming DiLoCo (arXiv 2501.18512), a module a table or figure."""

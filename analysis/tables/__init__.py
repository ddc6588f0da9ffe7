"""Tables: ours beside the published cells, each difference with its judgement."""

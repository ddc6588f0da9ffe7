"""One process of a job that scores together: `python score_share.py PROCESSES INDEX PORT`; prints what it got."""

import json
import os
import sys
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_NUM_CPU_DEVICES"] = "1"
sys.path.insert(0, str(Path(__file__).parents[2]))

import jax
import unigram

from repro.evaluation.scoring import Scorer, score_together


def main() -> None:
    """Score seven requests, alone or with the other processes."""
    processes, index, port = (int(word) for word in sys.argv[1:])
    if processes > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"localhost:{port}", processes, index)
    requests = unigram.some_requests(7, 256)
    values, greedy = score_together(Scorer(unigram.MODEL, unigram.params()), requests)
    share = len(requests[jax.process_index() :: jax.process_count()])
    print(json.dumps({"share": share, "values": values.tolist(), "greedy": greedy.tolist()}))


main()

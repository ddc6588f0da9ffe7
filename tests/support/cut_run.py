"""A process that trains a run and kills itself: `python cut_run.py ROOT TOKENS CONFIG CHECKPOINT STEP`.

It dies by SIGKILL when step STEP is read and the checkpoint of step CHECKPOINT is on disk, in the middle of all else.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from repro.corpus.tokens import open_tokens
from repro.diloco.resources import Resources
from repro.runs.folder import RunFolder, open_folder
from repro.spec.config import RunConfig
from repro.spec.identity import from_json
from repro.spec.validation import validation_interval
from repro.training.loop import Pace, train

EVERY = 7  # steps between checkpoints


def run(config: RunConfig, resources: Resources, root: Path, tokens: Path, **options: Any) -> RunFolder:
    """Train a run to its end, as the command line does."""
    folder = open_folder(root, config)
    pace = Pace(EVERY, validation_interval(config), report_seconds=0.0)
    summary = train(
        config, resources, folder, open_tokens(tokens), open_tokens(tokens, "validation"), pace=pace, **options
    )
    folder.write_summary(summary)
    return folder


def main() -> None:
    """Train until it is time to die."""
    root, tokens, text, checkpoint, step = sys.argv[1:]
    config = from_json(RunConfig, json.loads(text))
    saved = RunFolder(Path(root), open_folder(Path(root), config).run_id).checkpoints / checkpoint

    def report(message: dict[str, Any]) -> None:
        if message["stage"] == "training" and message["step"] == int(step):
            while not saved.is_dir():
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)

    run(config, Resources(replica=config.replicas, unroll=False), Path(root), Path(tokens), report=report)


if __name__ == "__main__":
    main()

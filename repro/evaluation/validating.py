"""A finished run validated once more, on other windows or parameters than its scale declares; nothing is trained."""

from pathlib import Path
from typing import Any

from repro.corpus.prepare import token_folder
from repro.corpus.tokens import open_tokens
from repro.evaluation.evaluate import held, restored
from repro.runs.folder import RunFolder
from repro.runs.provenance import commit
from repro.spec.validation import validation_id
from repro.training.validate import Validator


def validate_run(folder: RunFolder, which: str, windows: int, cache: Path) -> dict[str, Any]:
    """The validation of a finished run's last parameters on the first `windows` held-out windows, as in its summary.

    It is made unless it is there, and added, with the commit that made it. UserError where the run has lost its last
    checkpoint or the corpus hasn't as many windows.
    """
    name = validation_id(which, windows)
    with held(folder, cache):
        summary = folder.result()
        assert summary is not None
        if name not in summary["validations"]:
            config = folder.config()
            text = open_tokens(token_folder(config.corpus, cache, vocab=config.model.vocab), "validation")
            layout, state = restored(folder, config, config.steps)
            validator = Validator(layout, text, windows)
            summary = folder.add_validation(name, validator.record(validator.losses(state, which)) | commit())
        return summary["validations"][name]

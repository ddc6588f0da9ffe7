"""A run as a model of lm-eval, for its command line and its Python calls.

    python -m repro lm-eval RUN --tasks hellaswag,piqa --limit 100

    import repro.evaluation.lm_eval_model                            # registers the model "repro"
    lm_eval.simple_evaluate("repro", "run=mini-45k-dp", tasks=["piqa"])

`repro evaluate` keeps scores with their run and is the way to a table; this is for all else that lm-eval can do.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from lm_eval._cli import HarnessCLI
from lm_eval.api.registry import register_model
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window, setup_logging

from repro.corpus.prepare import token_folder
from repro.corpus.tokens import TokenSet, open_tokens
from repro.errors import UserError
from repro.evaluation.evaluate import load_parameters
from repro.evaluation.lm_eval_tasks import TextLM, write_task_files
from repro.evaluation.scoring import Scorer, ScoringRequest, score_together
from repro.evaluation.tasks import BATCH, PARAMETERS, harness
from repro.files import folder_at
from repro.runs.folder import find_run
from repro.spec.config import ModelConfig


class JaxLM(TextLM):
    """Parameters and a tokenizer to lm-eval: likelihoods of continuations and of whole texts.

    In a job of several processes each scores its share and all get every answer; to lm-eval each is the only one.
    """

    def __init__(
        self, model: ModelConfig, params: Any, tokens: TokenSet, *, batch: int = BATCH, **placement: Any
    ) -> None:
        super().__init__(tokens)
        self.max_length = model.seq_len
        self._scorer = Scorer(model, params, batch=batch, **placement)

    def _loglikelihood_tokens(self, requests: Any, **_: Any) -> list[tuple[float, bool]]:
        rows = [ScoringRequest(np.array([*context, *scored], np.int32), len(scored)) for _, context, scored in requests]
        values, greedy = score_together(self._scorer, rows)
        return [(float(value), bool(is_greedy)) for value, is_greedy in zip(values, greedy, strict=True)]

    def loglikelihood_rolling(self, requests: Any, disable_tqdm: bool = False) -> list[float]:
        """Log-likelihoods of whole texts, in nats.

        Every token counts once, in windows of the model's length, the first after an EOS.
        """
        windows: list[ScoringRequest] = []
        counts = []
        for (text,) in (request.args for request in requests):
            cut = get_rolling_token_windows(self.tok_encode(text), self.eot_token_id, self.max_length, 1)
            pairs = [make_disjoint_window(pair) for pair in cut]
            windows += [
                ScoringRequest(np.array([*context, *scored], np.int32), len(scored)) for context, scored in pairs
            ]
            counts.append(len(pairs))
        values, _ = score_together(self._scorer, windows)
        ends = np.cumsum(counts, dtype=int)
        return [float(values[end - count : end].sum()) for end, count in zip(ends, counts, strict=True)]

    def get_model_info(self) -> dict[str, Any]:
        """For the results file of lm-eval."""
        return {"max_length": self.max_length, "tokenizer_sha256": self._tokens.tokenizer.sha256}


@register_model("repro")
class RunLM(JaxLM):
    """`run=ID[,root=runs][,cache=cache][,step=N][,parameters=outer|first|average]`, an id may be its beginning."""

    def __init__(
        self,
        run: str,
        root: str = "runs",
        cache: str = "cache",
        step: int | None = None,
        parameters: str = "outer",
        batch_size: int | str | None = None,
        **_: Any,
    ) -> None:
        folder = find_run(folder_at(root), str(run))
        config = folder.config()
        if parameters not in PARAMETERS:
            raise UserError(f"parameters {parameters!r} are unknown: choose {', '.join(PARAMETERS)}.")
        if batch_size is not None and not str(batch_size).isdecimal():
            raise UserError(f"batch_size={batch_size!r}: give a number of sequences.")
        tokens = open_tokens(token_folder(config.corpus, Path(cache), vocab=config.model.vocab), "validation")
        self.step, params = load_parameters(folder, config, None if step is None else int(step), parameters)
        self.run_id, self.parameters = folder.run_id, parameters
        super().__init__(config.model, params, tokens, batch=int(batch_size or BATCH))

    def get_model_info(self) -> dict[str, Any]:
        """What lm-eval records of a model, with the run, step and parameters that were evaluated."""
        return super().get_model_info() | {"run_id": self.run_id, "step": self.step, "parameters": self.parameters}


def command_line(model_args: dict[str, str], cache: Path, words: list[str]) -> int:
    """lm-eval's own command line on a run; `words` are its options.

    Tasks whose data the packages hold (hellaswag, piqa, arc_easy and arc_easy_validation) need no network.
    """
    if "--include_path" not in words:
        words = ["--include_path", str(next(iter(write_task_files(cache).values())).parent), *words]
    args = json.dumps(model_args)  # name=value,… would be cut at a comma in a path
    if "--batch_size" not in words:
        words = ["--batch_size", str(BATCH), *words]
    before = sys.argv
    sys.argv = ["lm-eval", "run", "--model", "repro", "--model_args", args, *words]
    try:
        setup_logging()
        parser = HarnessCLI()
        parser.execute(parser.parse_args())
    except (KeyError, ValueError) as error:
        raise UserError(f"{harness()} stopped ({str(error).strip()}): see its options with --help.") from error
    finally:
        sys.argv = before
    return 0

"""A run for others: parameters as safetensors, the tokenizer, the config, and a page that says how to read them."""

import dataclasses
import json
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

from repro import disk
from repro.corpus.prepare import token_folder
from repro.corpus.tokens import TokenSet, open_tokens
from repro.diloco.derivatives import NORM_EPSILON
from repro.errors import UserError
from repro.evaluation.evaluate import load_parameters
from repro.files import write_bytes, write_json
from repro.runs.folder import RunFolder
from repro.spec.config import RunConfig
from repro.spec.identity import canonical
from repro.spec.schedule import flushed


def export(folder: RunFolder, cache: Path, out: Path, *, step: int | None = None, which: str = "outer") -> Path:
    """Write model.safetensors, config.json, the tokenizer and README.md into `out`, and return it.

    Float32, a tensor a leaf of the tree of `repro.spec.shapes`, layers stacked on axis 0 and named by their path
    ("layers.query"). UserError, with nothing changed in `out`, for a folder that holds something else, a missing
    checkpoint, or a disk that can't take it.
    """
    if out.exists() and any(out.iterdir()) and not (out / "model.safetensors").exists():
        raise UserError(f"{out} holds something else: choose an empty folder.")
    config = folder.config()
    step, params = load_parameters(folder, config, step, which if config.sync else "outer")
    tokens = open_tokens(token_folder(config.corpus, cache, vocab=config.model.vocab), "validation")
    tensors = {f"{group}.{name}": np.asarray(leaf) for group, leaves in params.items() for name, leaf in leaves.items()}
    kind = which if config.sync else "outer"
    facts = {"run_id": folder.run_id, "step": step, "parameters": kind}
    if kind == "outer" and flushed(config.sync, 1, step, config.steps):
        facts["flush"] = "last"
    with _together(out) as part:
        save_file(tensors, part / "model.safetensors", {name: str(value) for name, value in facts.items()})
        (part / "model.safetensors").chmod(0o644)  # safetensors makes it the owner's alone
        write_json(part / "config.json", _config(config, tokens, facts))
        if tokens.tokenizer.file:
            shutil.copyfile(tokens.folder / tokens.tokenizer.file, part / tokens.tokenizer.file)
        write_bytes(part / "README.md", _page(config, tokens, facts, tensors).encode())
    return out


@contextmanager
def _together(out: Path) -> Iterator[Path]:
    """A folder whose files appear in `out` when all are there; none of them, with UserError, when one can't be written.

    It lies in `out`, so that to show them takes no space.
    """
    was_there = out.exists()
    part = out / f".part-{uuid.uuid4().hex}"
    try:
        part.mkdir(parents=True)
        yield part
        for path in sorted(part.iterdir()):
            path.replace(out / path.name)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{out} could not be written ({disk.reason(error)}): {disk.advice(error)}.") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
        if not was_there and out.is_dir() and not any(out.iterdir()):
            out.rmdir()


def _config(config: RunConfig, tokens: TokenSet, facts: dict[str, Any]) -> dict[str, Any]:
    model = dataclasses.asdict(config.model) | {"width": config.model.width, "head_size": config.model.head_size}
    return facts | {"model": model, "tokenizer": vars(tokens.tokenizer), "run": canonical(config)}


def _page(config: RunConfig, tokens: TokenSet, facts: dict[str, Any], tensors: dict[str, np.ndarray]) -> str:
    rows = "\n".join(f"| `{name}` | {' × '.join(map(str, x.shape))} |" for name, x in sorted(tensors.items()))
    tokenizer = tokens.tokenizer
    flush = " and a final flush of every fragment" if "flush" in facts else ""
    how = f"SentencePiece, `{tokenizer.file}`" if tokenizer.file else "the bytes of the UTF-8 text"
    return f"""# {facts["run_id"]}

{facts["parameters"].capitalize()} parameters after step {facts["step"]} of {config.steps}{flush}, scale {config.scale},
in float32. `config.json` holds the model, the tokenizer and the whole config of the run.

Tokenizer: {how}; {tokenizer.vocab:,} tokens, EOS {tokenizer.eos} after each document, no BOS.

| Tensor | Shape |
|---|---|
{rows}

Layers are stacked on axis 0. For a sequence of at most {config.model.seq_len} tokens, `norm(x, g)` = g (x − mean) /
√(variance + {NORM_EPSILON:g}) over the last axis, every product from the right (`x @ W`):

1. x = embed.tokens[token] + embed.positions[place]
2. for each layer: h = norm(x, attn_norm); q, k, v = h @ query, key, value in {config.model.heads} heads of
   {config.model.head_size}; q, k = norm over a head with query_norm, key_norm; causal softmax of q·k /
   √{config.model.head_size}; x += (weights @ v) @ output
3. x += gelu(norm(x, mlp_norm) @ up) @ down, with the tanh form of GELU
4. logits = norm(x, embed.final_norm) @ embed.tokensᵀ

```python
from safetensors import SafetensorError
from safetensors.numpy import load_file

tensors = load_file("model.safetensors")
```

{json.dumps(facts, sort_keys=True)}
"""

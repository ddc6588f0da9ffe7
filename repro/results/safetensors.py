"""A run for others: parameters as safetensors, the tokenizer, the config, and a page that says how to read them."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from repro.corpus.prepare import token_folder
from repro.corpus.tokens import TokenSet, open_tokens
from repro.diloco.model import NORM_EPSILON
from repro.errors import UserError
from repro.evaluation.evaluate import load_parameters, read_config
from repro.files import write_json
from repro.runs.folder import RunFolder
from repro.spec.config import RunConfig
from repro.spec.identity import canonical


def export(folder: RunFolder, cache: Path, out: Path, *, step: int | None = None, which: str = "outer") -> Path:
    """Write model.safetensors, config.json, the tokenizer and README.md into `out`, and return it.

    Float32, a tensor a leaf of the tree of `repro.spec.shapes`, layers stacked on axis 0 and named by their path
    ("layers.query"). UserError for a folder that holds something else, or a missing checkpoint.
    """
    if out.exists() and any(out.iterdir()) and not (out / "model.safetensors").exists():
        raise UserError(f"{out} holds something else: choose an empty folder.")
    config = read_config(folder)
    step, params = load_parameters(folder, config, step, which if config.sync else "outer")
    tokens = open_tokens(token_folder(config.corpus, cache, vocab=config.model.vocab), "validation")
    tensors = {f"{group}.{name}": np.asarray(leaf) for group, leaves in params.items() for name, leaf in leaves.items()}
    out.mkdir(parents=True, exist_ok=True)
    facts = {"run_id": folder.run_id, "step": step, "parameters": which if config.sync else "outer"}
    _write_tensors(out / "model.safetensors", tensors, {name: str(value) for name, value in facts.items()})
    write_json(out / "config.json", _config(config, tokens, facts))
    if tokens.tokenizer.file:
        shutil.copyfile(tokens.folder / tokens.tokenizer.file, out / tokens.tokenizer.file)
    (out / "README.md").write_text(_page(config, tokens, facts, tensors), encoding="utf-8")
    return out


def _write_tensors(path: Path, tensors: dict[str, np.ndarray], facts: dict[str, str]) -> None:
    part = path.with_name(f".{path.name}")
    save_file(tensors, part, metadata=facts)
    part.chmod(0o644)  # safetensors makes it the owner's alone
    part.replace(path)


def _config(config: RunConfig, tokens: TokenSet, facts: dict[str, Any]) -> dict[str, Any]:
    model = dataclasses.asdict(config.model) | {"width": config.model.width, "head_size": config.model.head_size}
    return facts | {"model": model, "tokenizer": vars(tokens.tokenizer), "run": canonical(config)}


def _page(config: RunConfig, tokens: TokenSet, facts: dict[str, Any], tensors: dict[str, np.ndarray]) -> str:
    rows = "\n".join(f"| `{name}` | {' × '.join(map(str, x.shape))} |" for name, x in sorted(tensors.items()))
    tokenizer = tokens.tokenizer
    how = f"SentencePiece, `{tokenizer.file}`" if tokenizer.file else "the bytes of the UTF-8 text"
    return f"""# {facts["run_id"]}

{facts["parameters"].capitalize()} parameters after step {facts["step"]} of {config.steps}, scale {config.scale}, in
float32. `config.json` holds the model, the tokenizer and the whole config of the run.

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
from safetensors.numpy import load_file

tensors = load_file("model.safetensors")
```

{json.dumps(facts, sort_keys=True)}
"""

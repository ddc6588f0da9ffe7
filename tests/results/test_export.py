"""What others read: the tensors give the same logits in plain NumPy, and the page names them all."""

import json
import re
from pathlib import Path

import cut_run
import jax
import numpy as np
import pytest
import tiny
from model_oracle import oracle_logits
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file

import repro.results.safetensors
from repro.diloco.model import logits
from repro.errors import UserError
from repro.evaluation.evaluate import load_parameters
from repro.results.safetensors import export
from repro.runs.folder import RunFolder
from repro.spec.shapes import parameter_shapes

CONFIG = tiny.corpus_config(tiny.synced(every=3, delays=(1,)))
pytestmark = pytest.mark.compiles


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, smoke_tokens: Path) -> RunFolder:
    """A finished run."""
    return cut_run.run(CONFIG, tiny.ONE, tmp_path_factory.mktemp("runs"), smoke_tokens)


@pytest.fixture(autouse=True)
def prepared(monkeypatch: pytest.MonkeyPatch, smoke_tokens: Path) -> None:
    """The prepared tokens in the place of the cache's."""
    monkeypatch.setattr(repro.results.safetensors, "token_folder", lambda *_, **__: smoke_tokens)


def test_tensors_read_back_give_the_same_logits(run: RunFolder, tmp_path: Path) -> None:
    out = export(run, Path("unused"), tmp_path / "out")
    flat = load_file(out / "model.safetensors")
    tree: dict[str, dict[str, np.ndarray]] = {"embed": {}, "layers": {}}
    for name, tensor in flat.items():
        group, leaf = name.split(".")
        tree[group][leaf] = tensor
    assert jax.tree.map(lambda x: x.shape, tree) == parameter_shapes(CONFIG.model)
    assert {x.dtype for x in flat.values()} == {np.dtype("float32")}
    model = json.loads((out / "config.json").read_text(encoding="utf-8"))["model"]
    tokens = np.random.default_rng(0).integers(0, 256, (2, 8)).astype(np.int32)
    _, params = load_parameters(run, CONFIG, None, "outer")
    np.testing.assert_allclose(
        oracle_logits(tree, tokens, model["heads"]), logits(params, tokens, CONFIG.model), rtol=2e-5, atol=2e-5
    )


def test_the_files_say_what_they_are(run: RunFolder, tmp_path: Path) -> None:
    out = export(run, Path("unused"), tmp_path / "out", step=14, which="first")
    assert {p.name for p in out.iterdir()} == {"model.safetensors", "config.json", "README.md"}  # bytes need no model
    with safe_open(out / "model.safetensors", "np") as file:
        assert file.metadata() == {"run_id": run.run_id, "step": "14", "parameters": "first"}
        names = set(file.keys())
    page = (out / "README.md").read_text(encoding="utf-8")
    assert names == set(re.findall(r"^\| `(.+)` \|", page, re.M))
    config = json.loads((out / "config.json").read_text(encoding="utf-8"))
    assert config["step"] == 14 and config["tokenizer"]["kind"] == "bytes" and config["run"]["steps"] == CONFIG.steps


def test_a_folder_of_something_else_is_refused(run: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(UserError, match="holds something else"):
        export(run, Path("unused"), tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("earlier", [False, True], ids=["a new folder", "an earlier export"])
def test_a_full_disk_is_one_sentence_and_leaves_what_was_there(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, earlier: bool
) -> None:
    out = tmp_path / "out"
    if earlier:
        export(run, Path("unused"), out)
    before = {path.name: path.read_bytes() for path in out.glob("*")}

    def full(*_: object) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(repro.results.safetensors, "save_file", full)
    with pytest.raises(UserError, match=r"out could not be written \(.*No space left on device.*\): free some space"):
        export(run, Path("unused"), out, step=14)
    assert {path.name: path.read_bytes() for path in out.glob("*")} == before and out.exists() is earlier

"""The records of the corpora: each is complete, and what concerns a corpus follows from its record."""

import importlib
import inspect

import pytest

from analysis.paper.assumptions import assumptions
from experiments.registry import trained
from repro.corpora import CORPORA, corpus_named, hub_of
from repro.corpus.recipes import RECIPES
from repro.errors import UserError
from repro.spec.experiment import expand


@pytest.mark.parametrize("name", CORPORA)
def test_a_corpus_is_published_or_built(name):
    record = corpus_named(name)
    assert record.name == name
    assert (record.hub is None) == bool(record.builder) == bool(record.free_bytes) == (name in RECIPES)
    if record.builder:
        build = importlib.import_module(record.builder).build
        assert list(inspect.signature(build).parameters) == ["recipe", "folder", "cache", "progress"]
        assert RECIPES[name]().vocab == record.vocab
        with pytest.raises(ValueError, match="is made here"):
            hub_of(name)


def test_runs_at_paper_scale_read_a_corpus_of_which_there_is_a_miniature():
    read = {run.config.corpus for spec in trained("all") for run in expand(spec, "paper")}
    assert read == {"c4", "dolma"}
    assert all(record.batch_reason for record in map(corpus_named, read))


def test_what_a_record_leaves_open_is_named_under_its_runs():
    runs = {run.config.corpus: run.config for spec in trained("all") for run in expand(spec, "paper")}
    said = {name: {one.key: one for one in assumptions(config)} for name, config in runs.items()}
    assert said["dolma"]["version of Dolma"].choice == "v1_7" and "version of Dolma" not in said["c4"]
    for name, by_key in said.items():
        assert by_key["batch"].reason.startswith(corpus_named(name).batch_reason)


def test_an_unknown_name_is_one_sentence():
    with pytest.raises(UserError, match="unknown corpus 'dolmar': did you mean 'dolma'"):
        corpus_named("dolmar")

"""The committed result of `make compile-paper`: every run of the paper, and what it says of each."""

import math
import re
from dataclasses import asdict
from pathlib import Path

import pytest

from analysis.pages.compiled import COMPILED, of_another_batch
from analysis.pages.report import compiled_page
from experiments.registry import load, trained
from repro.commands.cli import main
from repro.files import read_json, write_json
from repro.machines.placement import place
from repro.network.account import rule_bits
from repro.results.collected import archive_path
from repro.spec.config import CodecConfig
from repro.spec.experiment import expand
from repro.spec.formats import FORMATS
from repro.spec.shapes import parameter_shapes

FOUND = read_json(archive_path(COMPILED)) or {}
RUNS = {run["run"]: run for run in FOUND["runs"]}
PLANNED = {run.run_id: run.config for spec in trained("all") for run in expand(spec, "paper")}
BATCHES = {name: config.batch * config.model.seq_len for name, config in PLANNED.items()}
OTHER_BATCH = {name for name, run in RUNS.items() if of_another_batch(run, BATCHES)}
TABLE5 = {run.run_id for run in expand(load("table5"), "paper")}


def test_every_run_of_the_paper_is_there_and_fits():
    """Every table, figure and section has its records; our own specs may wait for `make compile-paper MISSING=1`."""
    paper = [spec for spec in trained("all") if spec.place.startswith(("Table", "Figure", "section"))]
    assert len(paper) >= 15
    assert {run.run_id for spec in paper for run in expand(spec, "paper")} <= RUNS.keys() <= PLANNED.keys()
    assert all(run["fits"] for run in RUNS.values())
    largest = {name: max(p["memory"]["total"] for p in run["programs"]) for name, run in RUNS.items()}
    assert all(size <= RUNS[name]["usable_bytes"] for name, size in largest.items())


def test_it_was_made_by_a_commit_and_says_with_what():
    assert all(re.fullmatch("[0-9a-f]{40}", run["commit"]) and run["dirty"] is False for run in RUNS.values())
    assert all(run["versions"].keys() >= {"jax", "libtpu"} for run in RUNS.values())


def test_the_slices_are_those_of_the_rule():
    """Where the rule's microbatches didn't fit, they come first among what was tried."""
    for name, run in RUNS.items():
        placed = place(PLANNED[name])
        assert (run["topology"], run["slices"]) == (placed.topology, placed.slices)
        if name in OTHER_BATCH:
            continue
        first = run["tried"][0]["resources"] if run["tried"] else run["resources"]
        assert first == asdict(placed.resources)


@pytest.mark.parametrize("name", sorted(RUNS))
def test_what_is_sent_is_what_the_accounts_say(name: str):
    config, sent = PLANNED[name], RUNS[name]["bytes"]
    values = sum(math.prod(shape) for leaves in parameter_shapes(config.model).values() for shape in leaves.values())
    codec = config.sync.codec if config.sync else CodecConfig("bfloat16")
    bits = FORMATS[codec.format].bits * codec.keep
    if codec.drop == "none":
        # All parameters once a cycle, and for codes below 16 bits a scale of one byte for each of far fewer rows.
        assert values * bits / 8 <= sent["payload"] <= values * bits / 8 * (1.01 if bits < 16 else 1)
    else:  # a row keeps a whole number of its values; which ones, a bit a value says where chance doesn't choose them
        mask = 1 if codec.drop in ("topk", "ties") else 0
        assert sent["payload"] == pytest.approx(values * (bits + mask) / 8, rel=0.01)
    assert sent["hlo"] == pytest.approx(sent["payload"], rel=1e-3)
    assert sent["moved"] == pytest.approx(sent["collective"], rel=1e-3)
    cycle = RUNS[name]["cycle"]
    assert cycle == (config.sync.every if config.sync else 1)
    assert sent["rule"] == rule_bits(config.model.params_by_rule, bits, cycle, cycle) / 8


def test_each_transfer_of_streaming_overlaps_and_an_inner_step_has_none():
    for name, run in RUNS.items():
        programs = [FOUND["programs"][used["program"]] for used in run["programs"]]
        if "-stream-" in name:
            assert all(overlap for program in programs for overlap in program["overlaps"])
        if PLANNED[name].sync:
            assert [program["schedule"]["transfers"] for program in programs if program["name"] == "inner step"] == [[]]


def test_it_is_shown():
    shown = compiled_page()
    assert f"{len(RUNS)} runs" in shown.lead[0] and shown.sections[0].title.startswith("Placement")
    marked = {row[0] for row in shown.sections[0].rows if row[3].startswith("compiled at a batch of 2^")}
    assert marked == OTHER_BATCH
    assert not OTHER_BATCH or shown.lead[1].startswith(f"{len(OTHER_BATCH)} run")
    waiting = len(PLANNED) - len(RUNS)
    assert not waiting or shown.lead[-1].startswith(f"{waiting} run")


def test_what_an_earlier_call_lacks_is_chosen(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    """`--rule` shows what would be compiled; where nothing is left a sentence says so."""
    earlier, lacking = tmp_path / "compile-table5.json", sorted(TABLE5)[:2]
    missing = ["compile", "table5", "--missing", "--rule", "--out", str(tmp_path)]
    write_json(earlier, {**FOUND, "runs": [run for run in FOUND["runs"] if run["run"] not in lacking]})
    assert main(missing) == 0
    left = sorted(line.split()[0] for line in capsys.readouterr().out.splitlines()[1:])
    assert left == sorted({*lacking, *(TABLE5 & OTHER_BATCH)})
    write_json(earlier, {**FOUND, "runs": [{**run, "batch_tokens": BATCHES[run["run"]]} for run in FOUND["runs"]]})
    assert main(missing) == 2
    assert "all 26 runs of table5 are compiled" in capsys.readouterr().err

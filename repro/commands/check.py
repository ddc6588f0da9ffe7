"""`python -m repro check`: results of a spec, ours or someone else's, held against the bands of the collected seeds.

A band is where the loss of one new seed is expected 19 times in 20. Too good counts as outside, as too bad does.
Nothing is written, and no run folder is read.
"""

import argparse
import statistics
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from repro.disk import local
from repro.errors import UserError
from repro.spec.config import RunConfig
from repro.spec.identity import from_json, run_id
from repro.spec.validation import declared
from repro.words import counted

OUTSIDE = 1
PLACES = 4  # of a loss in nats

Losses = Mapping[str, Mapping[int, float]]  # by the id that a row's run of seed 0 has, then by seed


@dataclass(frozen=True)
class Band:
    """Where a new seed's loss is expected 19 times in 20, from the losses of the collected `seeds`."""

    low: float
    high: float
    seeds: int

    @property
    def words(self) -> str:
        """`4.7000 to 4.7400 of 3 seeds`."""
        return f"{self.low:.{PLACES}f} to {self.high:.{PLACES}f} of {self.seeds} seeds"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The file, and what it is held against unless that is the scale's collected results."""
    parser.add_argument("results", type=local, metavar="RESULTS.json", help="as `collect --to FOLDER` leaves it")
    parser.add_argument("--against", type=local, help="another file of results than the scale's in data/results")


def main(args: argparse.Namespace) -> int:
    """0 where every loss lies in its row's band; 1 with row, band and value of each that doesn't.

    UserError for a file of no results, of several scales, or of which no row has a band.
    """
    from repro.results.collected import archive_path, load_records

    theirs = load_records(args.results)
    scales = sorted({record["config"]["scale"] for record in theirs.values()})
    if len(scales) != 1:
        raise UserError(f"{args.results} has results of {counted(len(scales), 'scale')}: give a file of one.")
    against = args.against or archive_path(scales[0])
    if args.results.resolve() == against.resolve():
        raise UserError(f"{against} can't be held against itself: give other results, or another file --against.")
    losses, bands = losses_by_row(theirs, args.results), bands_of(losses_by_row(load_records(against), against))
    if not losses.keys() & bands.keys():
        raise UserError(f"{against} has no two seeds of any row of {args.results}: collect more, or name another file.")
    names = _names(scales[0], losses.keys())
    outside = 0
    for row in sorted(losses, key=lambda row: names.get(row, row)):
        for line in _lines(names.get(row, row), losses[row], bands.get(row)):
            outside += line.startswith("outside")
            print(line)
    compared = sum(len(losses[row]) for row in losses.keys() & bands.keys())
    print(f"{compared - outside} of {counted(compared, 'result')} inside, where chance alone leaves 1 in 20 outside")
    return OUTSIDE if outside else 0


def losses_by_row(records: Mapping[str, Mapping[str, Any]], path: Path) -> Losses:
    """The declared validation loss of the outer copy, by row and seed; UserError where one is no number."""
    rows: dict[str, dict[int, float]] = {}
    for name, record in records.items():
        config = from_json(RunConfig, record["config"])
        try:
            validation = declared(record["summary"], config.scale, config.model.seq_len)
            loss = None if validation is None else validation["loss"]
        except (KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{path} has no summary of {name} that can be read: collect it again.") from error
        if loss is None:
            continue
        if not isinstance(loss, int | float):
            raise UserError(f"{path} has {loss!r} as the loss of {name}: collect it again.")
        rows.setdefault(run_id(replace(config, seed=0)), {})[config.seed] = float(loss)
    return rows


def bands_of(losses: Losses) -> dict[str, Band]:
    """The band of each row of which two seeds are there: their mean ± t s √(1 + 1/n)."""
    from analysis.paper.deciding import slack

    bands = {}
    for row, by_seed in losses.items():
        if len(by_seed) > 1:
            mean, half = statistics.fmean(by_seed.values()), slack(statistics.stdev(by_seed.values()), len(by_seed))
            bands[row] = Band(mean - half, mean + half, len(by_seed))
    return bands


def _lines(name: str, by_seed: Mapping[int, float], band: Band | None) -> Iterator[str]:
    """A line for each seed, or that there is no band."""
    if band is None:
        yield f"no band: {name}: fewer than two seeds of it are collected"
        return
    for seed, loss in sorted(by_seed.items()):
        value = f"{name}, seed {seed}: {loss:.{PLACES}f}"
        if band.low <= loss <= band.high:
            yield f"inside: {value}, band {band.words}"
        else:
            yield f"outside: {value} lies {'below' if loss < band.low else 'above'} the band {band.words}"


def _names(scale: str, rows: Collection[str]) -> dict[str, str]:
    """Spec and labels of each row by its id, of the specs that show it that with the most of these rows."""
    from experiments.papers import papers
    from experiments.registry import trained
    from repro.spec.experiment import expand

    specs = [
        {run.run_id: f"{spec.name}, {run.row}" for run in expand(spec, scale) if run.parameters == "outer"}
        for paper in papers()
        for spec in trained("all", paper.name)
    ]
    names: dict[str, str] = {}
    for spec in sorted(specs, key=lambda spec: len(spec.keys() & set(rows)), reverse=True):
        names = spec | names
    return names

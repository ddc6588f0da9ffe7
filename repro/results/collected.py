"""Collected results: the small JSON of `data/results/`, one file a scale, that is committed.

A record holds the whole config, so that its id can be made again: a result whose config and id disagree is refused,
and one that was made from uncommitted changes, or from code of no known commit, says so and never takes the place of
a clean one. A run that two experiments share stands once. Nothing here is computed anew.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from repro import disk
from repro.errors import UserError
from repro.evaluation.tasks import choose
from repro.files import read_json, write_bytes
from repro.results.read import Result, row_validation
from repro.runs.status import folders
from repro.spec.config import RunConfig
from repro.spec.experiment import PlannedRun
from repro.spec.identity import config_text, from_json, run_id
from repro.spec.metric import metric_version

FOLDER = Path(__file__).resolve().parents[2] / "data" / "results"
ORIGIN = ("commit", "dirty", "python", "versions", "processor", "cores", "mesh", "tokens", "settings")
DIGITS = 4  # of a cosine similarity or norm that is kept

Record = dict[str, Any]


@dataclass
class Collected:
    """What a collection took, left as it was, and missed."""

    taken: set[str] = field(default_factory=set)
    replaced: set[str] = field(default_factory=set)  # of those taken: other losses stood there before
    kept: set[str] = field(default_factory=set)  # stood there already, and equal
    missing: set[str] = field(default_factory=set)
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def sentence(self) -> str:
        """Counts, and the reason of each refusal."""
        kept = self.kept - self.taken
        instead = f" ({len(self.replaced)} in place of other losses)" if self.replaced else ""
        counts = f"{len(self.taken)} taken{instead}, {len(kept)} as they were, {len(self.missing)} not finished"
        return "\n".join([counts, *(f"refused: {name}: {why}" for name, why in self.refused.items())])


def archive_path(scale: str, folder: Path = FOLDER) -> Path:
    """Where the collected results of a scale stand."""
    return folder / f"{scale}.json"


def records(scale: str) -> tuple[Record, ...]:
    """All that is collected of a scale; none where nothing is."""
    path = archive_path(scale)
    return tuple(load_records(path).values()) if path.exists() else ()


def timed_records(scale: str) -> tuple[Record, ...]:
    """Those that tell how long a run of a scale takes: at `small` the miniature's too, which compute the same way."""
    return records(scale) + (records("mini") if scale == "small" else ())


def save(results: Iterable[Result], path: Path) -> Collected:
    """Merge the finished results into the file; what it took, kept, missed and refused.

    Two at once wait for each other, so that neither writes over what the other took.
    """
    outcome = Collected()
    path.parent.mkdir(parents=True, exist_ok=True)
    with disk.locked(path.parent):  # the folder itself, so that no file is left in it
        stored = load_records(path) if path.exists() else {}
        for result in results:  # rows may share a run and differ in what is evaluated
            _merge(stored, result, outcome)
        if outcome.taken:
            _write(path, stored)
    return outcome


def _merge(stored: dict[str, Record], result: Result, outcome: Collected) -> None:
    name = result.run.run_id
    before = stored.get(name)
    if result.summary is None:
        (outcome.kept if before else outcome.missing).add(name)
        return
    if (why := _unlike(result)) is not None:
        outcome.refused[name] = why
        return
    record = _record(result)
    if before is not None:
        if before["made"]["dirty"] is False and (why := _unclean(record["made"])):
            outcome.refused[name] = f"made from {why}, and a clean result stands there"
            return
        if (why := _older(record, before)) is not None:
            outcome.refused[name] = why
            return
        new, old = (each["summary"]["validations"] for each in (record, before))
        if all(new[i]["loss"] == old[i]["loss"] for i in new.keys() & old.keys()):
            record["summary"] = record["summary"] | {"validations": old | new}
            record["evaluations"] = _evaluations(name, before.get("evaluations", {}), record["evaluations"], outcome)
            record["syncs"] = record["syncs"] or before.get("syncs", {})
        else:
            outcome.replaced.add(name)
    if record == before:
        outcome.kept.add(name)
    else:
        stored[name] = record
        outcome.taken.add(name)


def _older(record: Record, before: Record) -> str | None:
    """Why a record may not take the other's place: of a validation that both have, its numbers are of an older version.

    Losses are the same in all versions, and what only one of them has is kept.
    """
    new, old = (each["summary"]["validations"] for each in (record, before))
    for i in sorted(new.keys() & old.keys()):
        versions = metric_version(new[i]), metric_version(old[i])
        if versions[0] < versions[1]:
            sentence = "its bits a byte are of version {}, those of the result that stands there of version {}"
            return sentence.format(*versions)
    return None


def _evaluations(name: str, before: Record, new: Record, outcome: Collected) -> Record:
    """Those that stand, with each new one that may take its place."""
    for eval_id, evaluation in new.items():
        stands = before.get(eval_id)
        if stands not in (None, evaluation) and not _unclean(stands) and (why := _unclean(evaluation)):
            outcome.refused[name] = f"its evaluation {eval_id} was made from {why}, and a clean one stands there"
        else:
            before = before | {eval_id: evaluation}
    return before


def _unclean(origin: Mapping[str, Any]) -> str:
    """What a result was made from that is no commit; "" for a clean one. Evaluations of before say nothing of it."""
    return {True: "uncommitted changes", None: "code of no known commit"}.get(origin.get("dirty", False), "")


def _unlike(result: Result) -> str | None:
    """Why a summary can't be that of its config."""
    assert result.summary is not None
    config, summary = result.run.config, result.summary
    for name, value in (("run_id", result.run.run_id), ("steps", config.steps), ("tokens", config.tokens)):
        if summary.get(name) != value:
            return f"its summary says {name} {summary.get(name)!r}, its config {value!r}"
    if not result.provenance or not result.provenance.get("attempts"):
        return "it has no provenance"
    return None


def _record(result: Result) -> Record:
    attempts = (result.provenance or {})["attempts"]
    last = attempts[-1]
    evaluation = result.evaluation
    return {
        "run_id": result.run.run_id,
        "config": json.loads(config_text(result.run.config)),
        "summary": result.summary,
        "made": {name: last.get(name) for name in ORIGIN} | {"dirty": result.dirty, "attempts": len(attempts)},
        "evaluations": {evaluation["eval_id"]: evaluation} if evaluation else {},
        "syncs": _columns(result.syncs),
    }


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Rows as columns, floats to a few digits."""
    names = list(rows[0]) if rows else []
    return {name: [_short(row[name]) for row in rows] for name in names}


def _short(value: Any) -> Any:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def load_records(path: Path) -> dict[str, Record]:
    """The records of a file by run id; UserError when one's config is not what its id says."""
    stored = read_json(path)
    if stored is None:
        raise UserError(f"no collected results at {path}: run the experiment, then `python -m repro collect` it.")
    try:
        place = f"{path}: config"
        ids = {record["run_id"]: run_id(from_json(RunConfig, record["config"], place)) for record in stored["runs"]}
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} holds no collected results: move it away, or put back what was there.") from error
    for name, own in ids.items():
        if own != name:
            raise UserError(f"{path} holds {name} with the config of {own}: collect it again.")
    return {record["run_id"]: record for record in stored["runs"]}


def _write(path: Path, records: Mapping[str, Record]) -> None:
    """A line a run, by id: what changes in git is what changed."""
    lines = [json.dumps(records[name], sort_keys=True, allow_nan=False) for name in sorted(records)]
    write_bytes(path, ('{"runs": [\n' + ",\n".join(lines) + "\n]}\n").encode())


def filled(results: Iterable[Result], path: Path, eval_set: str | None = None) -> tuple[Result, ...]:
    """The results, each that has no summary of its own from the collected ones where they hold it."""
    results = tuple(results)
    if all(result.summary is not None for result in results) or not path.exists():
        return results
    stored = load_records(path)
    return tuple(
        _stored(result.run, stored[result.run.run_id], eval_set)
        if result.summary is None and _shows(stored.get(result.run.run_id), result.run)
        else result
        for result in results
    )


def _shows(record: Record | None, run: PlannedRun) -> bool:
    """Whether a run is collected with the validation that its row shows."""
    return record is not None and row_validation(run, record["summary"]) is not None


def seeds_there(scale: str, root: Path, own: bool = False) -> int:
    """How many seeds the results of a scale have: one more than the greatest found, at least 1."""
    configs: list[Any] = [config for _, config in folders(root)]
    if not own:
        configs += [record["config"] for record in records(scale)]
    seeds = (config["seed"] for config in configs if config["scale"] == scale)
    return 1 + max(seeds, default=0)


def _stored(run: PlannedRun, record: Record, eval_set: str | None) -> Result:
    spec = choose(run.config, eval_set, parameters=run.parameters)
    evaluation = record["evaluations"].get(spec.id(int(record["summary"]["steps"])))
    columns = record["syncs"]
    rows = tuple(dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))
    provenance = {"attempts": [record["made"]]}
    return Result(run, record["summary"], provenance, None, evaluation, rows, archived=True)

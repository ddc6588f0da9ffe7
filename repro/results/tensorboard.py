"""A run as a TensorBoard run: one event file with its curves, its config as hyperparameters, its scores. No JAX.

The file is written anew at each export. It begins with a session start at step 0, at which TensorBoard forgets what
it read of the run before, so a page that is open shows no point twice.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from repro.errors import UserError
from repro.results.curves import Curves, Scalars, dotted

PREFIX, SUFFIX = "events.out.tfevents.", ".repro"


def write_tensorboard(curves: Curves, out: Path) -> Path:
    """Write `out`/<run id>/events.out.tfevents.…, which takes the place of an earlier export; returns the folder.

    The clock of its points starts with the first attempt and runs while the run trained. UserError without the extra.
    """
    try:
        from tensorboardX.record_writer import RecordWriter
    except ImportError as error:
        raise UserError("TensorBoard files need tensorboardX, which is not there: pip install tensorboardX.") from error
    folder = out / curves.run_id
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{PREFIX}{curves.started}.{curves.step:09d}{SUFFIX}"
    part = folder / f".{curves.step}.writing"  # not a name that TensorBoard reads
    try:
        writer = RecordWriter(str(part))
        for event in _events(curves):
            writer.write(event.SerializeToString())
        writer.close()
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    for earlier in folder.glob(f"{PREFIX}*{SUFFIX}"):
        if earlier != path:
            earlier.unlink()
    return folder


def _events(curves: Curves) -> Iterator[Any]:
    from tensorboardX.proto.event_pb2 import Event, SessionLog  # pyright: ignore[reportAttributeAccessIssue]

    def at(seconds: float, step: int, **what: Any) -> Any:
        return Event(wall_time=curves.started + seconds, step=step, **what)

    yield at(0.0, 0, file_version="brain.Event:2")
    yield at(0.0, 0, session_log=SessionLog(status=SessionLog.START))
    for summary in _hyperparameters(curves):
        yield at(0.0, 0, summary=summary)
    for point in curves.points:
        yield at(point.seconds, point.step, summary=_scalars(point.values))
    if curves.results:
        yield at(curves.points[-1].seconds, curves.step, summary=_scalars(curves.results))


def _scalars(values: Scalars) -> Any:
    from tensorboardX.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]

    return Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()])


def _hyperparameters(curves: Curves) -> list[Any]:
    """The config for the HParams page; without a list of all its columns, which would be the first run's for all."""
    from tensorboardX.summary import hparams

    _, start, end = hparams(dotted(curves.config), {})
    return [start, end] if curves.results else [start]

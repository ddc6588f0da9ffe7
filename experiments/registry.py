"""Which specs there are, by name and in the order of the paper; a spec is found by the name of its module."""

import importlib
import pkgutil

from experiments import streaming
from repro.errors import UserError, check_known
from repro.spec.experiment import Experiment


def names() -> tuple[str, ...]:
    """The experiments there are."""
    return tuple(sorted(m.name for m in pkgutil.iter_modules(streaming.__path__) if m.name != "base"))


def trained(name: str) -> tuple[Experiment, ...]:
    """The experiment of that name, or for `all` each that has something to train; UserError for what has nothing."""
    if name == "all":
        every = (e for e in map(load, names()) if isinstance(e, Experiment) and not e.derived)
        return tuple(sorted(every, key=lambda experiment: _order(experiment.name)))
    experiment = load(name)
    if not isinstance(experiment, Experiment) or experiment.derived:
        raise UserError(f"{name} has nothing to train: `make {name}` or `build` shows it.")
    return (experiment,)


def in_order() -> tuple[str, ...]:
    """The experiments there are: tables by number, figures by number, then the others."""
    return tuple(sorted(names(), key=_order))


def _order(name: str) -> tuple[int, int, str]:
    kind = name.rstrip("0123456789")
    number = name.removeprefix(kind)
    return {"table": 0, "figure": 1}.get(kind, 2), int(number or 0), name


def load(name: str) -> Experiment:
    """The EXPERIMENT of `experiments/<name>.py`; UserError with the nearest name when there is none.

    UserError, too, when its `name` isn't that of its module.
    """
    check_known("unknown experiment", name, names())
    experiment = importlib.import_module(f"experiments.streaming.{name}").EXPERIMENT
    if experiment.name != name:  # its files would be written over those of the spec that has the name
        raise UserError(f"experiments/{name}.py names itself {experiment.name!r}: set name={name!r}.")
    return experiment

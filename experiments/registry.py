"""Which specs there are, by name and in the order of their paper; a spec is found by the names of paper and module.

`table5` of the suite's own paper is `experiments/streaming/table5.py`; those of others begin with the paper's name.
"""

import importlib
import pkgutil
from typing import Any

from experiments.papers import DEFAULT, Paper, paper, papers
from repro.errors import UserError, check_known
from repro.spec.experiment import Experiment


def experiment_names(of: str | None = None) -> tuple[str, ...]:
    """The experiments of a paper, by name; of all papers, one after the other, where none is named."""
    return tuple(name for each in (papers() if of is None else (paper(of),)) for name in sorted(_modules(each)))


def trained(name: str, of: str = DEFAULT) -> tuple[Experiment, ...]:
    """The experiment of that name, or for `all` each of a paper that has something to train.

    UserError for what has nothing.
    """
    if name == "all":
        every = map(load, in_order(of))
        return tuple(e for e in every if isinstance(e, Experiment) and not e.derived)
    experiment = load(name)
    if not isinstance(experiment, Experiment) or experiment.derived:
        raise UserError(f"{name} has nothing to train: `make {name}` or `build` shows it.")
    return (experiment,)


def in_order(of: str = DEFAULT) -> tuple[str, ...]:
    """The experiments of a paper: tables by number, figures by number, then the others."""
    prefix = paper(of).prefix
    return tuple(sorted(experiment_names(of), key=lambda name: _order(name.removeprefix(prefix))))


def paper_of(name: str) -> Paper:
    """Whose experiment that is; UserError with the nearest name when there is none."""
    return _home_and_module(name)[0]


def load(name: str) -> Any:
    """The EXPERIMENT of that name, of whatever kind; UserError with the nearest name when there is none.

    UserError, too, when its `name` isn't that of its paper and module.
    """
    home, module = _home_and_module(name)
    experiment = importlib.import_module(f"{home.package}.{module}").EXPERIMENT
    if experiment.name != name:  # its files would be written over those of the spec that has the name
        path = f"{home.package.replace('.', '/')}/{module}.py"
        raise UserError(f"{path} names itself {experiment.name!r}: set name={name!r}.")
    return experiment


def item(name: str) -> str:
    """What its paper calls it, and the name of the file with its cells: `table4` for `scaling_laws_table4`."""
    return _home_and_module(name)[1]


def _modules(home: Paper) -> dict[str, str]:
    """Module by the name of its experiment."""
    package = importlib.import_module(home.package)
    modules = (module.name for module in pkgutil.iter_modules(package.__path__))
    return {f"{home.prefix}{name}": name for name in modules if name != "base"}


def _home_and_module(name: str) -> tuple[Paper, str]:
    places = {each: (home, module) for home in papers() for each, module in _modules(home).items()}
    check_known("unknown experiment", name, tuple(places))
    return places[name]


def _order(name: str) -> tuple[int, int, str]:
    kind = name.rstrip("0123456789")
    number = name.removeprefix(kind)
    return {"table": 0, "figure": 1}.get(kind, 2), int(number or 0), name

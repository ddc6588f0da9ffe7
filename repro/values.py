"""Which values a field or an option takes: said once, with its annotation, and checked by msgspec.

A field is annotated `Annotated[int, whole(1, 1_000)]`, an option has `type=option(...)` of the same; both refuse
everything else in one sentence that ends with the same words. What concerns several fields at once is their
dataclass's own business. No JAX, and nothing slow: every command imports this.
"""

import argparse
import re
import reprlib
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from repro.errors import UserError

MOST = 10**9  # of anything that is counted where no smaller bound is named
LARGEST = 1e12  # a number above it is infinite or a slip of the hand

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = 80
_SHORT.maxlevel = 3
_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


def whole(least: int = 0, most: int = MOST) -> Meta:
    """A whole number from `least` to `most`."""
    return Meta(ge=least, le=most, description=f"a whole number from {least:,} to {most:,}")


def number(
    *, above: float | None = None, least: float | None = None, most: float | None = None, below: float | None = None
) -> Meta:
    """A finite number in a range; NaN lies in none. Bounds that aren't given are those of what is finite."""
    low = f"above {above:,.12g}" if above is not None else f"from {-LARGEST if least is None else least:,.12g}"
    high = f"below {below:,.12g}" if below is not None else f"to {LARGEST if most is None else most:,.12g}"
    bounds: dict[str, Any] = {"gt": above} if above is not None else {"ge": -LARGEST if least is None else least}
    bounds |= {"lt": below} if below is not None else {"le": LARGEST if most is None else most}
    return Meta(**bounds, description=f"a number {low} {high}")


def one_of(*choices: str) -> Meta:
    """One of a few words."""
    words = " or ".join(filter(None, (", ".join(choices[:-1]), choices[-1])))
    return text("|".join(map(re.escape, choices)), words)


def text(pattern: str, description: str) -> Meta:
    """A text that matches `pattern` as a whole."""
    return Meta(pattern=rf"\A(?:{pattern})\Z", description=description)


def several(least: int, description: str) -> Meta:
    """A list of `least` values or more."""
    return Meta(min_length=least, max_length=10_000, description=description)


PORT = "[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]"
HOST = r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}|\[[0-9A-Fa-f:.]{2,45}\]"
Address = Annotated[str, text(f"(?:{HOST}):(?:{PORT})", "HOST:PORT with a port from 1 to 65535")]
Seconds = Annotated[float, number(above=0, most=1e7)]
# A word that becomes an argument of another program, so that it must not look like an option.
WORD = text(
    r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,254}", "a name of letters, digits and ._:/@+- that begins with a letter or digit"
)
PATH = text(r"[^\x00-\x20\x7f-][^\x00-\x1f\x7f]{0,4095}", "a path in one line that begins with no dash")


def check_fields(config: Any) -> None:
    """UserError that begins with the field's name where a field of a dataclass holds what its annotation excludes."""
    rules, values = rules_of(type(config)), vars(config)
    try:
        msgspec.convert(values, rules.struct)
        if all(isinstance(values[name], rules.fields[name].classes) for name in rules.composite):
            return
    except (ValueError, TypeError):
        pass  # which field it is, and what would be right, comes below
    for name, rule in rules.fields.items():
        if not rule.fits(values[name]):
            raise UserError(f"{name}={brief(values[name])}: give {rule.words}.")


def option(hint: Any) -> Callable[[str], Any]:
    """What argparse calls for an option whose values are annotated so."""
    kind, meta = get_args(hint)

    def read(word: str) -> Any:
        try:
            return msgspec.convert(kind(word), hint)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"give {meta.description}, not {brief(word)}") from error

    return read


def brief(value: Any) -> str:
    """The `repr` of a value, cut where it is long or deep."""
    return _SHORT.repr(value)


class Rule(NamedTuple):
    """What a field takes: `hint` for msgspec, `classes` where a list or a dataclass must be one already."""

    hint: Any
    classes: tuple[type, ...]
    part: type | None  # the dataclass that the field holds
    words: str

    def fits(self, value: Any) -> bool:
        """Whether the field may hold the value."""
        try:
            msgspec.convert(value, self.hint)
        except (ValueError, TypeError):
            return False
        return isinstance(value, self.classes)


class Rules(NamedTuple):
    """Those of a dataclass; `struct` has all its fields, so that one call of msgspec checks them."""

    fields: dict[str, Rule]
    struct: type
    composite: tuple[str, ...]


@cache
def rules_of(kind: type) -> Rules:
    """The rules of a dataclass's annotations."""
    hints = get_type_hints(kind, include_extras=True)  # slow, so once a class
    rules = {field.name: _rule(hints[field.name]) for field in fields(kind)}
    struct = msgspec.defstruct(f"{kind.__name__}Values", [(name, rule.hint) for name, rule in rules.items()])
    return Rules(rules, struct, tuple(name for name, rule in rules.items() if object not in rule.classes))


def _rule(hint: Any) -> Rule:
    optional = NoneType in get_args(hint)
    inner = next(part for part in get_args(hint) if part is not NoneType) if optional else hint
    bare, *metas = get_args(inner) if get_origin(inner) is Annotated else (inner,)
    part = bare if isinstance(bare, type) and is_dataclass(bare) else None
    classes: tuple[type, ...] = (part,) if part else (tuple,) if get_origin(bare) is tuple else (object,)  # type: ignore
    words = metas[0].description if metas else _words(bare)
    return Rule(Any if part else hint, (*classes, NoneType) if optional else classes, part, words)


def _words(bare: Any) -> str:
    if get_origin(bare) is Literal:
        return " or ".join(map(str, get_args(bare)))
    if get_origin(bare) is tuple:
        return f"a list, each {_rule(get_args(bare)[0]).words}"
    return _WORDS.get(bare) or f"a {bare.__name__}"

"""From a config to its id: a readable slug and eight hex digits of a hash of everything in the canonical config.

Configs that compute the same have one canonical config (`repro.spec.canonical`). It is written as JSON with sorted
keys, which raises on any type it doesn't know, since a silent
`repr` would give one config two ids on two machines. Fields made by `config.later` are left out while
they hold their neutral value, so that a new knob doesn't rename every earlier run.
"""

import dataclasses
import functools
import hashlib
import json
import math
from typing import Any, get_type_hints

from repro.errors import UserError
from repro.spec.canonical import canonical_config
from repro.spec.config import RunConfig
from repro.spec.slug import slug
from repro.values import Rule, brief, rules_of

MAX_ID = 40


def canonical(value: Any) -> Any:
    """`value` as plain JSON types; TypeError on anything but configs, tuples, str, int, bool, None, finite float.

    An int in a field of floats becomes a float, and -0.0 becomes 0.0: 1 and 1.0 are one run.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value + 0.0
    if isinstance(value, tuple):
        return [canonical(item) for item in value]
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        raise TypeError(f"{type(value).__name__} {value!r} has no canonical form: a config holds plain values only")
    fields = {}
    for name, is_float, neutral in _fields(type(value)):
        item = getattr(value, name)
        if neutral and item == neutral[0]:
            continue
        fields[name] = float(item) if is_float and type(item) is int else canonical(item)
    return fields


@functools.cache
def _fields(kind: type) -> tuple[tuple[str, bool, tuple[Any, ...]], ...]:
    """(name, whether its type is float, the value with which it is left out, if any) of each field of a dataclass."""
    hints = get_type_hints(kind)
    return tuple(
        (f.name, hints[f.name] is float, (f.default,) if f.metadata.get("neutral") else ())
        for f in dataclasses.fields(kind)
    )


def config_text(config: RunConfig) -> str:
    """The JSON of the canonical config, one line; the id is a hash of exactly these bytes."""
    return json.dumps(canonical(canonical_config(config)), sort_keys=True, separators=(",", ":"), allow_nan=False)


def run_id(config: RunConfig, limit: int = MAX_ID) -> str:
    """`<slug>-<8 hex>`, at most `limit` characters of [a-z0-9-]."""
    digest = hashlib.sha256(config_text(config).encode()).hexdigest()[:8]
    return f"{slug(canonical_config(config), limit - 9)}-{digest}"


def from_json(kind: type, data: Any, where: str = "config") -> Any:
    """Rebuild a config of dataclass `kind` from its canonical JSON.

    UserError with the dotted name of a field that is unknown, missing or wrong.
    """
    known = {field.name: field for field in dataclasses.fields(kind)}
    if not isinstance(data, dict):
        raise UserError(f"{where}={brief(data)} is not an object: give its fields, {', '.join(known)}.")
    unknown = sorted(set(data) - set(known))
    if unknown:
        raise UserError(f"{where} has no field {brief(unknown[0])}: known fields are {', '.join(known)}.")
    missing = [n for n, field in known.items() if n not in data and field.default is dataclasses.MISSING]
    if missing:
        raise UserError(f"{where} lacks the field {missing[0]!r}: give it a value.")
    rules = rules_of(kind).fields
    values = {name: _value(rules[name], item, f"{where}.{name}") for name, item in data.items()}
    try:
        return kind(**values)
    except UserError as error:
        raise UserError(f"{where}.{error}") from error


def _value(rule: Rule, item: Any, where: str) -> Any:
    if rule.part and item is not None:
        return from_json(rule.part, item, where)
    return tuple(item) if isinstance(item, list) and tuple in rule.classes else item


def differences(one: RunConfig, two: RunConfig) -> list[tuple[str, Any, Any]]:
    """The dotted fields in which two canonical configs differ, with both values: why their ids differ."""
    left, right = (_flat(canonical(canonical_config(config))) for config in (one, two))
    names = sorted(set(left) | set(right))
    absent = "(absent)"
    return [
        (n, left.get(n, absent), right.get(n, absent)) for n in names if left.get(n, absent) != right.get(n, absent)
    ]


def _flat(tree: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(tree, dict):
        return {prefix: tree}
    return {k: v for name, sub in tree.items() for k, v in _flat(sub, f"{prefix}.{name}".lstrip(".")).items()}

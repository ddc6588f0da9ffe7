"""Resources as options of a command, and back: what a launcher chose is what the processes of a pod take. No JAX."""

import argparse
from dataclasses import fields
from typing import Any, get_type_hints

from repro.diloco.resources import Resources
from repro.values import option

MESH = ("replica", "data", "fsdp")
HELP = {
    "replica": "mesh extent: M or a divisor of it",
    "data": "mesh extent: batch split",
    "fsdp": "mesh extent: parameters sharded",
    "unroll": "layers in a loop: compiles faster",
    "outer_on_host": "the outer state in the host's memory (§2.5)",
    "fence": "on TPU: a transfer starts before the inner step and ends after it",
    "remat": "what the backward pass recomputes: none, dots or full",
    "microbatches": "parts of a replica's batch, one after the other",
    "attention": "xla, or flash: a TPU kernel without S x S scores",
    "sequence": "of the fsdp devices, how many share a sequence",
}


def add_flags(parser: argparse._ArgumentGroup) -> None:
    """An option for each field, of its values; what isn't given stays as the command has it."""
    hints = get_type_hints(Resources, include_extras=True)
    for field in fields(Resources):
        word, text, hint = "--" + field.name.replace("_", "-"), HELP[field.name], hints[field.name]
        if field.name == "unroll":
            parser.add_argument("--scan", dest="unroll", action="store_const", const=False, help=text)
        elif hint is bool:
            parser.add_argument(word, action="store_const", const=True, help=text)
        else:
            metavar = "N" if isinstance(field.default, int) else None
            parser.add_argument(word, type=option(hint), metavar=metavar, help=text)


def asked(args: argparse.Namespace) -> dict[str, Any]:
    """The fields that were given."""
    values = {field.name: getattr(args, field.name) for field in fields(Resources)}
    return {name: value for name, value in values.items() if value is not None}


def flag_words(resources: Resources) -> list[str]:
    """The options that `add_flags` reads back as these resources: the mesh, and what isn't the default."""
    options = []
    for field in fields(Resources):
        value = getattr(resources, field.name)
        if value == field.default and field.name not in MESH:
            continue
        word = "--scan" if field.name == "unroll" else "--" + field.name.replace("_", "-")
        options += [word] if isinstance(value, bool) else [word, str(value)]
    return options

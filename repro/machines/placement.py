"""Which TPU slices a run takes, and how it is laid on them: a rule, from the config alone. No JAX.

What the rule chooses is an estimate until it is compiled (`repro.machines.compile`, which prints both side by side).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Annotated

from repro.diloco.resources import ATTENTIONS, REMATS, Extent, Resources, flash_fits
from repro.errors import UserError
from repro.spec.config import ModelConfig, RunConfig
from repro.spec.fragments import cut
from repro.spec.optim_state import VALUE_BYTES, inner_bytes, outer_bytes
from repro.spec.shapes import fragment_shapes, parameter_count
from repro.values import check_fields, one_of

GIB = 2**30
MODEL_FLOPS_UTILISATION = 0.4  # of the chip's peak (§3.1 of the paper)
DAYS = 3  # longest that a run may last, if a slice that divides its batch can do it
DATA_PARALLEL_SLICES = 2  # as many as the paper's M, so that its gradients cross the same link
FILL = 0.94  # of the memory that the compiler may give out, by the estimate (how far it is off: docs/compile.md)
SEQUENCE_PARTS = (1, 2, 4)
# Two numbers fitted to the compiled programs of Table 5 (`compile` prints estimates beside sizes): arrays that a
# layer keeps, in bfloat16 streams [B, S, d] (its norms keep float32), and bytes a logit with all of its gradient.
LAYER_ARRAYS, LOGIT_BYTES = 53, 12


@dataclass(frozen=True)
class Chip:
    """One chip: `hbm_gib` as published, `usable_gib` what the compiler gives out, peak of bfloat16 products."""

    hbm_gib: float
    usable_gib: float
    flops_per_s: float


# Source: the pages of the TPU generations at cloud.google.com/tpu/docs ("HBM capacity", "Peak compute (bf16)").
# usable_gib is the limit that the compiler names for v5e; elsewhere the same 98 % are assumed.
CHIPS = {
    "v4": Chip(32, 31.4, 275e12),
    "v5e": Chip(16, 15.75, 197e12),
    "v5p": Chip(95, 93.1, 459e12),
    "v6e": Chip(32, 31.4, 918e12),
}
SLICES = (  # what xpk 1.16 offers, up to one pod: v5e has 2x2 too
    "v5e:2x4",
    "v5e:4x4",
    "v5e:4x8",
    "v5e:8x8",
    "v5e:8x16",
    "v5e:16x16",
)


@dataclass(frozen=True)
class Placement:
    """Slices of one topology, and the mesh on them."""

    topology: str
    slices: int
    resources: Resources


@dataclass(frozen=True)
class Overrides:
    """What a person sets in place of the rule; None leaves it to the rule."""

    fsdp: Extent | None = None
    microbatches: Extent | None = None
    remat: Annotated[str, one_of(*REMATS)] | None = None
    attention: Annotated[str, one_of(*ATTENTIONS)] | None = None
    outer_on_host: bool | None = None
    fence: bool = True

    def __post_init__(self) -> None:
        check_fields(self)

    def over(self, resources: Resources) -> Resources:
        """The resources with what was asked for."""
        names = ("microbatches", "remat", "attention", "outer_on_host")
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return replace(resources, **given, fence=self.fence)


def chip(topology: str) -> Chip:
    """The chip of a topology such as v5e:4x4; UserError for a generation that the table lacks."""
    name = topology.partition(":")[0]
    if name not in CHIPS:
        raise UserError(f"topology {topology!r}: the chip is one of {', '.join(CHIPS)}, such as in v5e:4x4.")
    return CHIPS[name]


def chips_of(topology: str) -> int:
    """Chips of one slice, from a name such as v5e:4x4 or v5p:2x2x4; UserError where it has no such form."""
    sides = topology.partition(":")[2]
    if not re.fullmatch("[1-9][0-9]{0,3}(?:x[1-9][0-9]{0,3})*", sides):
        raise UserError(f"topology {topology!r}: name the chip and the sides of a slice, such as v5e:4x4.")
    chip(topology)
    return prod(map(int, sides.split("x")))


def place(config: RunConfig, asked: Overrides = Overrides()) -> Placement:
    """The rule: a slice a replica, of the fewest v5e chips that train it in `DAYS` days, divide its batch and hold it.

    Where none holds it by the estimate, the fewest that are quick enough.
    """
    slices = config.replicas if config.sync else DATA_PARALLEL_SLICES
    share = config.batch // slices
    possible = [name for name in SLICES if share % chips_of(name) == 0] or list(SLICES[:1])
    quick = [name for name in possible if days(config, name, slices) <= DAYS] or possible[-1:]
    for topology in quick:
        resources = resources_for(config, chips_of(topology), slices, topology, asked)
        if estimate(config, resources) <= FILL * chip(topology).usable_gib * GIB:
            return Placement(topology, slices, resources)
    return Placement(quick[0], slices, resources_for(config, chips_of(quick[0]), slices, quick[0], asked))


def days(config: RunConfig, topology: str, slices: int) -> float:
    """Days of training at `MODEL_FLOPS_UTILISATION`, communication left out."""
    peak = chips_of(topology) * slices * chip(topology).flops_per_s
    return config.flops / (peak * MODEL_FLOPS_UTILISATION) / 86_400


def resources_for(
    config: RunConfig, chips: int, slices: int, topology: str = "v5e", asked: Overrides = Overrides()
) -> Resources:
    """The rule on given slices of `chips` chips: the first of `candidates` that fits by the estimate, else the last."""
    limit = FILL * chip(topology).usable_gib * GIB
    laid = [asked.over(resources) for resources in candidates(mesh_for(config, chips, slices, asked.fsdp), config)]
    return next((resources for resources in laid if estimate(config, resources) <= limit), laid[-1])


def mesh_for(config: RunConfig, chips: int, slices: int, fsdp: int | None = None) -> Resources:
    """A replica a slice (or on several, data-parallel between them; or several in one), its parameters sharded over
    all its chips of a slice, layers in a loop, transfers fenced, flash attention where the kernel takes the model.

    Where a batch has fewer sequences than chips, 2 or 4 chips share one. `fsdp` narrower than a replica's chips in a
    slice leaves the rest to data-parallelism. UserError where the replicas or their batch can't be laid on so many.
    """
    m = config.replicas
    if max(m, slices) % min(m, slices):
        raise UserError(f"{m} replicas on {slices} slices: one number must divide the other.")
    spread = max(1, slices // m)  # slices of one replica
    own = chips * slices // (m * spread)  # its chips in each
    width = own if fsdp is None else fsdp
    if width < 1 or own % width:
        raise UserError(f"fsdp={width} on the {own} chips that a replica has in a slice: choose a divisor.")
    local = config.batch // m
    for parts in SEQUENCE_PARTS:
        if width % parts == 0 and config.model.heads % parts == 0 and local * parts % (spread * own) == 0:
            attention = "flash" if flash_fits(config) else "xla"
            mesh = Resources(m, spread * own // width, width, unroll=False, fence=True)
            return replace(mesh, attention=attention, sequence=parts)
    raise UserError(
        f"{local} sequences a replica on {spread * own} chips each: choose a topology whose chips divide the "
        f"batch, of at most {local // spread} chips for a replica in a slice."
    )


def candidates(base: Resources, config: RunConfig) -> Iterator[Resources]:
    """Cheapest first: more microbatches down to a sequence a chip, then recomputation, then the outer state on the
    host."""
    parts = _microbatches(base, config)
    for k in parts:
        yield replace(base, microbatches=k)
    for remat in REMATS[1:]:
        yield replace(base, microbatches=parts[-1], remat=remat)
    if config.sync is not None:
        yield replace(base, microbatches=parts[-1], remat=REMATS[-1], outer_on_host=True)


def mends(
    config: RunConfig, tried: list[Resources], needed_bytes: int, topology: str, slices: int
) -> Iterator[Resources]:
    """What may fit where the last of `tried` needed so many bytes, cheapest first, by the estimate in proportion.

    More microbatches, recomputation, the outer state on the host; and each of these with the parameters sharded
    wider in a slice, where data-parallel groups leave room.
    """
    last = tried[-1]
    scale = max(1.0, needed_bytes / estimate(config, last))
    limit = chip(topology).usable_gib * GIB
    groups = last.data // max(1, slices // config.replicas)  # in a slice
    for times in (n for n in range(1, groups + 1) if groups % n == 0):
        base = replace(last, data=last.data // times, fsdp=last.fsdp * times)
        for resources in (base, *_lighter(base, config)):
            if resources not in tried and scale * estimate(config, resources) <= limit:
                yield resources


def _lighter(base: Resources, config: RunConfig) -> Iterator[Resources]:
    parts = [k for k in _microbatches(base, config) if k > base.microbatches]
    stronger = REMATS[REMATS.index(base.remat) + 1 :]
    yield from (replace(base, microbatches=k) for k in parts)
    for k in (base.microbatches, *parts):
        yield from (replace(base, microbatches=k, remat=remat) for remat in stronger)
    if config.sync is not None and not base.outer_on_host:
        yield replace(base, outer_on_host=True)
        yield from _lighter(replace(base, outer_on_host=True), config)


def _microbatches(base: Resources, config: RunConfig) -> list[int]:
    own = config.batch // config.replicas // base.shares
    return [k for k in range(1, own + 1) if own % k == 0]


def estimate(config: RunConfig, resources: Resources) -> int:
    """Bytes on one chip at the heaviest moment of a step: state, gradients, gathered weights, activations."""
    model, width = config.model, resources.fsdp
    params = parameter_count(model)
    state = (inner_bytes() + _gradient_bytes(resources)) * params // width + _outer_bytes(config, resources)
    gathered = 2 * 2 * (model.vocab * model.width + 2 * 12 * model.width**2)  # bfloat16, and their gradients
    return int(state + gathered + _activation_bytes(model, resources, config.batch // config.replicas))


def _gradient_bytes(resources: Resources) -> int:
    """Per parameter: float32 gradients, bfloat16 copies; sums of microbatches; what data-parallel groups exchange."""
    return 6 + 4 * (resources.microbatches > 1) + 6 * (resources.data > 1)


def _outer_bytes(config: RunConfig, resources: Resources) -> int:
    """The outer state (§2.5), and a fragment's decoded outer gradients of all replicas with their mean."""
    if config.sync is None:
        return 0
    values = _fragment_values(config)
    resting = max(values) if resources.outer_on_host else sum(values)
    decoded = VALUE_BYTES * (config.replicas + 1) * max(values)
    return (outer_bytes(config.sync.outer.optimizer) * resting + decoded) // resources.fsdp


def _fragment_values(config: RunConfig) -> list[int]:
    """Parameters of each fragment; empty where nothing is synchronised."""
    pieces = cut(config.sync.fragments, config.model.layers) if config.sync else ()
    sizes = [fragment_shapes(config.model, len(piece.layers), piece.embed) for piece in pieces]
    return [sum(prod(shape) for shape in shapes.values()) for shapes in sizes]


def _activation_bytes(model: ModelConfig, resources: Resources, sequences: int) -> float:
    """Bytes that one microbatch keeps: of each layer its part, of one layer all, and the logits with their gradient."""
    rows = sequences / resources.shares / resources.microbatches
    tokens = rows * model.seq_len / resources.sequence
    scores = rows * model.heads / resources.sequence * model.seq_len**2 * (resources.attention == "xla")
    stream = 2 * tokens * model.width  # one bfloat16 array [B, S, d]
    whole = LAYER_ARRAYS * stream + 2 * scores
    kept = {"none": whole, "dots": 10 * stream, "full": stream}[resources.remat]
    logits = LOGIT_BYTES * tokens * model.vocab
    return model.layers * kept + (0 if resources.remat == "none" else whole) + 8 * scores + logits

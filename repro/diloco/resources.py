"""Where a run happens: never part of its id, never written in `experiments/`.

The same run on other resources is the same run: the checkpoint of one continues on another. Results
agree to rounding across layouts, and bitwise on one layout. `repro.machines.placement` chooses resources for TPU
slices.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from repro.errors import UserError
from repro.spec.config import RunConfig
from repro.values import check_fields, one_of, whole

ATTENTIONS = ("xla", "flash")
REMATS = ("none", "dots", "full")
Extent = Annotated[int, whole(1, 2**24)]
FLASH_POSITIONS, FLASH_HEAD = 128, 64  # the kernel's blocks: a sequence and a head are multiples of these


@dataclass(frozen=True)
class Resources:
    """A mesh replica × data × fsdp, and how the program is compiled for it."""

    replica: Extent = 1  # mesh extent of the replica axis: M, or a divisor of it
    data: Extent = 1  # batch split without parameter sharding (slices of a data-parallel run)
    fsdp: Extent = 1  # parameters sharded within a replica
    unroll: bool = True  # layers unrolled (fast on CPU) or scanned (fast to compile)
    outer_on_host: bool = False  # outer parameters and what OuterOpt keeps in pinned host memory (§2.5)
    fence: bool = False  # on TPU: transfers start before the inner step and end after it, whatever XLA guesses
    remat: Annotated[str, one_of(*REMATS)] = "none"  # what the backward pass recomputes
    microbatches: Extent = 1  # parts of a replica's batch, one after the other; gradients are summed in float32
    attention: Annotated[str, one_of(*ATTENTIONS)] = "xla"  # flash: a TPU kernel that keeps no S × S scores
    sequence: Extent = 1  # of the fsdp devices, how many share a sequence: where a batch has fewer than devices

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def devices(self) -> int:
        """Devices of the mesh."""
        return self.replica * self.data * self.fsdp

    @property
    def shares(self) -> int:
        """Parts of a replica's batch that lie on different devices."""
        return self.data * self.fsdp // self.sequence

    def check(self, config: RunConfig) -> None:
        """UserError for a placement that would silently replicate or not divide."""
        model, m = config.model, config.replicas
        if m % self.replica:
            raise UserError(
                f"{m} replicas on a mesh axis of {self.replica}: the axis must divide the number of replicas."
            )
        if self.fsdp % self.sequence:
            raise UserError(f"sequence={self.sequence} does not divide fsdp={self.fsdp}: choose a divisor.")
        self._check_batch(config)
        for name, size in (("vocabulary", model.vocab), ("sequence", model.seq_len), ("width", model.width)):
            if size % self.fsdp:
                raise UserError(f"fsdp={self.fsdp} does not divide the {name} of {size}: choose a divisor.")
        if model.heads % self.sequence:
            raise UserError(f"sequence={self.sequence} does not divide the {model.heads} heads: choose a divisor.")
        if self.attention == "flash" and not flash_fits(config):
            raise UserError(
                f"attention='flash' with {model.seq_len} positions and heads of {model.head_size}: the kernel takes "
                f"multiples of {FLASH_POSITIONS} and of {FLASH_HEAD}; choose attention='xla'."
            )

    def _check_batch(self, config: RunConfig) -> None:
        local = config.batch // config.replicas
        if local % self.shares:
            over = f"data={self.data} x fsdp={self.fsdp} devices" + f", {self.sequence} a sequence" * (
                self.sequence > 1
            )
            raise UserError(
                f"{local} sequences a replica over {over}: the batch of a replica must be divisible by them."
            )
        if local % (self.shares * self.microbatches):
            raise UserError(
                f"microbatches={self.microbatches} of {local // self.shares} sequences a device: choose a divisor."
            )


def flash_fits(config: RunConfig) -> bool:
    """Whether the flash attention kernel takes the model's sequences and heads."""
    model = config.model
    return model.seq_len % FLASH_POSITIONS == 0 and model.head_size % FLASH_HEAD == 0


def local_resources(config: RunConfig, devices: int) -> Resources:
    """The default on one machine: the first mesh on as many of its devices as the run can be laid on."""
    return next(mesh for count in range(devices, 0, -1) for mesh in meshes(config, count))


def meshes(config: RunConfig, devices: int) -> Iterator[Resources]:
    """How a run can be laid on exactly so many devices, preferred first.

    As many replicas side by side as divide them; over the rest a data-parallel run splits its batch, and a replica of
    another its parameters, as far as these divide. Layers are unrolled where a step is what takes the time: a smoke run
    is nearly all compilation, and a model of paper scale has too many of them.
    """
    for replica in range(min(devices, config.replicas), 0, -1):
        if config.replicas % replica or devices % replica:
            continue
        rest = devices // replica
        widths = [width for width in range(1, rest + 1) if rest % width == 0]
        for fsdp in widths if config.sync is None else reversed(widths):
            mesh = Resources(replica, rest // fsdp, fsdp, unroll=config.scale in ("mini", "small"))
            if _divides(mesh, config):
                yield mesh


def _divides(mesh: Resources, config: RunConfig) -> bool:
    try:
        mesh.check(config)
    except UserError:
        return False
    return True

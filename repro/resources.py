"""Where a run happens: never part of its id, never written in `experiments/`.

The same run on other resources is the same run: the checkpoint of one continues on another. Results
agree to rounding across layouts, and bitwise on one layout.
"""

from dataclasses import dataclass

from repro.config import RunConfig
from repro.errors import UserError


@dataclass(frozen=True)
class Resources:
    """A mesh replica × data × fsdp, and how the program is compiled for it."""

    replica: int = 1  # mesh extent of the replica axis: M, or a divisor of it
    data: int = 1  # batch split without parameter sharding (slices of a data-parallel run)
    fsdp: int = 1  # parameters sharded within a replica
    unroll: bool = True  # layers unrolled (fast on CPU) or scanned (fast to compile)
    outer_on_host: bool = False  # outer parameters and momentum in pinned host memory (§2.5)
    fence: bool = False  # on TPU: transfers start before the inner step and end after it, whatever XLA guesses
    remat: str = "none"  # none | dots | full: what the backward pass recomputes

    @property
    def devices(self) -> int:
        """Devices of the mesh."""
        return self.replica * self.data * self.fsdp

    def check(self, config: RunConfig) -> None:
        """UserError for a placement that would silently replicate or not divide."""
        model, m = config.model, config.replicas
        if m % self.replica:
            raise UserError(
                f"{m} replicas on a mesh axis of {self.replica}: the axis must divide the number of replicas."
            )
        local = config.batch // m
        if local % (self.data * self.fsdp):
            raise UserError(
                f"{local} sequences a replica over data={self.data} x fsdp={self.fsdp} devices: "
                "the batch of a replica must be divisible by them."
            )
        for name, size in (("vocabulary", model.vocab), ("sequence", model.seq_len), ("width", model.width)):
            if size % self.fsdp:
                raise UserError(f"fsdp={self.fsdp} does not divide the {name} of {size}: choose a divisor.")


def local_resources(config: RunConfig, devices: int) -> Resources:
    """The default on one machine: a device a replica, data-parallel over the rest where it divides."""
    replica = next(r for r in range(min(devices, config.replicas), 0, -1) if config.replicas % r == 0)
    spare = devices // replica if config.sync is None else 1
    local = config.batch // config.replicas
    data = next(d for d in range(spare, 0, -1) if local % d == 0)
    return Resources(replica=replica, data=data)


def resources_for(
    config: RunConfig, chips: int, slices: int, remat: str = "none", fsdp: int | None = None
) -> Resources:
    """The rule for `slices` slices of `chips` chips: a replica a slice (or on several, data-parallel between
    them; or several in one), its parameters sharded over all its chips of a slice, layers in a loop, transfers fenced.

    `fsdp` narrower than that leaves the rest of the slice to data-parallelism. UserError where the replicas
    or their batch can't be laid on so many chips.
    """
    m = config.replicas
    if max(m, slices) % min(m, slices):
        raise UserError(f"{m} replicas on {slices} slices: one number must divide the other.")
    spread = max(1, slices // m)  # slices of one replica
    own = chips * slices // (m * spread)  # its chips in each
    width = own if fsdp is None else fsdp
    local = config.batch // m
    if own % width:
        raise UserError(f"fsdp={width} on the {own} chips that a replica has in a slice: choose a divisor.")
    if local % (spread * own):
        raise UserError(
            f"{local} sequences a replica on {spread * own} chips each: choose a topology whose chips divide the "
            f"batch, of at most {local // spread} chips for a replica in a slice."
        )
    return Resources(m, spread * own // width, width, unroll=False, fence=True, remat=remat)

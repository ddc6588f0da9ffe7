"""What the programs of a run are built from, and no more: runs with equal recipes share their programs.

H, τ, α, the rate's schedule, the corpus and the number of steps are not in it: they reach a program as arguments, so a
process that does several runs compiles it once. A program is built from its recipe alone, so what isn't here can't
enter one.
"""

from dataclasses import astuple, dataclass, replace
from typing import Any

from jax.sharding import Mesh

from repro.diloco.optim import at_constant_rate
from repro.diloco.resources import Resources
from repro.spec.actions import Action
from repro.spec.config import CodecConfig, InnerConfig, ModelConfig, OuterConfig, RunConfig
from repro.spec.formats import RANDOM_DROPS


@dataclass(frozen=True)
class Recipe:
    """Equal recipes and actions are the same program."""

    model: ModelConfig
    inner: InnerConfig
    replicas: int  # M
    batch: int  # B
    freezes: bool  # FedPart: what learns now is an argument
    codec: CodecConfig | None
    outer: OuterConfig | None
    seed: int  # of random masks, 0 where there are none
    resources: Resources
    mesh: Mesh

    @classmethod
    def of(cls, config: RunConfig, resources: Resources, mesh: Mesh) -> "Recipe":
        """All that any program of a run is built from, and its state."""
        sync = config.sync
        codec, outer, freezes = (sync.codec, sync.outer, sync.frozen) if sync else (None, None, False)
        seed = config.seed if codec and codec.drop in RANDOM_DROPS else 0
        inner = at_constant_rate(config.inner)
        return cls(config.model, inner, config.replicas, config.batch, freezes, codec, outer, seed, resources, mesh)

    def of_program(self, actions: tuple[Action, ...]) -> "Recipe":
        """What the program of these actions is built from: where there are none, no codec and no outer optimiser."""
        return self if actions else replace(self, codec=None, outer=None, seed=0)

    @property
    def form(self) -> tuple[Any, ...]:
        """What a program's size and order of work depend on: rates, decays and the like may differ, and the seed."""
        model, inner, outer = (_not_floats(part) for part in (replace(self.model, size="any"), self.inner, self.outer))
        return model, inner, self.replicas, self.batch, self.freezes, self.codec, outer, self.resources


def _not_floats(config: Any) -> Any:
    return config and tuple(value for value in astuple(config) if not isinstance(value, float))

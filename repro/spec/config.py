"""What a run is: frozen, fully resolved configs that alone make a run's id.

Nothing here says where a run happens (that is `repro.diloco.resources`) or on what it is validated
(`repro.spec.validation`), and nothing is resolved later: no -1
for "auto", no value that depends on the machine. Every config is checked when it is built: each field by its
annotation, which says what it may hold (`repro.values`), and here what concerns several. The bounds are far from
anything that is trained: what lies above is a slip of the hand. The symbols in the comments are the paper's
(Algorithms 1 and 2). A field added after ids were published carries `later(default)`: it is left out of the id while
it holds its neutral value.
"""

from dataclasses import MISSING, dataclass, field, fields
from typing import Annotated, Any

from repro.corpora import CORPORA
from repro.errors import UserError
from repro.spec.formats import DROPS, FORMATS
from repro.spec.optim_state import OUTER
from repro.values import check_fields, number, one_of, several, text, whole

SCALES = ("paper", "mini", "small", "smoke")
MOST_LAYERS, MOST_REPLICAS, MOST_STEPS, MOST_EVERY = 1_000, 10_000, 10**8, 10**6

Layers = Annotated[int, whole(1, MOST_LAYERS)]
Large = Annotated[int, whole(1, 2**24)]
Steps = Annotated[int, whole(1, MOST_STEPS)]
Seed = Annotated[int, whole(0, 2**31 - 1)]
Fraction = Annotated[float, number(least=0, most=1)]
Decay = Annotated[float, number(least=0, below=1)]
Rate = Annotated[float, number(above=0, most=1e6)]
Weight = Annotated[float, number(least=0, most=1e6)]
Label = Annotated[str, text(r"[A-Za-z0-9][A-Za-z0-9.-]{0,19}", "a label of 1 to 20 letters, digits, dots and dashes")]
Delays = Annotated[tuple[Annotated[int, whole()], ...], several(1, "a list of delays in [0, H), one or one a replica")]


def later(neutral: Any) -> Any:
    """A field added after the first ids: left out of the canonical form while it equals `neutral`."""
    return field(default=neutral, metadata={"neutral": True})


def _require(ok: bool, sentence: str) -> None:
    if not ok:
        raise UserError(sentence)


@dataclass(frozen=True)
class ModelConfig:
    """A decoder-only transformer (Table 2). `ffn_width` is the table's "Hidden dim"; d_model is a quarter."""

    size: Label  # the paper's label, or a mini label: shown, and part of the id
    layers: Layers  # L
    ffn_width: Annotated[int, whole(4, 2**22)]  # F
    heads: Annotated[int, whole(1, 2**16)]
    vocab: Annotated[int, whole(2, 2**24)]  # V
    seq_len: Large
    compute_dtype: Annotated[str, one_of("float32", "bfloat16")]
    z_loss: Weight = 1e-4
    positions: Annotated[str, one_of("learned")] = "learned"

    def __post_init__(self) -> None:
        check_fields(self)
        _require(
            self.ffn_width % 4 == 0 and self.width % self.heads == 0,
            f"ffn_width={self.ffn_width} with heads={self.heads}: the width ffn_width/4 must be an integer "
            "divisible by the number of heads.",
        )

    @property
    def width(self) -> int:
        """d_model = F / 4."""
        return self.ffn_width // 4

    @property
    def head_size(self) -> int:
        """d_model / heads (64 at paper scale)."""
        return self.width // self.heads

    @property
    def params_by_rule(self) -> int:
        """N = 12 d² L + V d, the count that the paper's token budgets and FLOPs follow (no norms, no positions)."""
        return 12 * self.width**2 * self.layers + self.vocab * self.width


@dataclass(frozen=True)
class InnerConfig:
    """InnerOpt: AdamW with linear warm-up and a cosine to `final_fraction` of the peak, global-norm clipping."""

    learning_rate: Rate
    warmup_steps: Annotated[int, whole(0, MOST_STEPS)]
    final_fraction: Fraction
    beta1: Decay
    beta2: Decay
    eps: Annotated[float, number(above=0, most=1)]
    weight_decay: Weight
    clip_norm: Annotated[float, number(above=0)]
    # where the cosine ends and the final rate begins to hold; 0: at the end of the run
    schedule_steps: Annotated[int, whole(0, MOST_STEPS)] = later(0)

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class OuterConfig:
    """OuterOpt: SGD, with Nesterov momentum in the paper (§3.2: learning rate 0.4), or Adam."""

    optimizer: Annotated[str, one_of(*OUTER)]
    learning_rate: Weight
    momentum: Decay
    beta1: Annotated[float, number(least=0, below=1)] = later(0.9)
    beta2: Annotated[float, number(least=0, below=1)] = later(0.999)
    eps: Annotated[float, number(above=0, most=1)] = later(1e-8)

    def __post_init__(self) -> None:
        check_fields(self)
        for spare in fields(self)[2:]:
            value, unset = getattr(self, spare.name), 0.0 if spare.default is MISSING else spare.default
            _require(
                spare.name in OUTER[self.optimizer].reads or value == unset,
                f"optimizer={self.optimizer!r} with {spare.name}={value}: it has none, set {unset:g}.",
            )


@dataclass(frozen=True)
class FragmentConfig:
    """How the model is cut (Figure 2). `whole` is one fragment of everything: DiLoCo."""

    pattern: Annotated[str, one_of("strided", "sequential", "whole")]
    layers: Layers  # |p|, layers a fragment at most
    # own: its own fragment (Figure 17b); merged: with the first layer fragment
    embedding: Annotated[str, one_of("own", "merged")]

    def __post_init__(self) -> None:
        check_fields(self)
        _require(
            not (self.pattern == "whole" and self.embedding == "own"),
            "pattern='whole' holds the embedding too: set embedding='merged'.",
        )


@dataclass(frozen=True)
class CodecConfig:
    """What is sent of an outer gradient (§2.4); it is always accumulated in float32."""

    format: Annotated[str, one_of(*FORMATS)]
    scale: Annotated[str, text("row|tensor|block:[1-9][0-9]{0,8}", "row, tensor or block:N with N >= 1")] = "row"
    drop: Annotated[str, one_of(*DROPS)] = later("none")  # Figure 11
    keep: Annotated[float, number(above=0, most=1)] = later(1.0)  # the fraction of values kept

    def __post_init__(self) -> None:
        check_fields(self)
        _require(
            not (self.format == "sign" and self.scale == "tensor"),
            "format='sign' with scale='tensor': the mean over a sharded tensor depends on the order of its sum, so "
            "choose scale='row' or 'block:N'.",
        )


@dataclass(frozen=True)
class SyncConfig:
    """Algorithm 2's knobs; Algorithm 1 is one whole fragment with τ = 0."""

    every: Annotated[int, whole(1, MOST_EVERY)]  # H
    delays: Delays  # τ, one for all replicas or one for each
    mix: Fraction  # α
    fragments: FragmentConfig
    codec: CodecConfig
    outer: OuterConfig
    # a fragment is due when t + sign * t_p = 0 mod H: -1 Algorithm 2, +1 the text of §2.2
    offset_sign: Annotated[int, whole(-1, 1)] = -1
    # trained: no fragment before it has trained H steps; due: from its first due step
    first_sync: Annotated[str, one_of("trained", "due")] = "trained"
    frozen: bool = later(False)  # FedPart: fragments not due at the next sync take no inner update
    # last: each fragment is exchanged once more after the last step, on a copy that is scored and never saved
    flush: Annotated[str, one_of("none", "last")] = later("none")

    def __post_init__(self) -> None:
        check_fields(self)
        _require(
            all(delay < self.every for delay in self.delays),
            f"delays={self.delays} (τ) with every={self.every} (H): each delay must lie in [0, H).",
        )
        _require(self.offset_sign != 0, f"offset_sign={self.offset_sign}: give -1 or 1.")


@dataclass(frozen=True)
class RunConfig:
    """One training run. Data-parallel is `replicas=1, sync=None`; every other method differs in `sync` only."""

    scale: Annotated[str, one_of(*SCALES)]
    model: ModelConfig
    inner: InnerConfig
    sync: SyncConfig | None
    replicas: Annotated[int, whole(1, MOST_REPLICAS)]  # M
    corpus: Annotated[str, one_of(*CORPORA)]
    batch: Large  # B, sequences a step over all replicas
    steps: Steps  # T
    seed: Seed = 0
    repeat_data: bool = False  # more than one epoch is an error unless this says so

    def __post_init__(self) -> None:
        check_fields(self)
        _require(
            self.inner.warmup_steps <= self.steps,
            f"inner.warmup_steps={self.inner.warmup_steps} of steps={self.steps}: a run is at least as long as its "
            "warm-up.",
        )
        _require(
            self.batch % self.replicas == 0,
            f"batch={self.batch} over replicas={self.replicas}: the global batch must be divisible by M.",
        )
        _require(
            self.sync is not None or self.replicas == 1,
            f"replicas={self.replicas} without sync: data-parallel is one replica spread over devices.",
        )
        if self.sync is not None:
            _require(
                len(self.sync.delays) in (1, self.replicas),
                f"sync.delays={self.sync.delays} (τ) for replicas={self.replicas}: give one, or one a replica.",
            )
            if self.sync.fragments.pattern != "whole":
                _require(
                    self.sync.fragments.layers <= self.model.layers,
                    f"sync.fragments.layers={self.sync.fragments.layers} in a model of {self.model.layers}: a fragment "
                    "can't be larger than the model.",
                )

    @property
    def tokens(self) -> int:
        """Tokens trained on: steps * batch * sequence length."""
        return self.steps * self.batch * self.model.seq_len

    @property
    def flops(self) -> float:
        """6 N D, with N by the paper's rule (reproduces Table 5's column)."""
        return 6.0 * self.model.params_by_rule * self.tokens

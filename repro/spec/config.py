"""What a run is: frozen, fully resolved configs that alone make a run's id.

Nothing here says where a run happens (that is `repro.diloco.resources`), and nothing is resolved later: no -1
for "auto", no value that depends on the machine. Every config is checked when it is built. The symbols
in the comments are the paper's (Algorithms 1 and 2). A field added after ids were published carries
`later(default)`: it is left out of the id while it holds its neutral value.
"""

from dataclasses import dataclass, field
from typing import Any

from repro.errors import UserError

SCALES = ("paper", "mini", "smoke")


def later(neutral: Any) -> Any:
    """A field added after the first ids: left out of the canonical form while it equals `neutral`."""
    return field(default=neutral, metadata={"neutral": True})


def _require(ok: bool, sentence: str) -> None:
    if not ok:
        raise UserError(sentence)


@dataclass(frozen=True)
class ModelConfig:
    """A decoder-only transformer (Table 2). `ffn_width` is the table's "Hidden dim"; d_model is a quarter."""

    size: str  # the paper's label, or a mini label: shown, and part of the id
    layers: int  # L
    ffn_width: int  # F
    heads: int
    vocab: int  # V
    seq_len: int
    compute_dtype: str
    z_loss: float = 1e-4
    positions: str = "learned"

    def __post_init__(self) -> None:
        _require(self.layers >= 1, f"layers={self.layers}: a model needs at least one layer.")
        _require(
            self.ffn_width % 4 == 0 and self.width % self.heads == 0,
            f"ffn_width={self.ffn_width} with heads={self.heads}: the width ffn_width/4 must be an integer "
            "divisible by the number of heads.",
        )
        _require(self.vocab >= 2, f"vocab={self.vocab}: the vocabulary needs at least two tokens.")
        _require(self.seq_len >= 1, f"seq_len={self.seq_len}: a sequence needs at least one token.")
        _require(
            self.compute_dtype in ("float32", "bfloat16"),
            f"compute_dtype={self.compute_dtype!r}: choose float32 or bfloat16.",
        )
        _require(self.positions == "learned", f"positions={self.positions!r}: only 'learned' is implemented.")

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

    learning_rate: float
    warmup_steps: int
    final_fraction: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    clip_norm: float
    schedule_steps: int = later(0)  # where the cosine ends and the final rate begins to hold; 0: at the end of the run

    def __post_init__(self) -> None:
        _require(self.learning_rate > 0, f"learning_rate={self.learning_rate}: it must be positive.")
        _require(self.warmup_steps >= 0, f"warmup_steps={self.warmup_steps}: it can't be negative.")
        _require(
            0 <= self.beta1 < 1 and 0 <= self.beta2 < 1,
            f"beta1={self.beta1}, beta2={self.beta2}: both must lie in [0, 1).",
        )
        _require(self.clip_norm > 0, f"clip_norm={self.clip_norm}: it must be positive.")
        _require(self.schedule_steps >= 0, f"schedule_steps={self.schedule_steps}: it can't be negative.")


@dataclass(frozen=True)
class OuterConfig:
    """OuterOpt: SGD, with Nesterov momentum in the paper (3.2: learning rate 0.4)."""

    optimizer: str
    learning_rate: float
    momentum: float

    def __post_init__(self) -> None:
        _require(
            self.optimizer in ("nesterov", "sgd"),
            f"outer optimizer={self.optimizer!r}: choose nesterov or sgd.",
        )
        _require(0 <= self.momentum < 1, f"outer momentum={self.momentum}: it must lie in [0, 1).")
        _require(
            self.optimizer == "nesterov" or self.momentum == 0,
            f"outer optimizer='sgd' with momentum={self.momentum}: it has none, set 0 or choose nesterov.",
        )


@dataclass(frozen=True)
class FragmentConfig:
    """How the model is cut (Figure 2). `whole` is one fragment of everything: DiLoCo."""

    pattern: str  # strided | sequential | whole
    layers: int  # |p|, layers a fragment at most
    embedding: str  # own (its own fragment, Figure 17b) | merged (with the first layer fragment)

    def __post_init__(self) -> None:
        _require(
            self.pattern in ("strided", "sequential", "whole"),
            f"fragment pattern={self.pattern!r}: choose strided, sequential or whole.",
        )
        _require(self.layers >= 1, f"fragment layers={self.layers}: a fragment holds at least one layer.")
        _require(
            self.embedding in ("own", "merged"),
            f"fragment embedding={self.embedding!r}: choose own or merged.",
        )
        _require(
            not (self.pattern == "whole" and self.embedding == "own"),
            "fragment pattern='whole' holds the embedding too: set embedding='merged'.",
        )


@dataclass(frozen=True)
class CodecConfig:
    """What is sent of an outer gradient (2.4); it is always accumulated in float32."""

    format: str
    scale: str = "row"  # row | tensor | block:N
    drop: str = later("none")  # none | feddropout | dare | topk | ties (Figure 11)
    keep: float = later(1.0)  # the fraction of values kept

    def __post_init__(self) -> None:
        _require(0 < self.keep <= 1, f"codec keep={self.keep}: it must lie in (0, 1].")


@dataclass(frozen=True)
class SyncConfig:
    """Algorithm 2's knobs; Algorithm 1 is one whole fragment with τ = 0."""

    every: int  # H
    delays: tuple[int, ...]  # τ, one for all replicas or one for each
    mix: float  # α
    fragments: FragmentConfig
    codec: CodecConfig
    outer: OuterConfig
    offset_sign: int = -1  # a fragment is due when t + sign * t_p = 0 mod H: -1 Algorithm 2, +1 the text of 2.2
    first_sync: str = "trained"  # trained: no fragment before it has trained H steps | due: from its first due step
    frozen: bool = later(False)  # FedPart: fragments not due at the next sync take no inner update

    def __post_init__(self) -> None:
        _require(self.every >= 1, f"every={self.every} (H): a fragment syncs every 1 or more steps.")
        _require(len(self.delays) >= 1, "delays=() (τ): give one delay, or one for each replica.")
        _require(
            all(0 <= d < self.every for d in self.delays),
            f"delays={self.delays} (τ) with every={self.every} (H): each delay must lie in [0, H).",
        )
        _require(0 <= self.mix <= 1, f"mix={self.mix} (α): it must lie in [0, 1].")
        _require(self.offset_sign in (-1, 1), f"offset_sign={self.offset_sign}: choose -1 or 1.")
        _require(self.first_sync in ("trained", "due"), f"first_sync={self.first_sync!r}: choose trained or due.")


@dataclass(frozen=True)
class ValidationConfig:
    """Validation loss: at the end always, and every `every` steps; on the first `sequences` held-out windows."""

    every: int
    sequences: int
    parameters: str = "outer"  # no knob: a row says which it reads of a run (Table 3); here since ids hold it

    def __post_init__(self) -> None:
        _require(
            self.parameters == "outer",
            f"validation parameters={self.parameters!r}: leave them 'outer', and let a Row say which it reads.",
        )
        _require(
            self.every >= 1 and self.sequences >= 1,
            f"validation every={self.every}, sequences={self.sequences}: both must be at least 1.",
        )


@dataclass(frozen=True)
class RunConfig:
    """One training run. Data-parallel is `replicas=1, sync=None`; every other method differs in `sync` only."""

    scale: str
    model: ModelConfig
    inner: InnerConfig
    sync: SyncConfig | None
    replicas: int  # M
    corpus: str
    batch: int  # B, sequences a step over all replicas
    steps: int  # T
    validation: ValidationConfig
    seed: int = 0
    repeat_data: bool = False  # more than one epoch is an error unless this says so

    def __post_init__(self) -> None:
        _require(self.scale in SCALES, f"scale={self.scale!r}: choose one of {', '.join(SCALES)}.")
        _require(self.replicas >= 1, f"replicas={self.replicas} (M): at least one replica is needed.")
        _require(self.steps >= 1, f"steps={self.steps}: a run has at least one step.")
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
                f"delays={self.sync.delays} (τ) for replicas={self.replicas}: give one, or one a replica.",
            )
            if self.sync.fragments.pattern != "whole":
                _require(
                    self.sync.fragments.layers <= self.model.layers,
                    f"fragments of {self.sync.fragments.layers} layers in a model of {self.model.layers}: "
                    "a fragment can't be larger than the model.",
                )

    @property
    def tokens(self) -> int:
        """Tokens trained on: steps * batch * sequence length."""
        return self.steps * self.batch * self.model.seq_len

    @property
    def flops(self) -> float:
        """6 N D, with N by the paper's rule (reproduces Table 5's column)."""
        return 6.0 * self.model.params_by_rule * self.tokens

"""The ladder of Table 2 and the methods of the paper as configs: what the specs vary.

Every value that the paper leaves open is set here once and named in `analysis.paper.assumptions`.
"""

from collections.abc import Iterable

from repro.corpora import CORPORA
from repro.spec.config import (
    CodecConfig,
    FragmentConfig,
    InnerConfig,
    ModelConfig,
    OuterConfig,
    RunConfig,
    SyncConfig,
)
from repro.spec.experiment import Pair
from repro.spec.laws import DATA_PARALLEL, law_batch_tokens, law_rate, steps_for
from repro.spec.scales import TOKENS_PER_PARAMETER

#            layers, hidden dim (F), heads
LADDER = {
    "35M": (6, 2_048, 8),
    "100M": (9, 3_072, 12),
    "200M": (12, 4_096, 16),
    "300M": (15, 5_120, 20),
    "500M": (18, 6_144, 24),
    "1B": (24, 8_192, 32),
    "4B": (36, 12_288, 48),
}
SIZES = tuple(LADDER)
MOST_REPLICAS = {"500M": 8, "4B": 2}  # M of a size's rows at a constant local batch; at the others 4
ABLATED = "500M"  # the size of §3.3
ABLATED_EVERY = 30  # H of §3.3, which doesn't say: its losses 2.67 are Table 5's for H = 30, not the 2.69 for H = 100
OUTER = OuterConfig(optimizer="nesterov", learning_rate=0.4, momentum=0.9)
DP = "Data-Parallel"
DILOCO, STREAMING = "DiLoCo", "Streaming DiLoCo"
LAST_DIGIT = 0.01  # of the paper's losses
SIMILAR = 2 * LAST_DIGIT  # nats: our reading of "similar", "robust" and "small", which the paper leaves open
SLIGHT = 0.1  # nats: our reading of "slightly"; what the paper calls so is 0.05 at most in Table 5, 0.07 in Table 7
SLIGHT_POINTS = 4.0  # of accuracy: what it calls so is 3.15 at most, in Table 7
ABLATION_NOTE = (
    f"H = {ABLATED_EVERY}: section 3.3 gives none; its losses of 2.67 at 500M are those of Table 5 for H = 30, and it "
    "has 2.69 for H = 100."
)


def model(size: str, seq_len: int = 1_024) -> ModelConfig:
    """An architecture of Table 2."""
    layers, ffn_width, heads = LADDER[size]
    return ModelConfig(
        size, layers, ffn_width, heads, vocab=CORPORA["c4"].vocab, seq_len=seq_len, compute_dtype="bfloat16"
    )


def c4(size: str, sync: SyncConfig | None, replicas: int = 2, batch: int = 0) -> RunConfig:
    """A run on C4 with the Chinchilla budget of 20 tokens a parameter.

    `batch` is global, in sequences; 0: the law's of Data-Parallel or of M = 2, of which more replicas keep the local
    one. All runs of a size see the same tokens.
    """
    shape = model(size)
    tokens = batch * shape.seq_len or c4_batch_tokens(shape.params_by_rule, replicas if sync else DATA_PARALLEL)
    steps = steps_for(TOKENS_PER_PARAMETER * shape.params_by_rule, tokens, _largest_batch(size))
    return _run("c4", shape, tokens, steps, sync, replicas)


def data_parallel(size: str) -> RunConfig:
    """The baseline on C4."""
    return c4(size, None, replicas=1)


def c4_batch_tokens(params: int, replicas: int) -> int:
    """The law's batch of Data-Parallel (0 replicas) or of M = 2; more replicas keep the local batch (Table 7)."""
    return law_batch_tokens(params, min(replicas, 2)) * max(replicas, 2) // 2


def _largest_batch(size: str) -> int:
    """In tokens, over the rows of all specs."""
    methods = (DATA_PARALLEL, MOST_REPLICAS.get(size, 4))
    return max(c4_batch_tokens(model(size).params_by_rule, replicas) for replicas in methods)


def dolma(tokens_per_parameter: int, sync: SyncConfig | None, replicas: int = 2) -> RunConfig:
    """Overtraining at 1B (§3.2.2); more than two replicas keep their local batch, so that steps get fewer."""
    shape = model("1B", seq_len=2_048)
    usual, times = CORPORA["dolma"].batch_tokens, max(replicas, 2) // 2
    steps = round(tokens_per_parameter * shape.params_by_rule / usual) // times
    return _run("dolma", shape, usual * times, steps, sync, replicas)


def _run(corpus: str, shape: ModelConfig, tokens: int, steps: int, sync: SyncConfig | None, replicas: int) -> RunConfig:
    return RunConfig(
        scale="paper",
        model=shape,
        inner=inner(shape, steps, replicas if sync else DATA_PARALLEL),
        sync=sync,
        replicas=replicas,
        corpus=corpus,
        batch=tokens // shape.seq_len,
        steps=steps,
    )


def inner(shape: ModelConfig, steps: int, replicas: int) -> InnerConfig:
    """AdamW as arXiv 2503.09799 states it, ε apart; its law's rate for `replicas` (0: Data-Parallel)."""
    return InnerConfig(
        learning_rate=law_rate(shape.params_by_rule, replicas),
        warmup_steps=1_000,
        final_fraction=0.05,
        beta1=0.9,
        beta2=0.99,
        eps=1e-8,
        weight_decay=1 / steps,
        clip_norm=1.0,
    )


def diloco(every: int) -> SyncConfig:
    """Algorithm 1: everything at once, every H steps, waited for."""
    return SyncConfig(
        every=every,
        delays=(0,),
        mix=0.0,
        fragments=FragmentConfig(pattern="whole", layers=1, embedding="merged"),
        codec=CodecConfig("bfloat16"),
        outer=OUTER,
    )


def streaming(every: int) -> SyncConfig:
    """Algorithm 2 as in the main runs: 3 strided layers a fragment, τ = 1, E3M0."""
    return SyncConfig(
        every=every,
        delays=(1,),
        mix=0.5,
        fragments=FragmentConfig(pattern="strided", layers=3, embedding="own"),
        codec=CodecConfig("e3m0", scale="row"),
        outer=OUTER,
    )


def at_each(points: Iterable[str], first: str, second: str, name: str = "") -> tuple[Pair, ...]:
    """Pairs for a claim: two rows at each point, whose labels have {} where the point stands."""
    return tuple(Pair(first.format(point), second.format(point), point, name) for point in points)

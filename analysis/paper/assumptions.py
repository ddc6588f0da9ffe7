"""What the paper leaves open and what this suite chose, as sentences that travel with every result. No JAX.

Each choice is worded from the config itself, so a footnote can't say anything but what was run. A value
that the paper states (H, M, τ = 1, the outer learning rate, z-loss, QK-norm) is not an assumption and is
not listed.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from repro.corpora import CORPORA
from repro.spec.config import CodecConfig, ModelConfig, RunConfig, SyncConfig
from repro.spec.experiment import PlannedRun
from repro.spec.formats import FORMATS
from repro.spec.optim_state import OUTER
from repro.spec.small import TEXT_TOKENS
from repro.spec.validation import declared_windows

MINIATURES = ("batch", "inner learning rate", "warm-up", "vocabulary")  # of which they have their own
PAPER_LONGEST_EVERY = 100  # H of the sparser main runs, for counting rounds
STATED = "as arXiv 2503.09799 states for the same base; 2501.18512 says nothing"


@dataclass(frozen=True)
class Assumption:
    """One open question, the choice made, and why in one sentence."""

    key: str
    choice: str
    reason: str

    @property
    def sentence(self) -> str:
        """The footnote."""
        return f"{self.key}: {self.choice} ({self.reason})."


def assumptions(config: RunConfig) -> tuple[Assumption, ...]:
    """Every assumption that touches this run, data first, then model, inner and outer optimiser."""
    every = [*_data(config), *_model(config), *_inner(config)]
    every += _data_parallel() if config.sync is None else [*_outer(config.sync), *_streams(config.sync)]
    return tuple(every)


def footnotes(runs: Iterable[PlannedRun], stated: Collection[str] = ()) -> tuple[Assumption, ...]:
    """The assumptions of all runs, each once: where runs differ, the choice says which run has which.

    `stated` are keys of what their paper itself states (`experiments.papers.Paper.states`); a miniature has its own
    batch, rate, warm-up and vocabulary all the same, and says so.
    """
    by_key: dict[str, list[tuple[PlannedRun, Assumption]]] = {}
    for run in {run.row: run for run in runs}.values():
        for assumption in assumptions(run.config):
            own = run.config.scale != "paper" and assumption.key in MINIATURES
            if assumption.key in stated and not own:
                continue
            by_key.setdefault(assumption.key, []).append((run, assumption))
    return tuple(_merged(key, group) for key, group in by_key.items())


def _merged(key: str, group: list[tuple[PlannedRun, Assumption]]) -> Assumption:
    reason = group[0][1].reason
    choices = {assumption.choice for _, assumption in group}
    if len(choices) == 1:
        return Assumption(key, choices.pop(), reason)
    for index in range(min(len(run.labels) for run, _ in group)):
        by_label: dict[str, set[str]] = {}
        for run, assumption in group:
            by_label.setdefault(run.labels[index], set()).add(assumption.choice)
        if all(len(one) == 1 for one in by_label.values()):
            return Assumption(key, _listed({label: one.pop() for label, one in by_label.items()}), reason)
    return Assumption(key, _listed({run.row: assumption.choice for run, assumption in group}), reason)


def _listed(choice_of: dict[str, str]) -> str:
    """`A, B: x; C: y`."""
    labels: dict[str, list[str]] = {}
    for label, choice in choice_of.items():
        labels.setdefault(choice, []).append(label)
    return "; ".join(f"{', '.join(names)}: {choice}" for choice, names in labels.items())


def _data(config: RunConfig) -> Iterator[Assumption]:
    length = config.model.seq_len
    tokens = power_of_two(config.batch * length)
    yield Assumption(
        "batch",
        f"{config.batch:,} sequences of {length:,} = {tokens} tokens over all replicas",
        _batch_reason(config),
    )
    yield Assumption(
        "token budget",
        f"{config.tokens / config.model.params_by_rule:.3g} tokens for each of N = 12 d² L + V d parameters",
        "the FLOPs column of Table 5 follows 6 N · 20 N; the budgets printed in Table 2 are rounder; on C4 at paper "
        "scale to the nearest multiple of 300 steps at the size's largest batch, which H = 30, 50 and 100 divide, and "
        "all runs of a size see the same tokens",
    )
    if config.repeat_data:
        yield Assumption(
            "epochs", f"{config.tokens / TEXT_TOKENS:.2f}", "the text is read again where the budget is longer"
        )
    yield Assumption(
        "order of the data",
        "one seeded permutation, read from its start in batches of the run's size: equal sizes see the same each step",
        "the paper says nothing; this way differences between methods are paired",
    )
    yield Assumption(
        "vocabulary",
        f"SentencePiece, {config.model.vocab:,} pieces"
        if config.scale != "smoke"
        else f"the {config.model.vocab:,} bytes",
        "the paper gives the size and not the tokenizer" if config.scale == "paper" else "sized to the small models",
    )
    yield from (Assumption(*note) for note in CORPORA[config.corpus].notes)
    yield Assumption(
        "validation set",
        f"{declared_windows(config.scale, config.model.seq_len):,} held-out sequences of {config.model.seq_len:,}",
        "the paper says only that the loss is on the validation set",
    )


def _batch_reason(config: RunConfig) -> str:
    if config.scale == "paper":
        return CORPORA[config.corpus].batch_reason
    rounds = f"at {config.model.size} {config.steps:,} steps hold {config.steps // PAPER_LONGEST_EVERY} rounds of "
    rounds += f"H = {PAPER_LONGEST_EVERY}"
    if config.scale == "small":
        return (
            "that of the miniature's 45k carried to this N by the exponents of arXiv 2503.09799 (Data-Parallel 0.281, "
            f"M = 2 0.479), to a power of two; more replicas keep their local batch; {rounds}"
        )
    return f"set by method and M, the best of a grid at the smallest size (tuning.py); {rounds}"


def _model(config: RunConfig) -> Iterator[Assumption]:
    model = config.model
    if config.scale == "paper":
        yield Assumption(
            "hidden dim of Table 2",
            f"the width of the feed-forward layer: d = F / 4, head size {model.head_size}",
            "only so do the parameter counts match the names and the FLOPs of Table 5",
        )
    else:
        yield Assumption(
            f"miniature ({config.scale})",
            f"{model.layers} layers of width {model.width}, {model.heads} heads",
            "the shapes of Table 2, shrunk to what two cores train",
        )
    yield Assumption("positions", f"{model.positions}, added to the token embedding", "as in NanoDO")
    yield from _blocks(model)


def _blocks(model: ModelConfig) -> Iterator[Assumption]:
    yield Assumption(
        "norms",
        "LayerNorm with a gain and no bias; QK-norm the same over each head, one gain for a layer's heads",
        "as in NanoDO; the paper names QK-norm alone",
    )
    yield Assumption(
        "blocks",
        "pre-norm, tanh GELU, no biases; embeddings normal with variance 1/d, matrices Xavier-uniform",
        "as in NanoDO",
    )
    yield Assumption(
        "precision",
        f"parameters and optimisers float32, computed in {model.compute_dtype}",
        "the paper gives only what is sent and that it is accumulated in float32; arXiv 2503.09799 has weights and "
        "gradients in bfloat16",
    )


def _inner(config: RunConfig) -> Iterator[Assumption]:
    inner = config.inner
    yield Assumption("inner learning rate", f"{inner.learning_rate:g} at its peak", _rate_reason(config))
    yield Assumption(
        "warm-up",
        f"linear, {inner.warmup_steps:,}{'' if config.scale == 'paper' else f' of {config.steps:,}'} steps",
        STATED if config.scale == "paper" else "a tenth of the run, about what 1,000 steps are of the paper's at 35M",
    )
    yield Assumption("learning-rate decay", f"cosine to {inner.final_fraction:.0%} of the peak", STATED)
    if inner.schedule_steps and inner.schedule_steps != config.steps:
        yield Assumption(
            "schedule of an extended run",
            f"that of {inner.schedule_steps:,} steps, then its final rate to step {config.steps:,}",
            "so that it is the shorter run up to there; weight decay stays that of the shorter run, too",
        )
    yield Assumption(
        "weight decay",
        f"{_decay(config)} a step at the peak rate, independent of that rate; none on norm gains",
        f"1/steps {STATED}; whether theirs is multiplied by the rate isn't said; norm gains are our choice",
    )
    yield Assumption("AdamW", f"β {inner.beta1:g} and {inner.beta2:g}, ε {inner.eps:g}", f"β {STATED}; ε is our choice")
    yield Assumption(
        "clipping",
        f"gradients to a global norm of {inner.clip_norm:g}, replica by replica; outer gradients not at all",
        STATED,
    )


def _decay(config: RunConfig) -> str:
    decay = config.inner.weight_decay
    return "1/steps" if abs(decay * config.steps - 1) < 1e-9 else f"{decay:g}"


def _rate_reason(config: RunConfig) -> str:
    if config.scale == "small":
        return "that of the miniature's 45k carried to this N by N^-0.8, to a power of √2; the paper gives none"
    if config.scale == "paper":
        return (
            "2501.18512 gives none for any size: the law of arXiv 2503.09799 for Data-Parallel or the run's own M (its "
            "Table 8), to two digits; the joint one (Table 10) where M has none, and for M = 8, whose own falls "
            "fourfold below that of M = 4 at 500M"
        )
    return (
        "the best of one grid for every method and M at the smallest size, experiments/streaming/tuning.py, carried to "
        "the others by N^-0.8 as the laws of arXiv 2503.09799 have it, to a power of √2; the paper gives none"
    )


def _data_parallel() -> Iterator[Assumption]:
    yield Assumption(
        "what Data-Parallel sends",
        "its gradients each step, counted as bfloat16; the all-reduce itself is float32 on CPUs",
        "the accounts of Tables 1 and 4 imply 16 bits",
    )


def _outer(sync: SyncConfig) -> Iterator[Assumption]:
    if "momentum" in OUTER[sync.outer.optimizer].reads:
        yield Assumption(
            "outer momentum", f"{sync.outer.momentum:g}", "the paper gives none; that of DiLoCo and of arXiv 2503.09799"
        )
    if sync.outer.optimizer == "adam":
        numbers = f"β {sync.outer.beta1:g} and {sync.outer.beta2:g}, ε {sync.outer.eps:g}"
        yield Assumption("outer Adam", numbers, "the paper gives none; the library's 0.9, 0.999 and 1e-08 unless set")
    yield Assumption(
        "outer gradient Δ",
        "outer copy − worker's copy",
        "not the worker's own parameters H steps ago, which a mix changes; both public implementations do so",
    )
    yield Assumption(
        "last step",
        "no final flush: what is pending or stale stays so"
        if sync.flush == "none"
        else "a final flush: every fragment is exchanged once more on a copy, which is scored; the run goes on without",
        "the paper says nothing; a miniature has so few rounds that what none has brought yet shows in its scores, a "
        "run at paper scale so many that it is a small share: the ages under the plan say how much",
    )
    yield Assumption("first sync", _first_sync(sync), "as in the example of section 2.2")
    yield from _sent(sync)


def _first_sync(sync: SyncConfig) -> str:
    if sync.first_sync == "trained":
        return "a fragment waits until it has trained H steps"
    return "a fragment syncs from its first due step"


def _sent(sync: SyncConfig) -> Iterator[Assumption]:
    codec = sync.codec
    if codec.drop != "none":
        yield Assumption("value dropping", _dropping(codec), "the paper gives neither granularity nor factor")
    if FORMATS[codec.format].scaled:
        yield Assumption(
            f"scales of {codec.format} codes",
            f"a one-byte power of two for each {codec.scale.replace(':', ' of ')}, rounded to nearest",
            "the paper gives no granularity; one scale a tensor would zero the rows of rare tokens",
        )
    elif sync.fragments.pattern == "whole":
        yield Assumption("what DiLoCo sends", codec.format, "the accounts of Tables 1 and 4 imply 16 bits for DiLoCo")


def _dropping(codec: CodecConfig) -> str:
    kept = f"of each row of n values exactly k, n times {codec.keep:g} rounded"
    return f"{kept}, times n/k" if codec.drop == "dare" else kept


def _streams(sync: SyncConfig) -> Iterator[Assumption]:
    """What only a cut model or an overlapped exchange raises."""
    if max(sync.delays):
        reason = "the paper gives none for the main runs; 0.5 is that of Figure 10, 0 and 0.5 are those of Figure 8"
        yield Assumption("α", f"{sync.mix:g}", reason)
        yield Assumption("order at one step", "send, then apply", "the paper says nothing")
    if sync.fragments.pattern == "whole":
        return
    yield Assumption(
        "offset of a fragment",
        "t − t_p, as in Algorithm 2" if sync.offset_sign < 0 else "t + t_p, as in the text of section 2.2",
        "the text and the algorithm disagree",
    )
    if sync.frozen:
        yield Assumption(
            "frozen fragments",
            "no update, no decay, moments untouched; Adam's count, which all share, goes on, and their gradients "
            "stay in the norm that clips",
            "the paper says only that non-shared layers are frozen",
        )
    yield Assumption(
        "embedding",
        "its own, last fragment, with positions and final norm"
        if sync.fragments.embedding == "own"
        else "in the first fragment, with positions and final norm",
        "Figure 17b shows it apart; the paper doesn't say where it stands in the order",
    )
    size = sync.fragments.layers
    yield Assumption(
        "fragment size",
        f"at most {size} layer{'s' if size > 1 else ''}, a remainder in smaller fragments",
        "3 layers in the paper, a third of that in miniature so that small models have several",
    )


def power_of_two(value: int) -> str:
    """A number of tokens: 2^16, and in digits where it is none."""
    return f"2^{value.bit_length() - 1}" if value & (value - 1) == 0 else f"{value:,}"

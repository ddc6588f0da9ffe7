"""When each fragment is sent, travels and is applied: a pure function of the global step.

The trainer, the plan, the accounts and the simulator (outside its paper mode) all read this module, so
they can't disagree. Steps are counted from 1 as in Algorithms 1 and 2. With n fragments, fragment p has
the offset t_p = p * floor(H / n) (p * H // n when H < n, where several fragments share a step) and is
due at every t with t - t_p = 0 mod H (Algorithm 2, line 14). Each fragment syncs exactly every H steps.
"""

from dataclasses import dataclass

from repro.spec.config import SyncConfig


@dataclass(frozen=True)
class StepEvents:
    """What the program of one step does beside its inner update.

    sends: fragments encoded from the parameters at the *start* of the program, i.e. due one step earlier
    (τ >= 1). parts: (fragment, k, τ): part k of τ of that fragment's codes travels in this program.
    syncs: fragments due now whose least τ is 0: encoded, moved and applied after the inner update.
    applies: fragments whose outer update happens after the inner update (τ_min >= 1). mixes:
    (fragment, replicas): those replicas mix the outer copy in, after syncs and applies.
    """

    sends: tuple[int, ...] = ()
    parts: tuple[tuple[int, int, int], ...] = ()
    syncs: tuple[int, ...] = ()
    applies: tuple[int, ...] = ()
    mixes: tuple[tuple[int, tuple[int, ...]], ...] = ()

    @property
    def quiet(self) -> bool:
        """No event: the step is the plain inner step, with no traffic between replicas."""
        return self == QUIET


QUIET = StepEvents()


def offsets(every: int, fragments: int) -> tuple[int, ...]:
    """t_p for p = 0 .. n-1."""
    if every < fragments:
        return tuple(p * every // fragments for p in range(fragments))
    return tuple(p * (every // fragments) for p in range(fragments))


def is_due(sync: SyncConfig, fragments: int, fragment: int, step: int) -> bool:
    """Whether the outer gradient of `fragment` is taken after inner step `step` (Algorithm 2, line 14)."""
    if step < 1:
        return False
    offset = offsets(sync.every, fragments)[fragment]
    if (step + sync.offset_sign * offset) % sync.every:
        return False
    return sync.first_sync == "due" or step >= sync.every


def replica_delays(sync: SyncConfig, replicas: int) -> tuple[int, ...]:
    """τ of each replica."""
    return sync.delays if len(sync.delays) == replicas else sync.delays * replicas


def events(sync: SyncConfig | None, fragments: int, replicas: int, step: int) -> StepEvents:
    """The events of the program that performs inner step `step` (1-based)."""
    if sync is None:
        return QUIET
    delays = replica_delays(sync, replicas)
    first = min(delays)
    due = _due_table(sync, fragments)
    sends = due(step - 1) if first else ()
    parts = tuple((p, k, first) for k in range(first) for p in due(step - 1 - k))
    syncs = () if first else due(step)
    applies = due(step - first) if first else ()
    mixes = []
    for delay in sorted(set(delays)):
        late = tuple(m for m, d in enumerate(delays) if d == delay)
        mixes += [(p, late) for p in due(step - delay)]
    return StepEvents(sends, parts, syncs, applies, tuple(mixes))


def _due_table(sync: SyncConfig, fragments: int):
    def due(step: int) -> tuple[int, ...]:
        return tuple(p for p in range(fragments) if is_due(sync, fragments, p, step))

    return due


def learning(sync: SyncConfig, fragments: int, step: int) -> tuple[int, ...]:
    """FedPart: the fragments that take the inner update of `step`: those due at the next sync, at `step` or later."""
    due = _due_table(sync, fragments)
    return next(learners for t in range(step, step + 2 * sync.every + 1) if (learners := due(t)))


def flushed(sync: SyncConfig | None, fragments: int, step: int, steps: int) -> tuple[int, ...]:
    """The fragments exchanged once more after `step` of `steps`, on a copy that is scored: all after the last, or none.

    They are no events of the step: what the run saves and goes on from has no part in it.
    """
    return tuple(range(fragments)) if sync is not None and sync.flush == "last" and step == steps else ()


def sync_steps(sync: SyncConfig, fragments: int, fragment: int, steps: int) -> range:
    """The steps, up to `steps`, after which `fragment` is sent."""
    first = next((t for t in range(1, 2 * sync.every + 1) if is_due(sync, fragments, fragment, t)), steps + 1)
    return range(first, steps + 1, sync.every)


def age_at_end(sync: SyncConfig, fragments: int, fragment: int, steps: int) -> int:
    """Steps since the last outer gradient of `fragment` that was applied when a run of `steps` is scored at its end.

    What is pending then is dropped.
    """
    return steps - max(_taken(sync, fragments, fragment, steps), default=0)


def sends_applied(sync: SyncConfig, fragments: int, fragment: int, steps: int) -> int:
    """How many sends of `fragment` travel in whole before the run ends, a final flush among them."""
    return len(_taken(sync, fragments, fragment, steps))


def _taken(sync: SyncConfig, fragments: int, fragment: int, steps: int) -> list[int]:
    """The steps after which the outer gradients of `fragment` were taken that have arrived when the run is scored."""
    delay = min(sync.delays)
    arrived = [t for t in sync_steps(sync, fragments, fragment, steps) if t + delay <= steps]
    return arrived + [steps] * (fragment in flushed(sync, fragments, steps, steps))

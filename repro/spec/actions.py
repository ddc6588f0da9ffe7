"""What a step's program does with which fragments: the schedule's events, sorted into static and traced.

Programs with the same static actions are one program; the host passes the rest as arguments. No JAX.
"""

from dataclasses import dataclass

import numpy as np

from repro.spec.config import SyncConfig
from repro.spec.fragments import Fragment
from repro.spec.schedule import events, flushed, replica_delays


@dataclass(frozen=True, order=True)
class Action:
    """What one program does with one fragment; all of it static."""

    kind: tuple[int, bool]  # layers, embedding
    send: bool = False  # encode the outer gradient before the inner step
    parts: int = 0  # τ_min if a part of the codes moves beside the inner step, else 0
    sync: bool = False  # τ_min = 0: encode, move and apply after the inner step
    apply: bool = False  # outer update after the inner step
    mix: bool = False  # some replicas mix the outer copy in

    @property
    def updates(self) -> bool:
        """The outer update runs: the fragment's outer copy and what OuterOpt keeps of it are new after the step."""
        return self.sync or self.apply

    @property
    def reads_outer(self) -> bool:
        """The outer copy is looked at and stays as it is."""
        return (self.send or self.mix) and not self.updates

    @property
    def keeps_flight(self) -> bool:
        """The codes are still needed by a later program."""
        return bool(self.parts) and not self.apply

    @property
    def flies_on(self) -> bool:
        """Codes from an earlier program that a later one needs too (their buffers are handed through)."""
        return self.keeps_flight and not self.send

    @property
    def lands(self) -> bool:
        """Codes from an earlier program whose last part moves now."""
        return bool(self.parts) and self.apply and not self.send


@dataclass(frozen=True)
class Involved:
    """An action with the traced values that the host gives it."""

    fragment: int
    action: Action
    ids: np.ndarray  # the fragment's layers, int32
    part: int
    taken: int  # the step after which the outer gradient was taken (random masks depend on it)
    keep_M: np.ndarray  # weight of the replica's own parameters: α where it mixes now, else 1


def involved(sync: SyncConfig, cut: tuple[Fragment, ...], replicas: int, step: int) -> tuple[Involved, ...]:
    """The actions of the program of inner step `step`: equal ones side by side, whichever fragments they are of.

    Fragments of one kind take turns, so that in the order of fragments the same actions would come as several programs.
    """
    now = events(sync, len(cut), replicas, step)
    parts = {p: k for p, k, _ in now.parts}
    named = sorted({*now.sends, *parts, *now.syncs, *now.applies, *(p for p, _ in now.mixes)})
    involvements = []
    for p in named:
        mixing = [m for q, late in now.mixes if q == p for m in late]
        keep_M = np.ones(replicas, np.float32)
        keep_M[mixing] = sync.mix
        action = Action(
            kind=cut[p].kind,
            send=p in now.sends,
            parts=min(replica_delays(sync, replicas)) if p in parts else 0,
            sync=p in now.syncs,
            apply=p in now.applies,
            mix=bool(mixing),
        )
        part = parts.get(p, 0)
        taken = step - 1 - part if p in parts else step
        involvements.append(Involved(p, action, np.array(cut[p].layers, np.int32), part, taken, keep_M))
    return tuple(sorted(involvements, key=lambda item: (item.action, item.fragment)))


def flush_involved(
    sync: SyncConfig | None, cut: tuple[Fragment, ...], replicas: int, step: int, steps: int
) -> tuple[Involved, ...]:
    """What the program of a final flush does after `step` of `steps`: nothing, or an exchange of every fragment.

    Nothing is mixed in: replicas keep their own parameters. Programs of one cut are one program.
    """
    keep_M = np.ones(replicas, np.float32)
    return tuple(
        Involved(p, Action(cut[p].kind, sync=True), np.array(cut[p].layers, np.int32), 0, step, keep_M)
        for p in flushed(sync, len(cut), step, steps)
    )

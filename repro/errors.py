"""The one error a user is meant to see: a sentence, no traceback, exit code 2."""

import difflib
import sys
from collections.abc import Sequence
from functools import cache

EXIT_BUG, EXIT_USER_ERROR, EXIT_INTERRUPTED = 1, 2, 42  # 42: everything saved; the same command goes on


class UserError(Exception):
    """Bad input. The message is one sentence with the offending value and what to do about it."""


class UnusableFile(UserError):
    """A file that is not what its place says. Who asks for it alone is refused; who reads many passes over it."""


@cache
def pass_over(sentence: str) -> None:
    """Name what is passed over, once in a process."""
    print(f"repro: passed over: {sentence}", file=sys.stderr, flush=True)


def check_known(unknown: str, name: str, known: Sequence[str]) -> None:
    """UserError that begins with `unknown` and gives the nearest name, or all, when `name` isn't known."""
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(known)}."
        raise UserError(f"{unknown} {name!r}: {hint}")


class Interrupted(Exception):
    """The run was asked to stop, and has saved the step it reached."""

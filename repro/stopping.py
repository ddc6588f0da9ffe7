"""Being asked to stop: SIGTERM and SIGINT, answered in time whatever the main thread is in. No JAX.

Python runs a handler only between two of its own instructions, so a compilation of minutes lets a signal wait for
longer than a scheduler does. The system wakes a thread at once (`signal.set_wakeup_fd`), which ends the process in the
place of the main one, but only where nothing would be lost. Nothing here saves anything.
"""

import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from repro.errors import EXIT_INTERRUPTED

PATIENCE_S = 10.0  # in which a command that was interrupted has to come to its end
LOOK_S = 0.5  # between two looks at whether the parent lives


class Stop:
    """Set by the first SIGTERM or SIGINT, or `with_parent` by the parent's death; a second signal kills.

    Whoever works asks it often. While it is `free` it ends the process itself, with a sentence for `tell`.
    """

    def __init__(self, tell: Callable[[str], None], *, with_parent: bool = False) -> None:
        self.asked, self._tell = False, tell
        self._parent = os.getppid() if with_parent else None
        self._numbers = [signal.SIGTERM, signal.SIGINT]
        self._lock = threading.Lock()
        self._leave: Callable[[], str] | None = None
        for number in self._numbers:
            signal.signal(number, self._on_signal)
        wakened, _ = _wakened()
        threading.Thread(target=self._watch, args=(wakened,), daemon=True).start()

    def __call__(self) -> bool:
        return self.asked or self._parent not in (None, os.getppid())

    def yield_signal(self, number: signal.Signals) -> None:
        """Another handler was put in the place of this one, and stays when a signal comes."""
        self._numbers.remove(number)

    def free(self, leave: Callable[[], str]) -> None:
        """From now on nothing would be lost: asked to stop, the process tells what `leave` returns and exits 42."""
        with self._lock:
            self._leave = leave

    def busy(self) -> None:
        """From now on there is something that only the main thread can save."""
        with self._lock:
            self._leave = None

    def _on_signal(self, *_: Any) -> None:
        self.asked = True
        for number in self._numbers:
            signal.signal(number, signal.SIG_DFL)

    def _watch(self, wakened: int) -> None:
        while True:
            if set(_signals(wakened, LOOK_S)) & set(self._numbers):
                self.asked = True
            with self._lock:
                if self._leave is not None and self():
                    try:
                        self._tell(self._leave())
                    finally:
                        os._exit(EXIT_INTERRUPTED)


@contextmanager
def interruptible(sentence: str) -> Iterator[None]:
    """A command that may be killed at any moment: SIGTERM raises KeyboardInterrupt, as Ctrl-C does.

    Where the main thread doesn't come to it in PATIENCE_S (a compilation, the training of a tokenizer) the process
    ends with the sentence and 42. Handlers that the command sets itself have precedence.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler, before = signal.signal(signal.SIGTERM, _raise), signal.set_wakeup_fd(-1)
    (wakened, written), ended = _wakened(), threading.Event()
    threading.Thread(target=_end_late, args=(wakened, ended, sentence), daemon=True).start()
    try:
        yield
    finally:
        ended.set()
        signal.set_wakeup_fd(before)
        os.close(written)
        if handler is not None:
            signal.signal(signal.SIGTERM, handler)


def end_now(sentence: str) -> NoReturn:
    """From any thread: the main one is stuck, or waits for what doesn't come. A scheduler starts the command again."""
    print(f"repro: {sentence}", file=sys.stderr, flush=True)
    os._exit(EXIT_INTERRUPTED)


def explain_abort(sentence: str) -> None:
    """From now on the sentence is told when a library aborts this process, wherever its threads are.

    Nothing of this process can say it then, but the system still writes the signal's number into a pipe, at the end of
    which a small process waits. Takes the place of what else waits for signals in that way.
    """
    wakened, _ = _wakened()
    signal.signal(signal.SIGABRT, lambda *_: None)
    command = [sys.executable, "-S", "-E", "-c", _SAYS, str(int(signal.SIGABRT)), f"repro: {sentence}"]
    there = [(os.POSIX_SPAWN_DUP2, wakened, 0)]
    os.posix_spawn(sys.executable, command, os.environ, file_actions=there, setpgroup=0)
    os.close(wakened)


_SAYS = """
import os, sys
while number := os.read(0, 1):
    if number[0] == int(sys.argv[1]):
        print(sys.argv[2], file=sys.stderr, flush=True)
"""


def _raise(*_: Any) -> None:
    raise KeyboardInterrupt


def _end_late(wakened: int, ended: threading.Event, sentence: str) -> None:
    while not ended.is_set():
        for number in _signals(wakened, LOOK_S):
            handler = signal.getsignal(number)
            if handler in (_raise, signal.default_int_handler) and not ended.wait(PATIENCE_S):
                end_now(sentence)
    os.close(wakened)


def _wakened() -> tuple[int, int]:
    """A pipe (its end, its beginning) into which the system writes the number of each signal that has a handler."""
    wakened, written = os.pipe()
    os.set_blocking(written, False)
    signal.set_wakeup_fd(written, warn_on_full_buffer=False)
    return wakened, written


def _signals(wakened: int, within_s: float) -> bytes:
    """The numbers of signals that came, after the first of them or the time."""
    poll = select.poll()
    poll.register(wakened, select.POLLIN)
    return os.read(wakened, 64) if poll.poll(1000 * within_s) else b""

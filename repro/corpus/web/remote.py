"""A remote file as a stream that survives what goes wrong on the way: refusals, timeouts, broken transfers.

A transfer that breaks goes on where it stopped (a Range request to the first address, so that a signed address
that has run out, a 403, is signed anew). Silent truncation is seen by counting bytes. Only the standard library
is used: the hub's own client does not try again after a 403 nor a file that ends early.
"""

import http.client
import io
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from repro.errors import UserError

TRANSIENT = frozenset({403, 408, 425, 429, 500, 502, 503, 504})
_LONGEST_RETRY_AFTER = 300.0
_TIMEOUT = 60.0  # seconds without a byte

Say = Callable[[str], None]
Result = TypeVar("Result")
OFFLINE = "fetch the files by other means and pass their folder with --source PATH (docs/data.md)"


@dataclass(frozen=True)
class Backoff:
    """How patiently to try again: `attempts` in a row without progress, waiting first·2^k seconds between them."""

    first: float = 0.5
    longest: float = 60.0
    attempts: int = 10

    def wait(self, failures: int) -> float:
        """Seconds to wait after that many failures in a row."""
        return min(self.longest, self.first * 2 ** (failures - 1))


class TransferError(Exception):
    """A transfer that went wrong and may go well the next time; `after` is the server's wish in seconds."""

    def __init__(self, reason: str, after: float = 0.0) -> None:
        super().__init__(reason)
        self.after = after


def insist(action: Callable[[], Result], what: str, backoff: Backoff, say: Say) -> Result:
    """The result of `action`, tried again after each TransferError; UserError when patience ends."""
    for failures in range(1, backoff.attempts + 1):
        try:
            return action()
        except TransferError as error:
            if failures == backoff.attempts:
                reason = f"{error}, {failures} times in a row"
                raise UserError(f"{what} can't be read ({reason}): try later, or {OFFLINE}.") from error
            wait = max(backoff.wait(failures), min(error.after, _LONGEST_RETRY_AFTER))
            say(f"{what}: {error}; next try in {wait:.1f} s")
            time.sleep(wait)
    raise AssertionError("attempts is at least 1")


class RemoteFile(io.RawIOBase):
    """The bytes of one address from its beginning; `total` is its length and `etag` its version, once known.

    What answers with another length than `size`, where one is listed, is not the file.
    """

    def __init__(self, url: str, backoff: Backoff, say: Say, token: str | None = None, size: int | None = None) -> None:
        self._url, self._backoff, self._say, self._token = url, backoff, say, token
        self._response: http.client.HTTPResponse | None = None
        self._offset = 0
        self._size = size
        self.total: int | None = None
        self.etag: str | None = None

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer) -> int:
        """Fill what one read of the network gives; 0 at the end of the whole file only."""
        if self._offset == self.total:
            return 0
        return insist(lambda: self._attempt(buffer), self._url, self._backoff, self._say)

    def close(self) -> None:
        """Let go of the connection."""
        self._disconnect()
        super().close()

    def _attempt(self, buffer) -> int:
        try:
            if self._response is None:
                self._connect()
            assert self._response is not None
            count = self._response.readinto(buffer)
            if count == 0 and self.total is not None and self._offset < self.total:
                raise TransferError(f"the transfer broke off after {self._offset} of {self.total} bytes")
        except urllib.error.HTTPError as error:
            self._disconnect()
            raise _refused(self._url, error) from error
        except (OSError, http.client.HTTPException) as error:
            self._disconnect()
            raise TransferError(str(getattr(error, "reason", error)) or type(error).__name__) from error
        except TransferError:
            self._disconnect()
            raise
        self._offset += count
        return count

    def _connect(self) -> None:
        headers = {"Accept-Encoding": "identity"}
        if self._offset:
            headers["Range"] = f"bytes={self._offset}-"
        request = urllib.request.Request(self._url, headers=headers)
        if self._token:  # not passed on where the hub redirects to its storage
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        response = self._response = urllib.request.urlopen(request, timeout=_TIMEOUT)
        self._check(_length(response, self._offset), response.headers.get("ETag", "").removeprefix("W/") or None)
        skip = 0 if response.status == 206 else self._offset
        while skip:  # a server without ranges starts again from the beginning
            skip -= len(response.read(min(skip, 1 << 20))) or _broke_off(skip)

    def _check(self, total: int | None, etag: str | None) -> None:
        """That an answer is of the file, and of the version that the first one was of."""
        if self.total is not None and total != self.total:
            raise UserError(f"{self._url} changed while it was read ({self.total} bytes, now {total}): run again.")
        if self.etag is not None and etag is not None and etag != self.etag:
            raise UserError(f"{self._url} changed while it was read (ETag {self.etag}, now {etag}): run again.")
        if self._size is not None and total is not None and total != self._size:
            raise TransferError(f"it answers with {total} bytes where {self._size} are listed")
        self.total, self.etag = total if self._size is None else self._size, self.etag or etag

    def _disconnect(self) -> None:
        if self._response is not None:
            self._response.close()
            self._response = None


def _length(response: http.client.HTTPResponse, start: int) -> int | None:
    """The length of the whole file, None for one sent in chunks; TransferError for what is no answer to the request."""
    if response.headers.get_content_type() == "text/html":
        raise TransferError("it answers with a web page, as for a login")
    length = response.headers.get("Content-Length")
    if response.status == 200:
        if length is None and not response.chunked:
            raise TransferError("it says no length, so that a file cut short would not be seen")
        return None if length is None else int(length)
    given = response.headers.get("Content-Range", "no range")
    extent = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", given)
    if response.status != 206 or extent is None or int(extent[1]) != start or int(extent[2]) + 1 != int(extent[3]):
        raise TransferError(f"it answers {response.status} with {given} where all from byte {start} on was asked for")
    return int(extent[3])


def _broke_off(left: int) -> int:
    raise TransferError(f"the transfer broke off {left} bytes before the place to go on from")


def _refused(url: str, error: urllib.error.HTTPError) -> Exception:
    if error.code not in TRANSIENT and error.code < 500:
        return UserError(f"{url} can't be read ({error.code} {error.reason}): check name and revision, or {OFFLINE}.")
    after = error.headers.get("Retry-After", "")
    return TransferError(f"{error.code} {error.reason}", float(after) if after.isdigit() else 0.0)

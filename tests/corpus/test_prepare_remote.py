"""Remote files against a server that refuses, breaks off and forgets."""

import random
import time

import pytest
from fake_hub import fake_hub

from repro.corpus.web import remote
from repro.corpus.web.remote import Backoff, RemoteFile, TransferError, insist
from repro.errors import UserError

QUICK = Backoff(first=0.001, longest=0.002, attempts=4)
CONTENT = random.Random(0).randbytes(300_000)


@pytest.fixture
def hub():
    with fake_hub() as hub:
        hub.files["/file"] = CONTENT
        yield hub


def read(hub, path="/file", backoff=QUICK, token=None, said=None):
    with RemoteFile(hub.address + path, backoff, (said if said is not None else []).append, token) as file:
        return file.readall()


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize(
    "failures",
    [[], [403], [429, 503], [500, 502, 504], ["cut"], ["cut", "cut", "cut"], ["cut", 403, "cut", 429, 503, "cut"]],
)
def test_what_arrives_is_whole(hub, failures, ranges):
    hub.failures["/file"], hub.ranges = list(failures), ranges
    said = []
    # Without ranges a transfer that is cut at the same place again has brought nothing: 6 in a row.
    assert read(hub, backoff=Backoff(0.001, 0.002, 7), said=said) == CONTENT
    assert len(said) == len(failures) and len(hub.requests) == len(failures) + 1
    assert hub.failures["/file"] == []


def test_a_broken_transfer_goes_on_where_it_stopped(hub):
    hub.failures["/file"] = ["cut"]
    read(hub)
    assert [headers.get("Range") for _, _, headers in hub.requests] == [None, f"bytes={len(CONTENT) // 2}-"]


def test_patience_is_for_failures_in_a_row(hub):
    # 9 failures, but never 4 without progress between them: each transfer that is cut has brought half of the rest.
    hub.failures["/file"] = [503, 503, "cut"] * 3
    assert read(hub) == CONTENT


@pytest.mark.parametrize(("status", "requests"), [(403, 4), (429, 4), (503, 4), (404, 1), (401, 1)])
def test_refusals_end_in_a_sentence_that_names_the_offline_way(hub, status, requests):
    hub.failures["/file"] = [status] * 9
    with pytest.raises(UserError, match=rf"/file can't be read \({status}.*--source PATH"):
        read(hub)
    assert len(hub.requests) == requests


def test_no_server_is_a_sentence_too():
    with fake_hub() as hub:
        pass
    with pytest.raises(UserError, match=r"can't be read \(.*refused.*4 times in a row\).*--source PATH"):
        read(hub)


def test_the_waits_double_up_to_the_longest():
    assert [Backoff(0.5, 4.0, 9).wait(failures) for failures in range(1, 6)] == [0.5, 1, 2, 4, 4]


def test_the_server_may_ask_for_a_longer_wait(hub, monkeypatch):
    hub.failures["/file"], hub.retry_after = [429, 429], "7"
    waits = []
    monkeypatch.setattr(time, "sleep", waits.append)
    assert read(hub) == CONTENT
    assert waits == [7.0, 7.0]


def test_a_token_stays_with_the_address_it_is_for(hub):
    hub.redirects["/signed"] = hub.address + "/file"
    assert read(hub, "/signed", token="secret") == CONTENT
    assert [headers.get("Authorization") for _, _, headers in hub.requests] == ["Bearer secret", None]


def test_an_expired_signature_is_renewed(hub):
    # Each retry asks the first address again, which redirects to a fresh one.
    hub.redirects["/signed"] = hub.address + "/file"
    hub.failures["/file"] = ["cut", 403]
    assert read(hub, "/signed") == CONTENT
    assert [path for _, path, _ in hub.requests] == ["/signed", "/file"] * 3


def test_a_file_that_changes_meanwhile_is_refused(hub):
    hub.failures["/file"] = ["cut"]
    file = RemoteFile(hub.address + "/file", QUICK, [].append)
    file.read(1000)
    hub.files["/file"] = CONTENT + b"more"
    with pytest.raises(UserError, match=r"changed while it was read \(300000 bytes, now 300004\)"):
        file.readall()
    file.close()


def test_insist_passes_on_what_is_no_transfer_error():
    def fail():
        raise ValueError("a mistake")

    with pytest.raises(ValueError, match="a mistake"):
        insist(fail, "it", QUICK, print)
    with pytest.raises(UserError, match=r"it can't be read \(gone, 4 times in a row\)"):
        insist(lambda: (_ for _ in ()).throw(TransferError("gone")), "it", QUICK, [].append)


def test_nothing_waits_longer_than_five_minutes_for_a_server(monkeypatch):
    waits = []
    monkeypatch.setattr(remote.time, "sleep", waits.append)
    with pytest.raises(UserError):
        insist(lambda: (_ for _ in ()).throw(TransferError("busy", 1e6)), "it", Backoff(1, 2, 3), [].append)
    assert waits == [300.0, 300.0]

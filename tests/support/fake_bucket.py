"""A bucket's JSON API on a port of this machine: what gcsfs and tensorstore ask of Google Cloud Storage, in memory.

Objects are written whole, created only where there is none by `ifGenerationMatch=0`, listed, read and deleted. There
is no rename (`moveTo`) and no append (`compose`); copies are kept in a log, since one with a deletion after it would be
a rename. `losing` makes it do what it is asked and then answer 503, as a broken connection does.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

PAGE = 50  # objects of a listing, so that readers must ask for the next page


@dataclass
class Blob:
    """An object: its bytes, and the number and time of this version."""

    content: bytes
    generation: int
    updated: float

    def resource(self, bucket: str, name: str) -> dict[str, Any]:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(self.updated)) + f".{int(self.updated % 1 * 1000):03d}Z"
        facts = {"kind": "storage#object", "bucket": bucket, "name": name, "size": str(len(self.content))}
        facts |= {"generation": str(self.generation), "metageneration": "1", "contentType": "application/octet-stream"}
        return facts | {"timeCreated": stamp, "updated": stamp, "storageClass": "STANDARD"}


@dataclass
class Store:
    """One bucket, whatever its name; what was refused and copied is kept for the tests."""

    blobs: dict[str, Blob] = field(default_factory=dict)
    uploads: dict[str, tuple[str, dict[str, str], bytearray]] = field(default_factory=dict)  # under way
    copies: list[tuple[str, str]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    losing: int = 0  # answers to uploads that get lost from now on
    forbidden: str = ""  # what every request is refused with
    on_put: Callable[[str], Any] = lambda _: None  # called with the name of each object that is written
    lock: Any = field(default_factory=threading.RLock)
    generation: int = 1

    def put(self, name: str, content: bytes, query: dict[str, str]) -> Blob | None:
        """The new version; None where the precondition does not hold."""
        with self.lock:
            there = self.blobs.get(name)
            wanted = query.get("ifGenerationMatch")
            if wanted is not None and int(wanted) != (there.generation if there else 0):
                return None
            self.generation += 1
            self.blobs[name] = blob = Blob(content, self.generation, time.time())
        self.on_put(name)
        return blob


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    store: Store

    def log_message(self, *_: Any) -> None:
        pass

    def _parts(self) -> tuple[list[str], dict[str, str]]:
        split = urlsplit(self.path)
        parts = [unquote(part) for part in split.path.strip("/").split("/")]
        return parts, {key: values[0] for key, values in parse_qs(split.query, keep_blank_values=True).items()}

    def _answer(self, code: int, content: bytes | dict[str, Any] = b"", **headers: str) -> None:
        body = json.dumps(content).encode() if isinstance(content, dict) else content
        self.send_response(code)
        kind = "application/json" if isinstance(content, dict) else "application/octet-stream"
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _refuse(self, code: int = 404) -> None:
        if code == 501:
            self.store.refused.append(f"{self.command} {self.path}")
        self._answer(code, {"error": {"code": code, "message": self.store.forbidden or f"{self.command} {self.path}"}})

    def do_GET(self) -> None:
        if self.store.forbidden:
            return self._refuse(403)
        match self._parts():
            case ["storage", "v1", "b", bucket], _:
                self._answer(200, {"kind": "storage#bucket", "name": bucket, "location": "US"})
            case ["storage", "v1", "b", _, "storageLayout"], _:
                self._answer(200, {"locationType": "region", "hierarchicalNamespace": {"enabled": False}})
            case ["storage", "v1", "b", bucket, "o"], query:
                self._answer(200, self._listing(bucket, query))
            case ["storage" | "download", *_, "v1", "b", bucket, "o", name], query:
                self._read(bucket, name, query)
            case _:
                self._refuse(501)

    def _read(self, bucket: str, name: str, query: dict[str, str]) -> None:
        blob = self.store.blobs.get(name)
        if blob is None:
            return self._refuse()
        if query.get("ifGenerationNotMatch") == str(blob.generation):
            return self._answer(304)
        if query.get("ifGenerationMatch", str(blob.generation)) != str(blob.generation):
            return self._refuse(412)
        if query.get("alt") != "media":
            return self._answer(200, blob.resource(bucket, name))
        content, code, headers = blob.content, 200, {"x-goog-generation": str(blob.generation)}
        if (asked := self.headers.get("Range")) and content:
            first, last = asked.removeprefix("bytes=").split("-")
            start = int(first) if first else max(0, len(content) - int(last))
            end = min(int(last) + 1 if first and last else len(content), len(content))
            if start >= len(content):
                return self._refuse(416)
            code, headers["Content-Range"] = 206, f"bytes {start}-{end - 1}/{len(content)}"
            content = content[start:end]
        return self._answer(code, content, **headers)

    def _listing(self, bucket: str, query: dict[str, str]) -> dict[str, Any]:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        first, end = query.get("startOffset", ""), query.get("endOffset", "\U0010ffff")
        after, most = query.get("pageToken", ""), min(int(query.get("maxResults", PAGE)), PAGE)
        items, prefixes = [], []
        with self.store.lock:
            names = sorted(n for n in self.store.blobs if n.startswith(prefix) and max(first, "") <= n < end)
            listed: dict[str, str | None] = {}  # what is listed -> the object, or None for a folder
            for name in names:
                folder, cut, _ = name[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
                listed |= {prefix + folder + cut: None} if cut else {name: name}
            left = [name for name in listed if name > after]
            for name in left[:most]:
                if listed[name] is None:
                    prefixes.append(name)
                else:
                    items.append(self.store.blobs[name].resource(bucket, name))
        page = {"nextPageToken": left[most - 1]} if len(left) > most else {}
        return {"kind": "storage#objects", "items": items, "prefixes": prefixes, **page}

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.store.forbidden:
            return self._refuse(403)
        match self._parts():
            case ["upload", "storage", "v1", "b", bucket, "o"], {"upload_id": number}:
                self._go_on(bucket, number, body)
            case ["upload", "storage", "v1", "b", bucket, "o"], query:
                self._upload(bucket, query, body)
            case ["storage", "v1", "b", bucket, "o", name, "rewriteTo" | "copyTo", "b", _, "o", target], _:
                self._copy(bucket, name, target)
            case _:
                self._refuse(501)

    def _upload(self, bucket: str, query: dict[str, str], body: bytes) -> None:
        match query["uploadType"]:
            case "multipart":
                mark = b"--" + self.headers["Content-Type"].split("boundary=")[1].strip('"').encode()
                facts, content = body.removesuffix(b"\n" + mark + b"--").split(b"\n" + mark, 1)
                name = json.loads(facts.split(b"\n\n", 1)[1])["name"]
                self._put(bucket, name, content.split(b"\n\n", 1)[1], query)
            case "media":
                self._put(bucket, query["name"], body, query)
            case "resumable":
                number = str(len(self.store.uploads))
                self.store.uploads[number] = query["name"], query, bytearray()
                place = f"http://{self.headers['Host']}/upload/storage/v1/b/{bucket}/o?upload_id={number}"
                self._answer(200, {}, Location=place)

    def _go_on(self, bucket: str, number: str, body: bytes) -> None:
        """A part of a resumable upload; there is an object once its whole length has come."""
        name, query, come = self.store.uploads[number]
        come += body
        if self.headers["Content-Range"].endswith(f"/{len(come)}"):
            self._put(bucket, name, bytes(come), query)
        else:
            self._answer(308, {}, Range=f"bytes=0-{len(come) - 1}")

    def _put(self, bucket: str, name: str, content: bytes, query: dict[str, str]) -> None:
        blob = self.store.put(name, content, query)
        if blob is None:
            return self._refuse(412)
        with self.store.lock:
            lost = self.store.losing > 0
            self.store.losing -= lost
        return self._refuse(503) if lost else self._answer(200, blob.resource(bucket, name))

    def _copy(self, bucket: str, name: str, target: str) -> None:
        with self.store.lock:
            source = self.store.blobs.get(name)
            copied = source and self.store.put(target, source.content, {})
        if copied is None:
            return self._refuse()
        self.store.copies.append((name, target))
        return self._answer(
            200, {"kind": "storage#rewriteResponse", "done": True, "resource": copied.resource(bucket, target)}
        )

    def do_DELETE(self) -> None:
        match self._parts():
            case ["storage", "v1", "b", _, "o", name], query:
                with self.store.lock:
                    blob = self.store.blobs.get(name)
                    if blob is None:
                        return self._refuse()
                    if query.get("ifGenerationMatch", str(blob.generation)) != str(blob.generation):
                        return self._refuse(412)
                    del self.store.blobs[name]
                return self._answer(204)
            case _:
                return self._refuse(501)


@contextmanager
def serve() -> Iterator[tuple[Store, dict[str, str]]]:
    """A running bucket, and the environment in which gcsfs, tensorstore and whatever process find it."""
    store = Store()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"store": store}))
    server.daemon_threads, server.handle_error = True, lambda *_: None  # who asks need not wait for the answer
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    # A token for tensorstore, which would look for one of this machine; gcsfs sends none to an emulator, and there asks
    # for no kind of bucket, which is another service.
    environment = {
        "STORAGE_EMULATOR_HOST": url,
        "TENSORSTORE_GCS_HTTP_URL": url,
        "GOOGLE_AUTH_TOKEN_FOR_TESTING": "none",
    }
    try:
        yield store, environment | {"GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}
    finally:
        server.shutdown()
        server.server_close()

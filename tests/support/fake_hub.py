"""A server on 127.0.0.1 that stands for the hub and the storage behind it, and fails first as often as told."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

C4, DOLMA = "/datasets/allenai/c4", "/datasets/allenai/dolma"
CARD = """---
configs:
- config_name: en
  data_files:
  - split: train
    path: en/c4-train.*.json.gz
  - split: validation
    path: en/c4-validation.*.json.gz
---
"""


class FakeHub:
    """`files` by path; `failures` by path: a list of what happens first, a status, "cut" or "flip"."""

    def __init__(self, address):
        self.address = address
        self.files, self.failures, self.requests = {}, {}, []
        self.redirects, self.ranges, self.retry_after = {}, True, None
        self.changes = {}  # what it answers instead: a "page", a "range", an "etag" of what follows, no "length"

    def put_repository(self, prefix, revision, files):
        """Files of a dataset at a revision, and what the hub's client asks before it fetches any."""
        for name, content in files.items():
            self.files[f"{prefix}/resolve/{revision}/{name}"] = content
        listed = [{"rfilename": name} for name in files]
        answer = {"id": prefix.removeprefix("/datasets/"), "sha": revision, "siblings": listed}
        self.files[f"/api{prefix}/revision/{revision}"] = json.dumps(answer).encode()
        folders = {name.rpartition("/")[0] for name in files} - {""}
        for folder in ("", *folders):
            here = [name for name in files if name.rpartition("/")[0] == folder]
            entries = [{"type": "file", "path": n, "size": len(files[n]), "oid": "0" * 40} for n in here]
            if not folder:
                entries += [{"type": "directory", "path": sub, "oid": "0" * 40} for sub in sorted(folders)]
            path = f"/api{prefix}/tree/{revision}" + (f"/{folder}" if folder else "")
            self.files[path] = json.dumps(entries).encode()
        self.revision = revision


@contextmanager
def fake_hub():
    """A running FakeHub."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            answer(hub, self)

        do_HEAD = do_GET

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub = FakeHub(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def answer(hub, request):
    path = request.path.partition("?")[0]
    hub.requests.append((request.command, path, dict(request.headers)))
    get = request.command == "GET"
    failure = hub.failures[path].pop(0) if get and hub.failures.get(path) else None
    if isinstance(failure, int) or path in hub.redirects or path not in hub.files:
        request.send_response(failure or (302 if path in hub.redirects else 404))
        if failure and hub.retry_after:
            request.send_header("Retry-After", hub.retry_after)
        if path in hub.redirects:
            request.send_header("Location", hub.redirects[path])
        request.send_header("Content-Length", "0")
        request.end_headers()
        return
    content = hub.changes.get("page", hub.files[path])
    start = 0
    if hub.ranges and request.headers.get("Range"):
        start = int(request.headers["Range"].removeprefix("bytes=").removesuffix("-"))
        request.send_response(206)
        given = hub.changes.get("range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if given:
            request.send_header("Content-Range", given)
    else:
        request.send_response(200)
    body = content[start:]
    if failure == "flip":
        middle = len(body) // 2
        body = body[:middle] + bytes([body[middle] ^ 255]) + body[middle + 1 :]
    if hub.changes.get("length", True):
        request.send_header("Content-Length", str(len(body)))
    if "page" in hub.changes:
        request.send_header("Content-Type", "text/html; charset=utf-8")
    fixed = hub.changes.get("first_etag", '"fixed"')
    request.send_header("ETag", hub.changes.get("etag", fixed) if start else fixed)
    request.send_header("X-Repo-Commit", getattr(hub, "revision", ""))
    request.end_headers()
    if get:
        request.wfile.write(body[: len(body) // 2] if failure == "cut" else body)

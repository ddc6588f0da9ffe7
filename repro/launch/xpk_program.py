"""xpk as a subprocess: it lives in its own environment, as it pins old packages. No JAX."""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from repro.cores import cores
from repro.errors import UserError
from repro.launch import failure_policy

LEFT_ALONE = "already exists, XPK will not create this workload"


def require(xpk: str) -> str:
    """The absolute path of xpk; UserError with the command that installs it."""
    path = Path(xpk).expanduser().absolute()
    if not path.is_file() or not os.access(path, os.X_OK):
        raise UserError(f"xpk isn't at {xpk}: `make xpk` installs it there, or name another with --xpk.")
    return str(path)


def render_manifests(xpk: str, jobs: Iterable[tuple[Sequence[str], Path]]) -> None:
    """Each job's complete manifest, offline and side by side: (xpk's arguments, file). UserError with xpk's reason."""
    with ThreadPoolExecutor(len(cores())) as pool:
        for _ in pool.map(lambda job: _render(xpk, *job), jobs):
            pass


def _render(xpk: str, arguments: Sequence[str], path: Path) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}")
    dry = ["--dry-run", "--skip-validation", "--output-manifest-file", str(part.absolute())]
    # xpk would report its use over the network.
    done = _call([xpk, *arguments, *dry], {"TELEMETRY_ENABLED": "false"})
    if done.returncode or not part.is_file():
        raise UserError(f"xpk rendered no manifest for {path.stem} ({_reason(done)}).")
    try:
        part.write_text(failure_policy.uncounted(part.read_text(encoding="utf-8")), encoding="utf-8")
    except ValueError as error:
        part.unlink()
        raise UserError(f"{error}.") from error
    part.replace(path)


def create_workload(xpk: str, arguments: Sequence[str]) -> bool:
    """Create a workload; False, with nothing done, where one of its name is there. UserError with xpk's reason.

    xpk looks volumes up in the cluster and applies at once what it renders, so that its kubectl is one that edits.
    """
    with tempfile.TemporaryDirectory() as folder:
        environment = {}
        if (kubectl := shutil.which("kubectl")) is not None:
            stand_in, words = Path(folder) / "kubectl", [sys.executable, failure_policy.__file__, kubectl]
            stand_in.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
            stand_in.chmod(0o755)
            environment["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
        done = _call([xpk, *arguments], environment)
    if done.returncode == 0:
        return True
    if LEFT_ALONE in done.stdout:
        return False
    raise UserError(f"xpk created no workload ({_reason(done)}): mend it and launch again; what runs is left alone.")


def _call(command: Sequence[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Every question that xpk asks ("overwrite it?") is answered with no; UserError for what is no program."""
    try:
        return subprocess.run(
            command,
            input="n\n",
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            env={**os.environ, **environment},
            check=False,
        )
    except OSError as error:
        raise UserError(f"{command[0]} can't be run ({error.strerror}): `make xpk` installs xpk anew.") from error


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line.removeprefix("[XPK] ") for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    said = [line for line in lines if not line.startswith(("XPK failed", "XPK Done", "Exiting XPK"))]
    return f"exit code {done.returncode}: {said[-1] if said else 'it said nothing'}"

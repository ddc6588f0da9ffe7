"""A cluster of one machine: sbatch, squeue, scontrol and srun as far as a script of `launch` uses them.

Run as `slurm_stand_in.py PROGRAM WORDS...`; jobs lie in the folder of the variable SLURM_STAND_IN, each with its
script, its state and the process ids of its tasks.
"""

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

PROGRAMS = ("sbatch", "squeue", "scontrol", "srun")


def install(folder: Path, first_job: int = 1) -> dict[str, str]:
    """Make the programs, and return the environment that finds them; jobs are numbered from `first_job`."""
    (folder / "bin").mkdir(parents=True)
    (folder / "next").write_text(str(first_job), encoding="utf-8")
    for name in PROGRAMS:
        path = folder / "bin" / name
        path.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E {__file__} {name} "$@"\n', encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {"SLURM_STAND_IN": str(folder), "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}


def option(script: str, name: str) -> str:
    """The value of an option in the head of a script."""
    return re.findall(rf"^#SBATCH --{name}=(.*)$", script, re.MULTILINE)[0]


def start(folder: Path, job: str) -> subprocess.Popen[str]:
    """The job's script, as Slurm would run it when the job's turn comes."""
    home = folder / "jobs" / job
    (home / "state").write_text("RUNNING", encoding="utf-8")
    (home / "tasks").unlink(missing_ok=True)
    script = (home / "script").read_text(encoding="utf-8")
    with Path(option(script, "output")).open("a", encoding="utf-8") as log:
        return subprocess.Popen(
            ["bash", str(home / "script")],
            env={**os.environ, "SLURM_JOB_ID": job},
            stdout=log,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
        )


def main(program: str, *words: str) -> int:
    """One call of a program."""
    folder = Path(os.environ["SLURM_STAND_IN"])
    given = {word.partition("=")[0]: word.partition("=")[2] for word in words if word.startswith("--")}
    if program == "sbatch":
        return _sbatch(folder, sys.stdin.read())
    if program == "squeue":
        return _squeue(folder, given)
    if program == "scontrol":
        action, job = words
        assert action == "requeue"
        (folder / "jobs" / job / "state").write_text("PENDING", encoding="utf-8")
        return 0
    return _srun(folder, list(words))


def _sbatch(folder: Path, script: str) -> int:
    job = (folder / "next").read_text(encoding="utf-8")
    (folder / "next").write_text(str(int(job) + 1), encoding="utf-8")
    home = folder / "jobs" / job
    home.mkdir(parents=True)
    (home / "script").write_text(script, encoding="utf-8")
    (home / "state").write_text("PENDING", encoding="utf-8")
    print(job)
    return 0


def _squeue(folder: Path, given: dict[str, str]) -> int:
    for home in sorted((folder / "jobs").glob("*")):
        state = (home / "state").read_text(encoding="utf-8")
        name = option((home / "script").read_text(encoding="utf-8"), "job-name")
        if given.get("--jobs", home.name) == home.name and given.get("--name", name) == name and state != "ENDED":
            print({"%i": home.name, "%T": state}[given["--format"]])
    return 0


def _srun(folder: Path, words: list[str]) -> int:
    """As many tasks as the job has, told of each other as Slurm does; the highest of their exit codes."""
    job = os.environ["SLURM_JOB_ID"]
    home = folder / "jobs" / job
    script = (home / "script").read_text(encoding="utf-8")
    count = int(option(script, "nodes")) * int(option(script, "ntasks-per-node"))
    command = words[next(i for i, word in enumerate(words) if not word.startswith("--")) :]
    step = {"SLURM_STEP_NODELIST": "localhost", "SLURM_STEP_NUM_NODES": "1", "SLURM_NTASKS": str(count)}
    tasks = [
        subprocess.Popen(command, env={**os.environ, **step, "SLURM_PROCID": str(task), "SLURM_LOCALID": str(task)})
        for task in range(count)
    ]
    part = home / "tasks.part"
    part.write_text(" ".join(str(task.pid) for task in tasks), encoding="utf-8")
    part.replace(home / "tasks")
    codes = [task.wait() for task in tasks]
    return max(128 - code if code < 0 else code for code in codes)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""The golden manifests rendered again by xpk itself, byte for byte: `make test-launch` (xpk has an environment)."""

import json
import os
import shlex
import subprocess
from pathlib import Path

import launch_rig
import pytest

from repro.launch.xpk_jobs import xpk_arguments
from repro.launch.xpk_program import render_manifests

ROOT = Path(__file__).parents[2]
XPK = Path(os.environ.get("XPK", ROOT / ".venv-xpk/bin/xpk"))
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not XPK.exists(), reason="xpk is not installed: make xpk")]


def test_xpk_renders_the_golden_manifests(tmp_path: Path) -> None:
    jobs = []
    for case in launch_rig.CASES:
        arguments = xpk_arguments(launch_rig.job_of(case), launch_rig.REQUEST, launch_rig.settings_of(case))
        jobs.append((arguments, tmp_path / f"{case}.yaml"))
    render_manifests(str(XPK), jobs)
    for _, path in jobs:
        golden = launch_rig.GOLDEN / path.name
        if os.environ.get("UPDATE_GOLDEN") == "1":
            golden.write_bytes(path.read_bytes())
        assert path.read_bytes() == golden.read_bytes()


PARSE = """
import argparse, json, sys
from xpk.parser.core import set_parser
parser = argparse.ArgumentParser(prog="xpk")
set_parser(parser=parser)
for words in json.loads(sys.argv[1]):
    parser.parse_args(words)
"""


def test_xpk_takes_the_commands_of_the_page() -> None:
    lines = [
        shlex.split(line)
        for line in (ROOT / "docs" / "pod.md").read_text(encoding="utf-8").splitlines()
        if "/bin/xpk" in line
    ]
    lines = [words[1:] for words in lines if words[0] == ".venv-xpk/bin/xpk"]
    assert len(lines) >= 4
    python = str(XPK.with_name("python"))
    done = subprocess.run([python, "-c", PARSE, json.dumps(lines)], capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr


def test_the_manifests_pods_are_what_the_kubernetes_client_knows() -> None:
    """Each job template has no field that kubernetes' own client would drop, and none of another type."""
    python = str(XPK.with_name("python"))
    paths = [str(path) for path in sorted(launch_rig.GOLDEN.glob("*.yaml"))]
    done = subprocess.run([python, "-c", KNOWN, *paths], capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr


KNOWN = """
import json, sys, types, yaml
from kubernetes import client
api = client.ApiClient()
def bare(value, quantity=False):
    if isinstance(value, dict):  # a quantity is a number or its text
        kept = {k: bare(v, k == "limits") for k, v in value.items() if v is not None and v != []}
        return {k: str(v) for k, v in kept.items()} if quantity else kept
    if isinstance(value, list):
        return [bare(v) for v in value]
    return value
for path in sys.argv[1:]:
    for job in yaml.safe_load(open(path))["spec"]["replicatedJobs"]:
        template = {"spec": job["template"]["spec"]}
        found = api.deserialize(types.SimpleNamespace(data=json.dumps(template)), "V1JobTemplateSpec")
        assert bare(api.sanitize_for_serialization(found)) == bare(template), path
"""

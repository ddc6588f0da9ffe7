"""What a JobSet does when a pod ends, edited into the manifest of xpk, which has no setting for it. Pure; no JAX.

JobSet sees why a job failed by two reasons: PodFailurePolicy, where a pod's exit code is one that ends the run, and
BackoffLimitExceeded for all others. So a pre-emption (42, 143) can't be told from what follows from one in other pods
(134, 137): none of them is counted, and the trainer itself gives up a run that is started without coming forward
(`repro.runs.restarts`). 127, a command that isn't there, ends the run at once.

Between xpk and the cluster this file stands in kubectl's place, by its path: it edits what is applied, and is kubectl
for all else. It imports nothing of the suite.
"""

import os
import re
import sys
from pathlib import Path

_RULE = re.compile(r"^( *)- action: FailJobSet\n +onJobFailureReasons:\n( *)- PodFailurePolicy\n", re.MULTILINE)
_CODES = re.compile(r"^( +values: \[42,)127,(128,)", re.MULTILINE)
_UNCOUNTED = "{0}- action: RestartJobSetAndIgnoreMaxRestarts\n{0}  onJobFailureReasons:\n{1}- BackoffLimitExceeded\n"


def uncounted(manifest: str) -> str:
    """The manifest with pre-emptions uncounted and 127 final; ValueError where it isn't as xpk renders it."""
    for pattern, what in ((_RULE, "failure policy"), (_CODES, "list of exit codes")):
        if len(pattern.findall(manifest)) != 1:
            raise ValueError(f"xpk's manifest has another {what} than is known: use the xpk of requirements/xpk.txt")
    manifest = _RULE.sub(lambda rule: rule[0] + _UNCOUNTED.format(*rule.groups()), manifest)
    return _CODES.sub(r"\1\2", manifest)


def main(words: list[str]) -> int:
    """`REAL-KUBECTL WORDS...`: edits the JobSet of `apply -f FILE` in place, then becomes kubectl."""
    if "apply" in words and "-f" in words:
        path = Path(words[words.index("-f") + 1])
        text = path.read_text(encoding="utf-8")
        if "kind: JobSet" in text:
            try:
                path.write_text(uncounted(text), encoding="utf-8")
            except ValueError as error:
                print(error, file=sys.stderr)
                return 1
    os.execv(words[0], words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

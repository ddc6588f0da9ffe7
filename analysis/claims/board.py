"""The scoreboard: every statement of the paper with its findings, and how many stand where."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from analysis import render
from analysis.claims import accounts, laws_calculated, simulated, undecided
from analysis.claims.evidence import Evidence, gather
from analysis.claims.judging import DEVIATES, NOT_DECIDABLE, REPRODUCED, VERDICTS, Finding, verdict_words
from analysis.claims.trained import findings
from analysis.paper.statements import Statement, statements
from analysis.render import Document, Grid, Notes
from experiments.papers import DEFAULT, paper
from repro.files import write_bytes

COMPUTED: dict[str, Callable[[], Finding]] = (
    simulated.CLAIMS | accounts.CLAIMS | undecided.CLAIMS | laws_calculated.CLAIMS
)
COLUMNS = (
    "id",
    "statement",
    "place",
    "by",
    "paper tolerance",
    "face",
    "verdict",
    "ours",
    "tolerance",
    "origin",
    "runs",
    "p",
    "seeds needed",
)
CALCULATED, PAPER, MINI = "calculated", "paper runs", "mini runs"


@dataclass(frozen=True)
class Decision:
    """A statement and what each kind of evidence says of it, by kind."""

    statement: Statement
    findings: Mapping[str, Finding]


def decide_all(evidence: Evidence, of: str = DEFAULT) -> tuple[Decision, ...]:
    """Every statement of a paper, in its order. KeyError where nothing decides one."""
    by_face = {PAPER: findings(evidence.paper, of), MINI: findings(evidence.mini, of)}
    return tuple(
        Decision(s, {face: of_face[s.id] for face, of_face in by_face.items()})
        if s.by == "runs"
        else Decision(s, {CALCULATED: COMPUTED[s.id]()})
        for s in statements(of)
    )


def counts(decisions: tuple[Decision, ...], *kinds: str) -> dict[str, int]:
    """How many findings of these kinds have each verdict, in the order of `VERDICTS`; none that has none."""
    verdicts = [d.findings[kind].verdict for d in decisions for kind in kinds if kind in d.findings]
    return {verdict: verdicts.count(verdict) for verdict in VERDICTS if verdict in verdicts}


def board_document(decisions: tuple[Decision, ...], terminal: bool = False) -> Document:
    """Counts first, then every statement; `terminal` leaves the sentences to the files."""
    calculated = tuple(d for d in decisions if CALCULATED in d.findings)
    trained = tuple(d for d in decisions if PAPER in d.findings)
    grids = (_listed(decisions),) if terminal else (_calculated(calculated), _trained(trained))
    notes = () if terminal else (Notes("What the words mean", LEGEND),)
    return Document(
        "Where each statement of the paper stands", (standing(decisions),), (_counted(decisions), *grids, *notes)
    )


def standing(decisions: tuple[Decision, ...]) -> str:
    """How many statements there are and where they stand, in the sentence that README has too."""
    calculated, paper, mini = (counts(decisions, kind) for kind in (CALCULATED, PAPER, MINI))
    deviating = sum(calculated.get(verdict, 0) for verdict in DEVIATES.values())
    shape = verdict_words("mini", "above")
    run = sum(paper.values()) - paper.get(shape["not run"], 0)
    return (
        f"{len(decisions)} statements of the paper's text and captions: {sum(calculated.values())} are calculated "
        f"({calculated.get(REPRODUCED, 0)} reproduced, {deviating} deviate, {calculated.get(NOT_DECIDABLE, 0)} not "
        f"decidable from the paper), {sum(paper.values())} need training, {run or 'none'} of them run at paper scale, "
        f"and are judged in miniature as shapes ({mini.get(shape['agrees'], 0)} agree, "
        f"{mini.get(shape['disagrees'], 0)} disagree, {mini.get(shape['undecided'], 0)} are undecided)."
    )


LEGEND = (
    "Reproduced, deviates: what we compute or train at paper scale, two-sided. A miniature's shape agrees, disagrees "
    "or is undecided, and never gets a verdict on the paper's number.",
    "Agrees, disagrees: the 95 % t interval of the mean difference, paired over seeds, lies wholly inside the stated "
    "bounds or wholly beyond one (orders: at least 0; similar, slightly: two one-sided tests with the margin named). p "
    "is two-sided and corrected by Holm over the statements of one table. Undecided: all else, and whatever has one "
    "seed; seeds: how many would decide it, were mean and spread to stay as they are.",
    "Origin of a tolerance: seed spread, rounding of the printed digits, a bin of the simulator's grid, stated in "
    "the text; our reading where the paper uses a word such as similar, chosen here.",
)


def board_csv(decisions: tuple[Decision, ...]) -> str:
    """A line for each statement and kind of evidence."""
    lines = []
    for d in decisions:
        s = d.statement
        by = " ".join((s.by, *s.experiments))
        for kind, f in d.findings.items():
            numbers = "; ".join(n.text for n in f.ours)
            decision = (kind, f.verdict, numbers, f.tolerance, f.origin, " ".join(f.runs), *_tested(f), f.sentence)
            lines.append((s.id, s.text, s.place, by, s.allowed, *decision))
    return render.csv_text((*COLUMNS, "sentence"), lines)


def build_claims(seeds: int | None, root: Path, out: Path, *, own: bool = True, of: str = DEFAULT) -> str:
    """Write claims.{md,csv,html,txt} under `out`, of another paper with its prefix, from the run folders under `root`.

    The text to print; `seeds` None takes as many as there are.
    """
    decisions = decide_all(gather(seeds, root, own=own, of=of), of)
    name = f"{paper(of).prefix}claims"
    full, terminal = board_document(decisions), render.terminal_text(board_document(decisions, terminal=True))
    files = {".md": render.markdown(full), ".html": render.html_page(full), ".csv": board_csv(decisions)}
    for suffix, content in (files | {".txt": terminal + "\n"}).items():
        write_bytes(out / f"{name}{suffix}", content.encode())
    return f"{terminal}\n\nWritten to {out}: {name}.md, {name}.html, {name}.csv, which give numbers and reasons."


def _counted(decisions: tuple[Decision, ...]) -> Grid:
    kinds = {"calculated": (CALCULATED,), "at paper scale": (PAPER,), "in miniature": (MINI,)}
    tallies = [(name, verdict, n) for name, ks in kinds.items() for verdict, n in counts(decisions, *ks).items()]
    rows = tuple((verdict, name, str(n)) for name, verdict, n in tallies)
    return Grid("Verdicts", ("Verdict", "Evidence", "Statements"), rows, left=2)


def _listed(decisions: tuple[Decision, ...]) -> Grid:
    """One short line each, for a terminal."""
    rows = []
    for d in decisions:
        by = " ".join((d.statement.by, *d.statement.experiments))
        first = d.findings.get(CALCULATED) or d.findings[PAPER]
        mini = d.findings.get(MINI)
        rows.append((d.statement.id, by, first.verdict, mini.verdict if mini else "", *_tested(mini)))
    return Grid("", ("Statement", "Decided by", "Verdict", "In miniature", "p", "Seeds"), tuple(rows), left=4)


def _tested(finding: Finding | None) -> tuple[str, str]:
    """p by Holm, and the seeds that would decide what is undecided."""
    if finding is None:
        return "", ""
    p = "" if finding.p_holm is None else f"{finding.p_holm:.2g}"
    return p, "" if finding.needed is None else str(finding.needed)


def _calculated(decisions: tuple[Decision, ...]) -> Grid:
    head = ("Statement", "Place", "Decided by", "Verdict", "Ours", "Tolerance", "Told by")
    rows = []
    for d in decisions:
        s, f = d.statement, d.findings[CALCULATED]
        rows.append((s.text, s.place, s.by, f.verdict, _numbers(f), _tolerance(f), f.sentence))
    return Grid("Calculated: simulator, accounts, the paper's own cells", head, tuple(rows), left=len(head))


def _trained(decisions: tuple[Decision, ...]) -> Grid:
    head = (
        "Statement",
        "Place",
        "Runs of",
        "At paper scale",
        "In miniature",
        "Ours",
        "Tolerance",
        "Told by",
        "p",
        "Seeds",
        "Run ids",
    )
    rows = []
    for d in decisions:
        s, paper, mini = d.statement, d.findings[PAPER], d.findings[MINI]
        finding = paper if paper.ours else mini
        said = (paper.verdict, mini.verdict, _numbers(finding), _tolerance(finding), finding.sentence)
        rows.append(
            (s.text, s.place, " ".join(s.experiments), *said, *_tested(finding), " ".join((*paper.runs, *mini.runs)))
        )
    return Grid("Trained: at paper scale and in miniature", head, tuple(rows), left=len(head))


def _numbers(finding: Finding) -> str:
    return "; ".join(number.text for number in finding.ours)


def _tolerance(finding: Finding) -> str:
    return f"{finding.tolerance} ({finding.origin})" if finding.tolerance else ""

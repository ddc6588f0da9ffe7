"""Every published cell against the paper's text, the rounding rules, verdicts and claims."""

import math
import re
import subprocess
import sys
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.paper import published as paper
from repro.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
PAPER_TEXT = ROOT.parent / "shared" / "reference" / "paper.txt"
needs_paper = pytest.mark.skipif(not PAPER_TEXT.exists(), reason="the paper's text is not beside this checkout")

# How each printed table is read: the start of its head, lines of head, the columns whose labels make a row
# (an empty cell repeats the label above), the columns that belong to the first label alone, and the others.
SCORES = ["Eval Loss", "HellaSwag", "Piqa", "Arc Easy"]
UTILISATION = ["50%", "80%", "90%", "95%", "99%"]
HOURS = ["Hours spent w/ +inf Gbits/s", "Hours spent w/ 1 Gbits/s"]
LAYOUTS = {
    "table1": ("Method\tToken Budget\tHours", 1, [0, 1], {}, [*HOURS, "Terabytes exchanged", *SCORES]),
    "table2": ("Model scale\t", 1, [0], {}, ["Hidden dim", "Num layers", "Num heads", "Token budget"]),
    "table3": ("Parameters evaluated\t", 1, [0], {}, ["Eval Loss", "HellaSwag"]),
    "table4": ("Model size\t# layers", 2, [0, 3], {1: "# layers", 2: "Step time (s)"}, UTILISATION),
    "table5": ("Model size\tFlops\tMethod", 1, [0, 2], {1: "Flops"}, SCORES),
    "table6": ("Model size\tFlops\t$M$", 1, [0, 2, 3], {1: "Flops"}, SCORES),
    "table7": ("Method\tToken Budget\tTerabytes", 1, [0, 1], {}, ["Terabytes exchanged", *SCORES]),
}


def printed_cells(item: str) -> list[tuple[str, str, str]]:
    """(row, column, text) of a table of the paper, in printed order.

    Two departures from the characters printed: ∞ is written inf, and a unit printed with each number of a
    column ("0.1s") moves into the column's name.
    """
    head, head_lines, label_columns, group_columns, columns = LAYOUTS[item]
    lines = PAPER_TEXT.read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(head))
    cells, labels = [], {}
    for line in lines[start + head_lines :]:
        if not line.strip():
            return cells
        fields = [re.sub(r"[${}]", "", field).strip() for field in line.split("\t")]
        labels.update({i: fields[i] for i in label_columns if fields[i]})
        for i, name in group_columns.items():
            if fields[i]:
                cells.append((labels[0], name, fields[i].removesuffix("s") if "(s)" in name else fields[i]))
        row = " | ".join(labels[i] for i in label_columns)
        cells += [(row, name, text) for name, text in zip(columns, fields[-len(columns) :], strict=True)]
    raise AssertionError(f"{item} does not end")


@needs_paper
@pytest.mark.parametrize(
    ("item", "count"),
    [
        ("table1", 42),
        ("table2", 28),
        ("table3", 6),
        ("table4", 81),
        ("table5", 119),
        ("table6", 102),
        ("table7", 45),
    ],
)
def test_every_cell_is_as_printed(item: str, count: int):
    ours = [(cell.row, cell.column, cell.text) for cell in paper.load_cells(item)]
    assert ours == printed_cells(item)
    assert len(ours) == count


@needs_paper
def test_the_layouts_name_the_printed_heads():
    lines = PAPER_TEXT.read_text(encoding="utf-8").splitlines()
    for head, head_lines, _, group_columns, columns in LAYOUTS.values():
        start = next(i for i, line in enumerate(lines) if line.startswith(head))
        printed = " ".join(lines[start : start + head_lines])
        printed = re.sub(r"\s*\$\\(down|up)arrow\$", "", printed).replace("\\infty", "inf")
        heads = [re.sub(r"[$\\]", "", field).strip() for field in printed.split("\t")]
        assert heads[-len(columns) :] == columns
        assert all(heads[i] == name.removesuffix(" (s)") for i, name in group_columns.items())


@needs_paper
def test_directions_are_the_printed_arrows():
    text = PAPER_TEXT.read_text(encoding="utf-8")
    arrows = dict(re.findall(r"([A-Z][\w ]+?) \$\\(down|up)arrow\$", text))
    assert {name: {"down": "lower", "up": "higher"}[arrow] for name, arrow in arrows.items()} == paper.BETTER


@pytest.mark.parametrize("item", paper.items())
def test_values_lie_in_their_own_intervals(item: str):
    cells = paper.load_cells(item)
    assert cells
    for cell in cells:
        if cell.value is not None:
            low, high = paper.printed_interval(cell)
            assert low <= cell.value <= high and low < high
            assert cell.where


def published(text: str, rule: str = "rounded", column: str = "Eval Loss") -> paper.Published:
    value = None if text == "-" else float(paper._number(text))
    return paper.Published("row", column, text, value, rule, "here")


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("3.51", 3.505, 3.515),
        ("1.5e17", 1.45e17, 1.55e17),
        ("2e21", 1.5e21, 2.5e21),
        ("700M", 699.5e6, 700.5e6),
        ("1.5B", 1.45e9, 1.55e9),
        ("2,048", 2047.5, 2048.5),
        ("-0.13149", -0.131495, -0.131485),
    ],
)
def test_interval_of_rounded_text(text: str, low: float, high: float):
    assert paper.printed_interval(published(text)) == (low, high)


@pytest.mark.parametrize(("text", "least", "beyond"), [("441", 441, 442), ("1,767", 1767, 1768), ("1.10", 1.10, 1.11)])
def test_interval_of_truncated_text(text: str, least: float, beyond: float):
    low, high = paper.printed_interval(published(text, "truncated"))
    assert low == least
    assert high < beyond == math.nextafter(high, math.inf)


def test_interval_of_truncated_negative_text():
    low, high = paper.printed_interval(published("-1.5", "truncated"))
    assert high == -1.5
    assert math.nextafter(low, -math.inf) == -1.6


def test_interval_needs_a_number():
    with pytest.raises(ValueError, match="prints no number"):
        paper.printed_interval(published("-"))


@given(
    x=st.floats(-1e4, 1e4, allow_subnormal=False),
    y=st.floats(-1e4, 1e4, allow_subnormal=False),
    places=st.integers(0, 4),
    rule=st.sampled_from(["rounded", "truncated"]),
)
def test_interval_holds_exactly_what_prints_as_the_text(x: float, y: float, places: int, rule: str):
    mode = ROUND_HALF_EVEN if rule == "rounded" else ROUND_DOWN

    def printed(number: float) -> Decimal:
        return Decimal(number).quantize(Decimal(1).scaleb(-places), mode)

    if printed(x) == 0:
        return  # the text of zero doesn't say from which side it was cut
    low, high = paper.printed_interval(published(str(printed(x)), rule))
    # The ends are the nearest floats to decimal numbers: one step of slack.
    assert math.nextafter(low, -math.inf) <= x <= math.nextafter(high, math.inf)
    if not math.nextafter(low, -math.inf) <= y <= math.nextafter(high, math.inf):
        assert printed(y) != printed(x)


@pytest.mark.parametrize(
    ("column", "ours", "expected"),
    [
        ("Eval Loss", 2.67, "reproduced"),
        ("Eval Loss", 2.6949, "reproduced"),  # within the tolerance of 2.675, which prints as 2.67
        ("Eval Loss", 2.6951, "deviates worse"),
        ("Eval Loss", 2.6449, "deviates better"),
        ("HellaSwag", 2.6951, "deviates better"),
        ("HellaSwag", 2.6449, "deviates worse"),
        ("Flops", 2.6951, "deviates above"),
        ("Flops", 2.6449, "deviates below"),
        ("Eval Loss", math.nan, "not finite"),
        ("Eval Loss", None, "not run"),
    ],
)
def test_verdicts_are_two_sided(column: str, ours: float | None, expected: str):
    assert paper.verdict(published("2.67", column=column), ours, 0.02, "paper") == expected


def test_only_paper_scale_gets_a_verdict():
    assert paper.verdict(published("2.67"), 2.67, 0.02, "mini") == "no verdict (mini)"
    assert paper.verdict(published("2.67"), 9.0, 0.02, "smoke") == "no verdict (smoke)"
    assert paper.verdict(published("2.67"), None, 0.02, "mini") == "not run"


def test_a_cell_without_a_number_has_no_verdict():
    assert paper.verdict(published("-"), 2.67, 0.02, "paper") == "not published"


def test_a_negative_tolerance_is_an_error():
    with pytest.raises(ValueError, match=r"tolerance=-0\.1"):
        paper.verdict(published("2.67"), 2.67, -0.1, "paper")


def test_pairs_are_of_the_same_seed():
    differences = paper.paired_differences({2: 5.0, 0: 1.0, 7: 9.0}, {0: 0.5, 2: 2.0, 3: 4.0})
    assert differences == (0.5, 3.0)


def test_an_unknown_item_names_the_known_ones():
    with pytest.raises(UserError, match=r"'../table5': choose one of .*table2, table3"):
        paper.load_cells("../table5")


HEAD = "row,column,text,value,rule,where\n"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "must have row, column, text"),
        ("row,column,text,value\n", "must have row, column, text"),
        (HEAD + "a,b,1.5,1.5,rounded\n", "line 2 has 5 fields"),
        (HEAD + "a,b,1.5,1.5,guessed,here\n", "the rule 'guessed'"),
        (HEAD + "a,b,1.5,1.6,rounded,here\n", "prints '1.5' but has the value '1.6'"),
        (HEAD + "a,b,1.5,,rounded,here\n", "not a number"),
        (HEAD + "a,b,x,1,rounded,here\n", "not a number"),
        (HEAD + "a,b,-,1,rounded,here\n", "leave it empty"),
        (HEAD + "a,b,1,1,rounded,here\n" * 2, "twice"),
    ],
)
def test_a_malformed_file_is_one_sentence(tmp_path: Path, content: str, sentence: str):
    path = tmp_path / "table.csv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=re.escape(sentence)):
        paper.read_cells(path)


def test_by_place_finds_a_cell():
    cells = paper.by_place(paper.load_cells("table5"))
    assert cells["4B | DiLoCo H=30", "Eval Loss"].value is None
    assert cells["35M", "Flops"].text == "1.5e17"


def test_it_needs_the_standard_library_only():
    code = "import sys, analysis.paper.published; print(sorted({'jax', 'numpy', 'pandas'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True, cwd=ROOT)
    assert result.stdout.strip() == "[]"

"""How every figure looks: sizes, the paper's colours, and files that are equal for equal numbers.

Only what draws imports this; text in a figure is at least 7 points at its printed width.
"""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from repro.files import write_bytes
from repro.network.methods import METHODS

COLUMN_IN, TEXT_IN = 3.4, 7.0
FORMS = ("png", "svg")
# §3.2.1 and the appendix name them: blue, orange, green, and red for the method with everything; overlap alone is ours.
BLUE, ORANGE, GREEN, PURPLE, RED, GREY = "tab:blue", "tab:orange", "tab:green", "tab:purple", "tab:red", "tab:gray"
COLOURS = dict(zip((m.key for m in METHODS), (BLUE, ORANGE, GREEN, PURPLE, RED), strict=True))
SCALING = (BLUE, ORANGE, GREEN, RED)  # the rows of Table 5, in order
MARKS = ("o", "s", "^", "D", "v", "P")
STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "svg.hashsalt": "streaming-diloco",  # the same file from the same numbers
    "svg.fonttype": "none",
}


def column(height_in: float = 2.6) -> Figure:
    """An empty figure of one column's width."""
    return Figure(figsize=(COLUMN_IN, height_in), layout="constrained")


def page_wide(height_in: float = 2.6) -> Figure:
    """An empty figure of the text's width."""
    return Figure(figsize=(TEXT_IN, height_in), layout="constrained")


def image(figure: Figure, form: str) -> bytes:
    """The figure as png (200 dots an inch), svg or pdf, svg without a date."""
    out = io.BytesIO()
    undated: dict[str, Any] = {"metadata": {"Date": None}} if form == "svg" else {}
    with mpl.rc_context(STYLE):
        figure.savefig(out, format=form, dpi=200, **undated)
    return out.getvalue()


def save_figure(figure: Figure, stem: Path, forms: Sequence[str] = FORMS) -> list[Path]:
    """Write `stem`.png and .svg, drawn in memory first, so that a full disk leaves no half of a picture."""
    paths = [stem.with_suffix(f".{form}") for form in forms]
    for path in paths:
        write_bytes(path, image(figure, path.suffix.removeprefix(".")))
        figure.set_layout_engine("none")  # the places found for the first stay: finding them is half of the work
    return paths


def legend_below(figure: Figure, panel: Axes, columns: int) -> None:
    """The panel's own labels, under the whole figure."""
    handles, labels = panel.get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=columns)


def not_run(panel: Axes, words: str = "not run") -> None:
    """Say so in an empty panel."""
    panel.text(0.5, 0.5, words, transform=panel.transAxes, ha="center", va="center", fontsize=8)

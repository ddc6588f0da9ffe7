"""How every figure looks: sizes, the paper's colours, and files that are equal for equal numbers.

Only what draws imports this; text in a figure is at least 7 points at its printed width.
"""

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from repro.files import write_bytes
from repro.network.methods import METHODS

COLUMN_IN, TEXT_IN = 3.4, 7.0
FORMS = ("png", "svg")
DPI = 200
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
        figure.savefig(out, format=form, dpi=DPI, **undated)
    return out.getvalue()


def save_figure(figure: Figure, stem: Path, forms: Sequence[str] = FORMS) -> list[Path]:
    """Write `stem`.png and .svg, drawn in memory first, so that a full disk leaves no half of a picture."""
    lay_out(figure)
    paths = [stem.with_suffix(f".{form}") for form in forms]
    for path in paths:
        write_bytes(path, image(figure, path.suffix.removeprefix(".")))
    return paths


def save_drawn(draw: Callable[[], Figure], stem: Path, forms: Sequence[str] = FORMS) -> list[Path]:
    """`save_figure` of what `draw` draws in this style."""
    with mpl.rc_context(STYLE):
        return save_figure(draw(), stem, forms)


def lay_out(figure: Figure) -> None:
    """Find the places of everything now: finding them again for each form, and drawing first without ink, is most work.

    A figure that still has a layout engine is drawn twice.
    """
    engine = figure.get_layout_engine()
    if engine is not None:
        with mpl.rc_context(STYLE):
            figure.set_dpi(DPI)
            engine.execute(figure)
        figure.set_layout_engine(None)


def legend_below(figure: Figure, panel: Axes, columns: int) -> None:
    """The panel's own labels, under the whole figure."""
    handles, labels = panel.get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=columns)


def not_run(panel: Axes, words: str = "not run") -> None:
    """Say so in an empty panel."""
    panel.text(0.5, 0.5, words, transform=panel.transAxes, ha="center", va="center", fontsize=8)

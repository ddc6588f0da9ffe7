"""Every table and figure, from fabricated runs and from none: what is drawn, what it says, and that it is built."""

import csv
import math

import pytest
from fabricated import summary

from analysis.figures import ablations
from analysis.figures import similarity as similarity_figures
from analysis.figures.schedule import figure1, figure2
from analysis.figures.series import CROSS, HOLLOW
from analysis.paper import published as paper
from analysis.tables import similarity
from analysis.tables.contents import Table, table_of
from analysis.tables.layout import COLUMNS, csv_rows
from experiments.registry import load
from experiments.streaming import figure1 as spec1
from experiments.streaming import figure2 as spec2
from repro.results.read import Result
from repro.spec.experiment import PlannedRun, expand
from repro.spec.fragments import cut


def syncs(run: PlannedRun) -> tuple[dict, ...]:
    """Three sends of every layer and of the embedding: 0.5 − layer/100 for layers, −0.5 for the embedding."""
    records = []
    for taken in (run.config.steps // 4, run.config.steps // 2, run.config.steps - 1):
        for layer in range(run.config.model.layers):
            base = {"taken": taken, "fragment": layer, "cosine": 0.5 - layer / 100}
            records += [base | {"part": part} for part in (f"layer {layer}", "fragment")]
        last = {"taken": taken, "fragment": run.config.model.layers}
        records += [last | {"part": p, "cosine": c} for p, c in (("embedding", -0.5), ("fragment", 0.9))]
    return tuple(records)


def table(name: str, scale: str = "mini", seeds: int = 2, done: bool = True) -> Table:
    """With losses that name their row: 3 + 0.01 · (its number) + 0.001 · seed."""
    experiment = load(name)
    runs = expand(experiment, scale, seeds)
    order = list(dict.fromkeys(run.paper_row for run in runs))
    results = [
        Result(
            run, summary(run.config, 3 + 0.01 * order.index(run.paper_row) + 0.001 * run.config.seed), syncs=syncs(run)
        )
        if done
        else Result(run)
        for run in runs
    ]
    return table_of(experiment, results)


def drawn(panel) -> dict[str, list[float]]:
    """The means of each series in the legend's order."""
    labels = [label for label in panel.get_legend_handles_labels()[1] if label not in (HOLLOW, CROSS)]
    return dict(zip(labels, ([float(y) for y in c.lines[0].get_ydata()] for c in panel.containers), strict=False))


def crosses(panel) -> set[tuple[float, float]]:
    """The points of the paper's printed losses: the legend's own has no point."""
    lines = [line for line in panel.get_lines() if line.get_marker() == "x"]
    return {(float(x), float(y)) for line in lines for x, y in line.get_xydata()}


def test_the_losses_printed_in_table_5_are_marks_at_paper_scale_alone():
    with (paper.paper(paper.DEFAULT).folder / "table5.csv").open(encoding="utf-8") as file:
        cells = {(c["row"], c["column"]): float(c["value"]) for c in csv.DictReader(file) if c["value"]}
    streaming, diloco = "Streaming DiLoCo with overlapped FP4 com., ", "DiLoCo "
    wanted = {
        (every, cells[f"500M | {method}H={every}", "Eval Loss"])
        for method, rounds in ((streaming, (30, 100)), (diloco, (30,)))
        for every in rounds
    }
    assert crosses(ablations.figure13(table("figure13", "paper")).axes[0]) == wanted
    assert not crosses(ablations.figure13(table("figure13")).axes[0])
    by_row = {line[0]: line for line in csv_rows(table("figure13", "paper"))}
    (text,) = {by_row[row][COLUMNS.index("paper")] for row in by_row if row == "Streaming DiLoCo | H = 30"}
    assert float(text) == cells[f"500M | {streaming}H=30", "Eval Loss"]


@pytest.mark.parametrize("name", ["figure6", "figure8", "figure10", "figure13"])
def test_each_series_shows_the_means_of_its_rows(name: str):
    found = table(name)
    (panel,) = getattr(ablations, name)(found).axes
    means: dict[str, list[float]] = {}
    for row in found.rows:
        means.setdefault(row.method, []).append(row.mean or math.nan)
    assert list(drawn(panel).values()) == list(means.values())
    size = found.results[0].run.config.model.size
    assert f"mini ({size}), n = 2 seeds" in panel.get_title("left")
    hollow = [line for line in panel.lines if line.get_markerfacecolor() == "white" and len(line.get_xdata())]
    assert sum(len(line.get_xdata()) for line in hollow) == sum(row.ours for row in found.rows)


def test_figure12_keeps_the_two_kinds_of_batch_apart():
    found = table("figure12")
    left, right = ablations.figure12(found).axes
    assert [left.get_title("left"), right.get_title("left")] == [
        "(a) constant global batch",
        "(b) constant local batch",
    ]
    for panel, kind in ((left, "global"), (right, "local")):
        for method, means in drawn(panel).items():
            assert means == [row.mean for row in found.rows if row.method == f"{method}, constant {kind} batch"]


def test_figure11_has_formats_and_schemes_as_groups():
    found = table("figure11")
    (panel,) = ablations.figure11(found).axes
    series = drawn(panel)
    assert list(series) == ["lower precision", "FedDropout", "DARE", "Top-K", "TIES"]
    assert len(series["lower precision"]) == 6 and all(len(series[name]) == 2 for name in list(series)[1:])


def test_fedpart_is_relative_and_the_papers_rise_stands_beside_where_it_is_published():
    found = table("fedpart")
    (panel,) = ablations.fedpart(found).axes
    published = any(cell.row.startswith("FedPart") for cell in paper.load_cells("statements"))
    widths = [patch.get_width() for patch in panel.patches]
    rises = [100 * (3.01 / 3 - 1), 100 * (3.011 / 3.001 - 1)]
    assert widths[0] == pytest.approx(sum(rises) / 2)
    assert len(widths) == 1 + published
    if published:
        assert widths[1] == pytest.approx(100 * (3.2145 / 2.6749 - 1))


def test_figure17_splits_the_embeddings_fragment_from_the_others():
    found = table("figure17")
    rest, embedding = similarity_figures.figure17(found).axes
    for line, row in zip(rest.lines, found.rows, strict=False):
        layers = row.results[0].run.config.model.layers
        assert list(line.get_ydata()) == pytest.approx([0.5 - (layers - 1) / 200] * 3)
    assert {y for line in embedding.lines[: len(found.rows)] for y in line.get_ydata()} == {-0.5}
    assert [round(float(x), 2) for x in rest.lines[0].get_xdata()] == [
        0.26,
        0.51,
        0.99,
    ]  # a quarter and a half begin a bin


def test_figure18_has_a_line_for_each_layer_darker_where_it_is_earlier():
    found = table("figure18")
    for panel, row in zip(similarity_figures.figure18(found).axes, found.rows, strict=False):
        lines = [line for line in panel.lines if len(line.get_xdata()) == 3]
        assert len(lines) == row.results[0].run.config.model.layers
        shades = [sum(line.get_color()[:3]) for line in lines]
        assert shades == sorted(shades)
        assert [float(line.get_ydata()[0]) for line in lines] == pytest.approx(
            [0.5 - i / 100 for i in range(len(lines))]
        )


def test_the_cosines_that_figures_17_and_18_draw_stand_in_their_tables():
    """Sends at a quarter, the half and the end of the steps: none in the first tenth."""
    found = table("figure17")
    for row in found.rows:
        mean = 0.5 - (row.results[0].run.config.model.layers - 1) / 200
        lines = {line[1]: line for line in csv_rows(found) if line[0] == row.name and line[1].startswith("Cosine")}
        ours = {name.removeprefix("Cosine: "): float(line[2]) for name, line in lines.items()}
        assert ours == pytest.approx(
            {
                "other fragments, middle": mean,
                "other fragments, end": mean,
                "embedding, middle": -0.5,
                "embedding, end": -0.5,
            }
        )
        printed = {line[5] for name, line in lines.items() if name.endswith("end")}
        assert printed == {"-0.1"} and {line[8] for line in lines.values()} == {" ".join(row.run_ids)}
    (grid, _) = similarity.sections(found)
    assert [line[2] for line in grid.rows] == ["–"] * len(found.rows) + ["≈ 0.1"]
    (layers, _) = similarity.sections(table("figure18"))
    for line, row in zip(layers.rows, found.rows, strict=True):
        depth = row.results[0].run.config.model.layers
        assert [cell for cell in line[2:] if cell != "–"] == [f"{0.5 - i / 100:.3f}" for i in range(depth)]


def test_figures_1_and_2_follow_the_schedule():
    ((_, sync),) = spec1.EXPERIMENT.schedules
    bars = [patch for patch in figure1().axes[0].patches if patch.get_height() > 1]
    assert [round(bar.get_x() + 0.18) for bar in bars] == [12, 16, 20, 24, 28, 32]
    assert len({bar.get_facecolor() for bar in bars}) == 3 == len(cut(sync.fragments, spec1.EXPERIMENT.layers))
    for panel, (_, how) in zip(figure2().axes, spec2.EXPERIMENT.schedules, strict=True):
        filled = [p for p in panel.patches if len({round(c, 3) for c in p.get_facecolor()[:3]}) > 1]
        layers = {int(p.get_y()) for p in filled if p.get_facecolor() == filled[0].get_facecolor()}
        assert layers == set(cut(how.fragments, spec2.EXPERIMENT.layers)[0].layers)


@pytest.mark.parametrize("name", ["figure6", "figure8", "figure10", "figure11", "figure12", "figure13", "fedpart"])
def test_nothing_run_says_so(name: str):
    figure = getattr(ablations, name)(table(name, "paper", 1, done=False))
    assert "not run" in [text.get_text() for panel in figure.axes for text in panel.texts]


@pytest.mark.parametrize("name", ["table1", "table3", "table6", "table7"])
@pytest.mark.parametrize("scale", ["mini", "paper"])
def test_a_printed_table_has_every_printed_cell_once_in_order(name: str, scale: str):
    lines = [dict(zip(COLUMNS, line, strict=True)) for line in csv_rows(table(name, scale))]
    cells = paper.load_cells(name)
    assert [(line["column"], line["paper"]) for line in lines] == [(cell.column, cell.text) for cell in cells]
    if scale == "paper":
        assert [line["row"] for line in lines] == [cell.row for cell in cells]
    losses = [line for line in lines if line["column"] == "Eval Loss" and line["ours"]]
    assert losses and all((line["verdict"] == "mini: no paper verdict") == (scale == "mini") for line in losses)


@pytest.mark.parametrize("done", [False, True])
def test_accounts_are_judged_with_and_without_runs(done: bool):
    for name, count, off in (("table1", 18, 2), ("table7", 9, 0)):
        lines = [dict(zip(COLUMNS, line, strict=True)) for line in csv_rows(table(name, done=done))]
        counted = [line for line in lines if line["column"].startswith(("Hours", "Terabytes"))]
        assert len(counted) == count
        assert sum(line["verdict"] != "reproduced" for line in counted) == off
        assert {line["runs"] + line["n"] for line in counted} == {""}


def test_table3_reads_the_parameters_that_a_row_names():
    means = {row.method: row.mean for row in table("table3", seeds=1).rows}
    base = means["Outer parameters"]
    assert base is not None
    rounded = {name: round((mean or 0) - base, 6) for name, mean in means.items()}
    assert rounded == {"First replica": 0.18, "Replicas average": 0.09, "Outer parameters": 0.0}


def test_table7_goes_by_method_and_budget():
    found = table("table7")
    assert [(row.method, row.point) for row in found.rows][:2] == [("Data-Parallel", "25B"), ("Data-Parallel", "100B")]


def test_a_diverged_run_is_told_at_the_edge_and_presses_nothing_flat():
    found = table("figure11", seeds=1)
    results = [
        Result(r.run, summary(r.run.config, 1280.4)) if r.run.labels == ("DARE", "10% kept") else r
        for r in found.results
    ]
    panel = ablations.figure11(table_of(load("figure11"), results)).axes[0]
    assert [text.get_text() for text in panel.texts] == ["1,280 ↑"]
    assert panel.get_ylim()[1] < 4

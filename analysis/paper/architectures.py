"""Table 2: each size's architecture and budget, derived from its config beside the printed cells. Nothing is run."""

from analysis.paper.assumptions import footnotes
from analysis.paper.published import by_place, load_cells, verdict
from analysis.render import Document, Grid, Notes
from repro.spec.experiment import Experiment, expand
from repro.spec.shapes import parameter_count
from repro.words import short

HEAD = ("Size", "Column", "Ours", "Paper", "Verdict", "d", "N", "True N")


def table2_document(experiment: Experiment) -> Document:
    """Every printed cell beside what the config of its size says, at paper scale: no tolerance."""
    runs, printed, rows = expand(experiment, "paper"), by_place(load_cells("table2")), []
    for run in runs:
        config = run.config
        model = config.model
        counts = (f"{model.width:,}", short(model.params_by_rule), short(parameter_count(model)))
        ours = {"Hidden dim": model.ffn_width, "Num layers": model.layers, "Num heads": model.heads}
        for column, value in (ours | {"Token budget": config.tokens}).items():
            cell = printed[model.size, column]
            digits = short(value) if column == "Token budget" else f"{value:,}"
            said = verdict(cell, value, 0.0, "paper")
            rows.append(
                (model.size, column, digits, cell.text, said, *(counts if column == "Hidden dim" else ("",) * 3))
            )
    notes = (
        "The hidden dim is the width of the feed-forward layer: d = F / 4. N = 12 d² L + V d, as the paper's sizes and "
        "FLOPs count; true N adds positions and norms. Tokens = 20 N, against a printed budget of one or two digits.",
    )
    left_open = Notes("What the paper leaves open", tuple(assumption.sentence for assumption in footnotes(runs)))
    grid = Grid("Ours, derived, beside the paper's", HEAD, tuple(rows), left=2)
    return Document(f"{experiment.title} ({experiment.place})", (), (grid, Notes("", notes), left_open))

"""What the scaling-law paper (arXiv 2503.09799) prints of losses, and the number of parameters that its laws are of."""

from collections.abc import Sequence

from analysis.paper.published import Published
from analysis.paper.statements import cell

OF = "scaling-laws"
DP = "Data-Parallel"
REPLICAS = (1, 2, 4, 8)
SIZES = ("35M", "90M", "180M", "335M", "550M", "1.3B", "2.4B")  # of Table 4, which were tuned
EXTRAPOLATED = ("4B", "10B")  # of Table 5, whose settings its laws gave
HELD_OUT = SIZES[-1]
LOSS = "Eval Loss"
HALF_UNIT = 0.0005  # of the losses' last digit
SAME = {"335M": "330M"}  # Table 3's name of a size of Table 4
WORDS = 32_000
READING = (
    f"N = 12 d² L + {WORDS:,} d, by the layers of Table 3 and the {WORDS:,} words of its vocabulary. What its N counts "
    "the paper doesn't say: so counted, Tables 7, 10 and 11 come out to the rounding of its losses; with the numbers "
    "in the sizes' names Tables 7 and 10 do too, and Table 11 doesn't."
)


def diloco_label(replicas: int) -> str:
    """A method's label, as printed."""
    return f"DiLoCo, M = {replicas}"


def law_parameters(size: str) -> float:
    """N of a size, by `READING`."""
    name = SAME.get(size, size)
    layers, width = (printed_cell("table3", name, c).value for c in ("Transformer Layers", "QKV Dimension"))
    if layers is None or width is None:
        raise ValueError(f"Table 3 prints no architecture of {size}")
    return 12 * width**2 * layers + WORDS * width


def printed_loss(size: str, method: str) -> float:
    """A printed loss of Table 4 or 5."""
    value = printed_cell("table5" if size in EXTRAPOLATED else "table4", f"{size} | {method}", LOSS).value
    if value is None:
        raise ValueError(f"no loss is printed of {size}, {method}")
    return value


def printed_losses(method: str, sizes: Sequence[str] = SIZES) -> list[float]:
    """Its printed losses, by size."""
    return [printed_loss(size, method) for size in sizes]


def printed_cell(item: str, row: str, column: str) -> Published:
    """A cell of the paper."""
    return cell(item, row, column, OF)

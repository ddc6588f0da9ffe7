"""Power laws of the loss, method by method (Table 7; section 6.1), from the paper's own losses.

make scaling_laws_table7
"""

from repro.spec.experiment import Calculation

EXPERIMENT = Calculation(
    name="scaling_laws_table7",
    title="Power laws of the loss, method by method",
    place="Table 7; section 6.1",
    by="analysis.laws.tables:refit_table7",
    reads=("scaling_laws_table4",),
)

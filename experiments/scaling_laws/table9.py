"""Laws of the global batch size (Table 9; section 6.1), from the paper's own losses.

make scaling_laws_table9
"""

from repro.spec.experiment import Calculation

EXPERIMENT = Calculation(
    name="scaling_laws_table9",
    title="Laws of the global batch size",
    place="Table 9; section 6.1",
    by="analysis.laws.tables:unprinted_laws",
)

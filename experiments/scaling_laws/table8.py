"""Laws of the inner learning rate (Table 8; section 6.1), from the paper's own losses.

make scaling_laws_table8
"""

from repro.spec.experiment import Calculation

EXPERIMENT = Calculation(
    name="scaling_laws_table8",
    title="Laws of the inner learning rate",
    place="Table 8; section 6.1",
    by="analysis.laws.tables:unprinted_laws",
)

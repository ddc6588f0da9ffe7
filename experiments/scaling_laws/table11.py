"""Residuals of what a law hasn't seen (Table 11; section 6.3), from the paper's own losses.

make scaling_laws_table11
"""

from repro.spec.experiment import Calculation

EXPERIMENT = Calculation(
    name="scaling_laws_table11",
    title="Residuals of what a law hasn't seen",
    place="Table 11; section 6.3",
    by="analysis.laws.tables:refit_table11",
)

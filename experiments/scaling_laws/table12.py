"""Losses at 4B and 10B, and what the laws say of them (Table 12; section 6.4), from the paper's own losses.

make scaling_laws_table12
"""

from repro.spec.experiment import Calculation

EXPERIMENT = Calculation(
    name="scaling_laws_table12",
    title="Losses at 4B and 10B, and what the laws say of them",
    place="Table 12; section 6.4",
    by="analysis.laws.tables:refit_table12",
)

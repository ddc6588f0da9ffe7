"""Forms beyond the power law (Table 13; section 6.5), from the paper's own losses.

make scaling_laws_table13
"""

from repro.spec.experiment import Calculation

EXPERIMENT = Calculation(
    name="scaling_laws_table13",
    title="Forms beyond the power law",
    place="Table 13; section 6.5",
    by="analysis.laws.tables:refit_table13",
)

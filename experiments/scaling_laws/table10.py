"""The joint power law of N and M (Table 10; section 6.2), from the paper's own losses.

make scaling_laws_table10
"""

from repro.spec.experiment import Calculation

EXPERIMENT = Calculation(
    name="scaling_laws_table10",
    title="The joint power law of N and M",
    place="Table 10; section 6.2",
    by="analysis.laws.tables:refit_table10",
    reads=("scaling_laws_table4",),
)

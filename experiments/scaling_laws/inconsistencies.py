"""Where the paper disagrees with itself, or with the other papers that print the same table.

make scaling_laws_inconsistencies
"""

from repro.spec.experiment import Calculation

EXPERIMENT = Calculation(
    name="scaling_laws_inconsistencies",
    title="Where the paper disagrees with itself and with 2501.18512",
    place="Tables 3 to 13",
    by="analysis.laws.slips:paper_slips",
)

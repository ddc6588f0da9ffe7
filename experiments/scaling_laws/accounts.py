"""Token budgets of Table 3 and percentages of Tables 4 and 5, recomputed from the paper's own digits.

make scaling_laws_accounts
"""

from repro.spec.experiment import Calculation

EXPERIMENT = Calculation(
    name="scaling_laws_accounts",
    title="Budgets and percentages, recomputed",
    place="Tables 3, 4 and 5",
    by="analysis.laws.slips:paper_accounts",
)

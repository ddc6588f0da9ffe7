"""The gap to Data-Parallel over N: of our miniatures and second ladder, carried on to the paper's sizes.

Each method's loss over that of Data-Parallel at the same size, seed by seed, for Table 5's methods from 45k to 1M
parameters; a line in ln N through them, with an interval from seeds and sizes, beside the paper's own gaps at 35M, 100M
and 200M. It asks whether what is too small for the paper's numbers points at them.

    make gap                          from the runs there are, at scales mini and small
"""

from repro.spec.experiment import Calculation

EXPERIMENT = Calculation(
    name="gap",
    title="Gap to Data-Parallel over the number of parameters",
    place="section 3.2.1, Table 5",
    by="analysis.laws.gap:gap_over_params",
    reads=("table5",),
    assumptions=(
        "ln of a method's loss over that of Data-Parallel is a line in ln N: so it is where both losses are power laws "
        "of N, as arXiv 2503.09799 fits them (its Tables 7 and 10). From 1M to 35M it is carried on further than it is "
        "seen.",
    ),
)

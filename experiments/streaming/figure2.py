"""Figure 2: sequential and strided fragments (§2.2): which layers a synchronisation takes.

Drawn from the code that cuts the trainer's model, with the layers of Figure 1.

    make figure2
"""

from dataclasses import replace

from experiments.streaming import figure1
from repro.spec.experiment import vary

EXPERIMENT = replace(
    figure1.EXPERIMENT,
    name="figure2",
    title="Streaming patterns",
    place="Figure 2",
    replicas=2,
    schedules=(
        ("Sequential", vary(figure1.SYNC, fragments__pattern="sequential")),
        ("Strided", figure1.SYNC),
    ),
)

"""Figure 2: sequential and strided fragments (§2.2): which layers a synchronisation takes.

Drawn from the code that cuts the trainer's model, with the layers of Figure 1.

    make figure2
"""

from experiments.streaming.figure1 import EVERY, LAYERS, SYNC
from repro.network.scenario import Illustration
from repro.spec.experiment import vary

EXPERIMENT = Illustration(
    name="figure2",
    title="Streaming patterns",
    place="Figure 2",
    layers=LAYERS,
    replicas=2,
    first_step=EVERY,
    steps=3 * EVERY - 1,
    schedules=(
        ("Sequential", vary(SYNC, fragments__pattern="sequential")),
        ("Strided", SYNC),
    ),
    assumptions=("H = 12 and 9 layers in fragments of 3: the paper's figure gives neither.",),
)

"""Figure 1: replicas that train alone and synchronise one fragment at a time (§2.2).

Four replicas and three fragments, as in the paper's figure; drawn from the trainer's schedule. No overlap: the figure
shows the partial updates alone.

    make figure1
"""

from experiments.streaming.base import streaming
from repro.network.scenario import Illustration
from repro.spec.experiment import vary

EVERY, LAYERS = 12, 9
SYNC = vary(streaming(EVERY), delays=(0,), mix=0.0, fragments__embedding="merged")

EXPERIMENT = Illustration(
    name="figure1",
    title="Streaming partial updates",
    place="Figure 1",
    layers=LAYERS,
    replicas=4,
    first_step=EVERY,
    steps=3 * EVERY - 1,
    schedules=(("Strided fragments", SYNC),),
    assumptions=("H = 12 and 9 layers in fragments of 3: the paper's figure gives neither.",),
)

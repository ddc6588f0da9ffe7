"""Figure 6: loss over idealised wall-clock time on three networks (section 4, appendix A), from the printed losses.

The paper draws it without numbers. Beside its closed form stands our simulator, which overlaps a layer's exchange with
the backward pass of those below it.

    make scaling_laws_figure6
"""

from repro.spec.experiment import Calculation

SIZES = ("180M", "335M", "550M", "1.3B", "2.4B", "4B", "10B")
REPLICAS = (0, 1, 2)  # 0: Data-Parallel
EVERY = 30  # H

EXPERIMENT = Calculation(
    name="scaling_laws_figure6",
    title="Loss over idealised wall-clock time",
    place="Figure 6; appendix A",
    by="analysis.laws.wallclock:wall_clock",
    assumptions=(
        "Chips: one for each sequence of 2,048 tokens of the global batch, which doubles them with the batch as the "
        "paper asks; it gives no number.",
        "Batch: the laws of Table 9, in sequences; the paper draws its sweeps of the batch, without numbers, too.",
        "16 bits a parameter, as its bfloat16 weights and gradients have.",
        "The simulator has the same link, bits (2 (1 − 1/R) times 16 a parameter) and compute a step, layer by layer; "
        "what a replica sends within its datacenter is added to both alike.",
    ),
)

"""Claims of Figures 17 and 18: cosine similarity of the replicas' outer gradients over a run, by size and by layer."""

from collections.abc import Callable, Iterator

from analysis.claims.evidence import View
from analysis.claims.judging import Finding, Judge, JudgedDifference
from analysis.paper.deciding import Judgement, judge_order, judge_parity
from analysis.paper.statements import value
from analysis.tables.similarity import STRETCHES, by_layer, fragments, mean, stretch
from repro.results.read import Result
from repro.spec.experiment import Side

EXPERIMENT = "figure17"
HALF_DIGIT = 0.05  # what prints as 0.1, 0.0 or -0.1


def cosine_at_start(view: View, embedding: bool = False) -> Finding:
    """About 0.1; in miniature: above zero."""
    return _course(view, "start", embedding, 1)


def middle(view: View, embedding: bool = False) -> Finding:
    """Close to zero, at both scales."""
    return _course(view, "middle", embedding, 0)


def end(view: View, embedding: bool = False) -> Finding:
    """About -0.1; in miniature: below zero."""
    return _course(view, "end", embedding, -1)


def cosine_falls_with_size(view: View) -> Finding:
    """The mean cosine of each size less that of the next."""
    means = {size: _by_seed(view, size, _whole) for size in view.sizes(EXPERIMENT)}
    parts = [
        JudgedDifference(
            " less ".join(view.named(EXPERIMENT, size) for size in (a, b)),
            judge_order([means[a][s] - means[b][s] for s in sorted(means[a].keys() & means[b].keys())]),
            (*_runs(view, a), *_runs(view, b)),
        )
        for a, b in zip(means, list(means)[1:], strict=False)
    ]
    measure = "Mean cosine over the run, without the embedding: a size less the next larger one."
    return Judge("below", "0", "seed spread", measure)(view, EXPERIMENT, parts, _logged(view))


def first_layer(view: View) -> Finding:
    """The first layer's mean cosine less that of the nearest other layer, at each size."""

    def margin(result: Result) -> float | None:
        layers = by_layer(result)
        others = [cosine for layer, cosine in layers.items() if layer != 0]
        return layers[0] - max(others) if others and 0 in layers else None

    measure = "Mean cosine of the first layer less the highest of the others."
    return _each_size(view, margin, judge_order, Judge("below", "0", "seed spread", measure))


def _course(view: View, name: str, embedding: bool, sign: int) -> Finding:
    stated = value("statements", f"cosine | {name}", "Cosine")
    where = "embedding" if embedding else "all but the embedding"
    low, high = STRETCHES[name]

    def cosine(result: Result) -> float | None:
        return stretch(fragments(result, embedding), name)

    measure = f"Mean cosine, {where}, from {low:.0%} to {high:.0%} of the steps"
    if view.scale == "paper" or not sign:
        return _each_size(
            view,
            lambda r: None if (m := cosine(r)) is None else m - stated,
            lambda values: judge_parity(values, HALF_DIGIT),
            Judge("above", f"{HALF_DIGIT}", "rounding", f"{measure}, less {stated:g}."),
        )
    side: Side = "below" if sign > 0 else "above"
    sentence = f"{measure}{'' if sign > 0 else ', negated'}: a miniature decides its sign alone."
    return _each_size(
        view,
        lambda r: None if (m := cosine(r)) is None else sign * m,
        judge_order,
        Judge(side, "0", "seed spread", sentence),
    )


def _each_size(
    view: View, measure: Callable[[Result], float | None], decide: Callable[[list[float]], Judgement], judge: Judge
) -> Finding:
    parts = []
    for size in view.sizes(EXPERIMENT):
        by_seed = _by_seed(view, size, measure)
        parts.append(
            JudgedDifference(
                view.named(EXPERIMENT, size), decide([by_seed[seed] for seed in sorted(by_seed)]), _runs(view, size)
            )
        )
    return judge(view, EXPERIMENT, parts, _logged(view))


def _by_seed(view: View, size: str, measure: Callable[[Result], float | None]) -> dict[int, float]:
    return {r.run.config.seed: x for r in _runs(view, size) if (x := measure(r)) is not None}


def _whole(result: Result) -> float | None:
    return mean(fragments(result, embedding=False))


def _runs(view: View, size: str) -> tuple[Result, ...]:
    return tuple(r for row, results in view.rows(EXPERIMENT).items() if row.startswith(f"{size} | ") for r in results)


def _logged(view: View) -> str:
    done = [r for size in view.sizes(EXPERIMENT) for r in _runs(view, size) if r.summary is not None]
    missing = sum(not r.syncs for r in done)
    return f"{missing} of {len(done)} finished runs have no log of outer gradients." if missing else ""


def _course_claims() -> Iterator[tuple[str, Callable[[View], Finding]]]:
    for name, decide in (("start", cosine_at_start), ("middle", middle), ("end", end)):
        yield f"cosine-{name}", decide
        yield f"cosine-{name}-embedding", lambda view, decide=decide: decide(view, True)


CLAIMS: dict[str, Callable[[View], Finding]] = {
    **dict(_course_claims()),
    "cosine-falls-with-size": cosine_falls_with_size,
    "first-layer-higher": first_layer,
}

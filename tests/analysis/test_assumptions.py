"""Assumptions are worded from the config, and merged without losing a choice."""

from dataclasses import replace

import pytest
from fabricated import planned

from analysis.paper.assumptions import assumptions, footnotes
from repro.spec.config import CodecConfig, OuterConfig, RunConfig
from repro.spec.experiment import vary

DROPS = ("feddropout", "dare", "topk")


def by_key(config: RunConfig) -> dict[str, str]:
    return {made.key: made.choice for made in assumptions(config)}


def streaming_run() -> RunConfig:
    return next(run.config for run in planned("paper") if "H=100" in run.row)


def test_each_key_once_and_each_with_a_reason():
    for scale in ("paper", "mini", "smoke"):
        for run in planned(scale):
            made = assumptions(run.config)
            assert len({m.key for m in made}) == len(made)
            assert all(m.choice and m.reason for m in made)


def test_the_batch_of_c4():
    assert by_key(streaming_run())["batch"].startswith("64 sequences of 1,024 = 2^16 tokens")
    odd = replace(streaming_run(), batch=6)
    assert "= 6,144 tokens" in by_key(odd)["batch"]


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"batch": 128}, "batch"),
        ({"inner__learning_rate": 0.5}, "inner learning rate"),
        ({"inner__warmup_steps": 7}, "warm-up"),
        ({"inner__final_fraction": 0.3}, "learning-rate decay"),
        ({"inner__weight_decay": 0.1}, "weight decay"),
        ({"inner__beta2": 0.5}, "AdamW"),
        ({"inner__clip_norm": 3.0}, "clipping"),
        ({"sync__mix": 0.25}, "α"),
        ({"sync__outer__momentum": 0.1}, "outer momentum"),
        ({"sync__codec__scale": "block:32"}, "scales of e3m0 codes"),
        ({"sync__offset_sign": 1}, "offset of a fragment"),
        ({"sync__first_sync": "due"}, "first sync"),
        ({"sync__fragments__embedding": "merged"}, "embedding"),
        ({"sync__fragments__layers": 2}, "fragment size"),
        ({"model__seq_len": 512}, "validation set"),
        ({"inner__warmup_steps": 10, "steps": 100, "inner__weight_decay": 0.01}, "token budget"),
    ],
)
def test_a_changed_choice_is_told(change: dict, key: str):
    before, after = by_key(streaming_run()), by_key(vary(streaming_run(), **change))
    assert before[key] != after[key]


def test_an_outer_adam_is_a_choice():
    outer = OuterConfig("adam", 0.1, 0.0, beta2=0.99)
    found = by_key(vary(streaming_run(), sync__outer=outer))
    assert found["outer Adam"] == "β 0.9 and 0.99, ε 1e-08" and "outer momentum" not in found


def test_dropping_counts_by_row_and_dare_multiplies():
    dropping = {d: by_key(vary(streaming_run(), sync__codec=CodecConfig("float32", drop=d, keep=0.5))) for d in DROPS}
    kept = "of each row of n values exactly k, n times 0.5 rounded"
    assert {d: choices["value dropping"] for d, choices in dropping.items()} == {
        "feddropout": kept,
        "dare": f"{kept}, times n/k",
        "topk": kept,
    }
    assert "value dropping" not in by_key(streaming_run())


def test_data_parallel_and_frozen_fragments_say_what_they_do_otherwise():
    dp = next(by_key(run.config) for run in planned("paper") if run.labels[1] == "Data-Parallel")
    assert dp["what Data-Parallel sends"].endswith("the all-reduce itself is float32 on CPUs")
    frozen = by_key(vary(streaming_run(), sync__frozen=True))
    assert frozen["frozen fragments"].endswith("their gradients stay in the norm that clips")


def test_only_what_touches_the_run():
    runs = {run.labels[1]: by_key(run.config) for run in planned("paper") if run.labels[0] == "35M"}
    dp, diloco = runs["Data-Parallel"], runs["DiLoCo H=30"]
    assert "what Data-Parallel sends" in dp and "outer momentum" not in dp
    assert "what DiLoCo sends" in diloco and not {"α", "embedding", "offset of a fragment"} & set(diloco)


def test_equal_choices_make_one_footnote_and_differing_ones_keep_their_sizes():
    notes = {made.key: made.choice for made in footnotes(planned("paper"))}
    assert notes["α"] == "0.5"
    for run in planned("paper"):
        by_rate = {choice.split(": ")[1]: choice for choice in notes["inner learning rate"].split("; ")}
        assert run.row in by_rate[f"{run.config.inner.learning_rate:g} at its peak"]


def test_choices_that_follow_the_method_are_listed_by_method_and_others_by_row():
    one, two, *_ = planned("paper")
    other = replace(two, config=vary(two.config, inner__clip_norm=9.0))
    clipping = {m.key: m.choice for m in footnotes([one, other])}["clipping"]
    assert clipping.startswith("Data-Parallel: ") and "DiLoCo H=30: gradients to a global norm of 9" in clipping
    runs = [run for run in planned("paper") if run.labels[0] in ("35M", "100M")][:6]
    runs[5] = replace(runs[5], config=vary(runs[5].config, inner__clip_norm=9.0))
    clipping = {m.key: m.choice for m in footnotes(runs)}["clipping"]
    assert "100M | DiLoCo H=30: gradients to a global norm of 9" in clipping

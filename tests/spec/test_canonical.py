"""Configs that compute the same have one id, by property, and slugs tell the runs of all specs apart."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import tiny
from hypothesis import example, given
from hypothesis import strategies as st

from experiments.registry import experiment_names, load
from experiments.streaming.base import c4, diloco, dolma, streaming
from repro.diloco.optim import at_constant_rate, learning_rate
from repro.spec.actions import flush_involved, involved
from repro.spec.canonical import canonical_config
from repro.spec.config import SCALES, CodecConfig, FragmentConfig, OuterConfig, RunConfig, SyncConfig
from repro.spec.experiment import Experiment, expand, vary
from repro.spec.formats import DROPS, FORMATS
from repro.spec.fragments import cut
from repro.spec.identity import MAX_ID, run_id
from repro.spec.payload import row_bytes
from repro.spec.schedule import learning
from repro.spec.shapes import parameter_shapes
from repro.spec.slug import slug

STEPS = 20
RUN = tiny.run_config(tiny.synced(), steps=STEPS)


@st.composite
def configs(draw: st.DrawFn) -> RunConfig:
    """Runs of the tiny model, with every knob that can be without effect."""
    every, replicas = draw(st.integers(1, 7)), draw(st.sampled_from((1, 2, 3)))
    delay = st.integers(0, every - 1)
    delays = draw(st.tuples(delay) | st.tuples(*[delay] * replicas))
    pattern = draw(st.sampled_from(("strided", "sequential", "whole")))
    embedding = "merged" if pattern == "whole" else draw(st.sampled_from(("own", "merged")))
    scales = ("row", "tensor", "block:3", "block:16", "block:32", "block:99")
    form = draw(st.sampled_from(sorted(FORMATS)))
    scale = draw(st.sampled_from(scales if form != "sign" else scales[2:]))
    codec = CodecConfig(form, scale, draw(st.sampled_from(DROPS)), draw(st.sampled_from((0.5, 1.0))))
    name = draw(st.sampled_from(("nesterov", "heavy_ball", "sgd")))
    momentum = 0.0 if name == "sgd" else draw(st.sampled_from((0.0, 0.9)))
    sync = SyncConfig(
        every,
        delays,
        draw(st.sampled_from((0.0, 0.5, 1.0))),
        FragmentConfig(pattern, draw(st.integers(1, 3)), embedding),
        codec,
        OuterConfig(name, draw(st.sampled_from((0.0, 0.4))), momentum),
        draw(st.sampled_from((-1, 1))),
        draw(st.sampled_from(("trained", "due"))),
        draw(st.booleans()),
        draw(st.sampled_from(("none", "last"))),
    )
    ends = st.sampled_from((0, 1, 2, 4, 9, STEPS, STEPS + 5))
    inner = replace(tiny.INNER, schedule_steps=draw(ends), final_fraction=draw(st.sampled_from((0.1, 1.0))))
    inner = replace(inner, warmup_steps=draw(st.sampled_from((0, 3, STEPS))))
    return tiny.run_config(sync, replicas, batch=6, steps=STEPS, inner=inner)


def effects(config: RunConfig) -> Iterator[object]:
    """What a run does at each step, by layers and not by fragments' numbers, and by values and not by their names."""
    sync, model = config.sync, config.model
    assert sync is not None
    pieces = cut(sync.fragments, model.layers)
    for step in range(1, 3 * STEPS):
        yield learning_rate(config.inner, step, max(step, STEPS))
        groups = [pieces[p] for p in learning(sync, len(pieces), step)] if sync.frozen else pieces
        yield {layer for piece in groups for layer in piece.layers}, any(piece.embed for piece in groups)
        for item in involved(sync, pieces, config.replicas, step):
            action = item.action if sync.mix < 1 else replace(item.action, mix=False)
            if action != replace(action, send=False, parts=0, sync=False, apply=False, mix=False):
                yield action, tuple(item.ids), item.part, item.taken, tuple(item.keep_M)


def flushes(config: RunConfig) -> Iterator[object]:
    """What is exchanged once more after the last step."""
    assert config.sync is not None
    pieces = cut(config.sync.fragments, config.model.layers)
    for item in flush_involved(config.sync, pieces, config.replicas, config.steps, config.steps):
        yield item.action, tuple(item.ids), item.taken


def numbers(config: RunConfig) -> Iterator[object]:
    """What its arithmetic reads beside the schedule: the bytes of each row, masks, and OuterOpt in one form."""
    sync = config.sync
    assert sync is not None
    codec, outer = sync.codec, sync.outer
    yield codec.format
    for leaves in parameter_shapes(config.model).values():
        for shape in leaves.values():
            yield row_bytes(codec, shape[-1])
    yield at_constant_rate(config.inner), config.steps, config.batch, config.replicas, config.seed
    yield outer.learning_rate, outer.momentum if outer.learning_rate else 0.0
    if outer.learning_rate and outer.momentum:
        yield outer.optimizer


@given(configs())
@example(replace(RUN, sync=replace(RUN.sync, mix=1.0, delays=(1, 3))))
def test_a_config_and_its_canonical_one_do_the_same(config: RunConfig) -> None:
    canonical = canonical_config(config)
    assert canonical_config(canonical) == canonical
    assert run_id(config) == run_id(canonical)
    assert list(effects(config)) == list(effects(canonical))
    assert list(flushes(config)) == list(flushes(canonical))
    assert list(numbers(config)) == list(numbers(canonical))


SEQUENTIAL = FragmentConfig("sequential", 1, "own")
ALIKE = {
    "one τ": ({"sync__delays": (1, 1)}, {"sync__delays": (1,)}),
    "a kept share": ({"sync__codec__keep": 0.5}, {}),
    "a scale on float32": ({"sync__codec__scale": "tensor"}, {}),
    "blocks as long as rows": ({"sync__codec": CodecConfig("e3m0", "block:32")}, {"sync__codec": CodecConfig("e3m0")}),
    "a mask of all": ({"sync__codec": CodecConfig("float32", drop="dare")}, {}),
    "Nesterov without momentum": (
        {"sync__outer": OuterConfig("nesterov", 0.4, 0.0)},
        {"sync__outer": OuterConfig("sgd", 0.4, 0.0)},
    ),
    "heavy ball without momentum": (
        {"sync__outer": OuterConfig("heavy_ball", 0.4, 0.0)},
        {"sync__outer": OuterConfig("sgd", 0.4, 0.0)},
    ),
    "a rate of 0": ({"sync__outer__learning_rate": 0.0}, {"sync__outer": OuterConfig("sgd", 0.0, 0.0)}),
    "an Adam with a rate of 0": (
        {"sync__outer": OuterConfig("adam", 0.0, 0.0)},
        {"sync__outer": OuterConfig("sgd", 0.0, 0.0)},
    ),
    "one layer a fragment": (
        {"sync__fragments": SEQUENTIAL},
        {"sync__fragments": replace(SEQUENTIAL, pattern="strided")},
    ),
    "one of everything": (
        {"sync__fragments": FragmentConfig("sequential", 3, "merged")},
        {"sync__fragments": FragmentConfig("whole", 2, "merged")},
    ),
    "a sign of no offset": (
        {"sync__fragments": tiny.WHOLE, "sync__offset_sign": 1, "sync__first_sync": "due", "sync__frozen": True},
        {"sync__fragments": tiny.WHOLE},
    ),
    "a sign of half of H": (
        {"sync__fragments": FragmentConfig("strided", 3, "own"), "sync__offset_sign": 1},
        {"sync__fragments": FragmentConfig("strided", 3, "own")},
    ),
    "τ of replicas that mix nothing in": ({"sync__mix": 1.0, "sync__delays": (1, 3)}, {"sync__mix": 1.0}),
    "the end of the run": ({"inner__schedule_steps": STEPS}, {}),
    "an end in the warm-up": ({"inner__schedule_steps": 1}, {"inner__schedule_steps": 4}),
    "no fall": ({"inner__final_fraction": 1.0, "inner__schedule_steps": 9}, {"inner__final_fraction": 1.0}),
    "a negative zero": ({"sync__mix": -0.0}, {"sync__mix": 0.0}),
}


@pytest.mark.parametrize(("one", "other"), ALIKE.values(), ids=ALIKE)
def test_what_computes_the_same_has_one_id(one: dict, other: dict) -> None:
    assert run_id(vary(RUN, **one)) == run_id(vary(RUN, **other))


DIFFERENT = [
    {"sync__delays": (1, 2)},
    {"sync__delays": (2, 1)},
    {"sync__codec": CodecConfig("float32", drop="topk")},  # its masks are sent
    {"sync__codec": CodecConfig("float32", drop="dare", keep=0.5)},
    {"sync__codec": CodecConfig("e3m0", "block:16")},
    {"sync__codec": CodecConfig("e3m0", "tensor")},
    {"sync__outer": OuterConfig("nesterov", 0.4, 0.5)},
    {"sync__outer": OuterConfig("heavy_ball", 0.4, 0.9)},
    {"sync__outer": OuterConfig("sgd", 0.4, 0.0)},
    {"sync__outer": OuterConfig("adam", 0.4, 0.0)},
    {"sync__outer": OuterConfig("adam", 0.4, 0.0, beta1=0.8)},
    {"sync__fragments": tiny.SEQUENTIAL},
    {"sync__fragments": tiny.MERGED},
    {"sync__fragments": tiny.WHOLE},
    {"sync__offset_sign": 1},
    {"sync__first_sync": "due"},
    {"sync__frozen": True},
    {"sync__flush": "last"},
    {"sync__mix": 1.0},
    {"inner__schedule_steps": STEPS - 1},
    {"inner__schedule_steps": STEPS + 1},
    {"model__size": "other"},
    {"scale": "mini"},
    {"repeat_data": True},
]


def test_what_differs_keeps_ids_of_its_own() -> None:
    ids = [run_id(RUN), *(run_id(vary(RUN, **change)) for change in DIFFERENT)]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("seed", [0, 99])
def test_slugs_tell_all_runs_of_all_specs_apart(seed: int) -> None:
    slugs: dict[str, str] = {}
    specs = [spec for name in experiment_names() if isinstance(spec := load(name), Experiment)]
    for config in (run.config for spec in specs for scale in SCALES for run in expand(spec, scale)):
        name = run_id(replace(config, seed=seed))
        assert slugs.setdefault(name[:-9], name) == name
    assert len(slugs) >= 300


STREAM = c4("500M", streaming(30))
SLUGS = {
    "500m-stream-h30-s0": {},
    "500m-stream-h30-t5-s0": {"sync__delays": (5,)},
    "500m-stream-h30-t1x20-s0": {"sync__delays": (1, 20)},
    "500m-stream-h30-a0-s0": {"sync__mix": 0.0},
    "500m-stream-h30-e4m3-s0": {"sync__codec__format": "float8_e4m3"},
    "500m-stream-h30-tk12p5g32-s0": {"sync__codec": CodecConfig("e3m0", "block:32", "topk", 0.125)},
    "500m-stream-h30-f32ti10-s0": {"sync__codec": CodecConfig("float32", "row", "ties", 0.1)},
    "500m-stream-h30-gt-s0": {"sync__codec__scale": "tensor"},
    "500m-stream-h30-l6-seq-em-s0": {"sync__fragments": FragmentConfig("sequential", 6, "merged")},
    "500m-stream-h30-plus-due-s0": {"sync__offset_sign": 1, "sync__first_sync": "due"},
    "500m-fedpart-h30-s0": {"sync__frozen": True},
    "500m-stream-h30-o80n60-s0": {"sync__outer": OuterConfig("nesterov", 0.8, 0.6)},
    "500m-stream-h30-hb-s0": {"sync__outer": OuterConfig("heavy_ball", 0.4, 0.9)},
    "500m-stream-h30-adamo0p1-s0": {"sync__outer": OuterConfig("adam", 0.001, 0.0)},
    "500m-stream-h30-m4b0p5-s0": {"replicas": 4, "inner__learning_rate": 0.00057},
    "500m-stream-h30-b2x41-s7": {"batch": 512, "seed": 7},
}


@pytest.mark.parametrize(("expected", "change"), SLUGS.items(), ids=SLUGS)
def test_a_slug_says_what_differs_from_the_main_run(expected: str, change: dict) -> None:
    assert run_id(vary(STREAM, **change))[:-9] == expected


def test_the_main_runs_have_no_code_but_h() -> None:
    assert run_id(c4("35M", diloco(30)))[:-9] == "35m-diloco-h30-s0"
    assert run_id(c4("35M", None, replicas=1))[:-9] == "35m-dp-s0"
    assert run_id(dolma(80, streaming(100), replicas=4))[:-9] == "1b-stream-h100-m4x80-do-s0"


def test_a_model_far_above_the_ladder_has_a_slug() -> None:
    large = replace(STREAM.model, size="100B", layers=80, ffn_width=2**16, heads=128)
    assert run_id(replace(STREAM, model=large)).startswith("100b-stream-b0p0625x")


@pytest.mark.parametrize("seed", [0, 12345, 2**31 - 1])
@pytest.mark.parametrize("limit", [MAX_ID, 38])
def test_a_seed_is_never_cut(seed: int, limit: int) -> None:
    long = vary(STREAM, model__size="A-label.Of-20-letter", sync__codec=CodecConfig("float32", "row", "topk", 0.1))
    name = run_id(vary(long, seed=seed, sync__delays=(1, 29)), limit)
    assert len(name) <= limit and name[:-9].endswith(f"-s{seed}")
    assert slug(canonical_config(long), 20).endswith("-s0")

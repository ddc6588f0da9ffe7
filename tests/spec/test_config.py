"""Configs are checked when they are built, in one sentence with the value and the mend."""

from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
import tiny

from repro.errors import UserError
from repro.spec.config import CodecConfig, FragmentConfig, ModelConfig, OuterConfig, SyncConfig

SYNC = tiny.synced()
RUN = tiny.run_config(SYNC)


@pytest.mark.parametrize(
    ("config", "change", "sentence"),
    [
        (tiny.MODEL, dict(layers=0), "layers=0"),
        (tiny.MODEL, dict(ffn_width=30), "ffn_width=30"),
        (tiny.MODEL, dict(heads=3), "ffn_width=32 with heads=3"),
        (tiny.MODEL, dict(vocab=1), "vocab=1"),
        (tiny.MODEL, dict(seq_len=0), "seq_len=0"),
        (tiny.MODEL, dict(compute_dtype="float16"), "float16.*give float32 or bfloat16"),
        (tiny.MODEL, dict(positions="rotary"), "rotary"),
        (tiny.INNER, dict(learning_rate=0.0), "learning_rate=0.0"),
        (tiny.INNER, dict(warmup_steps=-1), "warmup_steps=-1"),
        (tiny.INNER, dict(beta2=1.0), "beta2=1.0"),
        (tiny.INNER, dict(clip_norm=0.0), "clip_norm=0.0"),
        (tiny.NESTEROV, dict(optimizer="lion"), "'lion'.*nesterov"),
        (tiny.NESTEROV, dict(momentum=1.0), "momentum=1.0"),
        (tiny.NESTEROV, dict(beta2=0.9), "'nesterov' with beta2=0.9: it has none, set 0.999"),
        (tiny.OUTER_ADAM, dict(momentum=0.9), "'adam' with momentum=0.9: it has none, set 0"),
        (tiny.OUTER_ADAM, dict(beta1=1.0), "beta1=1.0"),
        (tiny.OUTER_ADAM, dict(eps=0.0), "eps=0.0"),
        (tiny.STRIDED, dict(pattern="random"), "'random'.*strided, sequential or whole"),
        (tiny.STRIDED, dict(layers=0), "layers=0"),
        (tiny.STRIDED, dict(embedding="split"), "'split'.*own or merged"),
        (tiny.WHOLE, dict(embedding="own"), "set embedding='merged'"),
        (CodecConfig("e3m0"), dict(keep=0.0), "keep=0.0"),
        (CodecConfig("e3m0"), dict(keep=1.5), "keep=1.5"),
        (SYNC, dict(every=0), "every=0"),
        (SYNC, dict(delays=()), "delays=()"),
        (SYNC, dict(every=3, delays=(3,)), r"delays=\(3,\).*every=3.*\[0, H\)"),
        (SYNC, dict(delays=(1, -1)), r"delays=\(1, -1\)"),
        (SYNC, dict(mix=1.1), "mix=1.1"),
        (SYNC, dict(offset_sign=0), "offset_sign=0"),
        (SYNC, dict(first_sync="never"), "'never'.*trained or due"),
        (SYNC, dict(flush="first"), "'first'.*none or last"),
        (RUN, dict(scale="huge"), "'huge'.*paper, mini, small or smoke"),
        (RUN, dict(replicas=0), "replicas=0"),
        (RUN, dict(steps=0), "steps=0"),
        (RUN, dict(batch=5), "batch=5 over replicas=2"),
        (RUN, dict(sync=None), "replicas=2 without sync"),
        (RUN, dict(sync=tiny.synced(delays=(1, 2, 1))), "delays.*replicas=2"),
        (
            RUN,
            dict(sync=tiny.synced(fragments=FragmentConfig("strided", 4, "own"))),
            r"sync\.fragments\.layers=4 in a model of 3",
        ),
    ],
)
def test_a_wrong_value_is_one_sentence(config: Any, change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence) as caught:
        replace(config, **change)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


def test_edges_that_are_allowed() -> None:
    replace(SYNC, mix=0.0)
    replace(SYNC, mix=1.0)
    replace(SYNC, every=1, delays=(0,))
    replace(tiny.INNER, warmup_steps=0)
    replace(RUN, sync=replace(SYNC, fragments=FragmentConfig("strided", 3, "own")))


@pytest.mark.parametrize("kind", [ModelConfig, OuterConfig, SyncConfig])
def test_configs_are_frozen(kind: type) -> None:
    config = {ModelConfig: tiny.MODEL, OuterConfig: tiny.NESTEROV, SyncConfig: SYNC}[kind]
    name = next(iter(vars(config)))
    with pytest.raises(FrozenInstanceError):
        setattr(config, name, 1)


def test_derived_numbers_of_the_paper() -> None:
    # Table 2's 1B: F = 8,192, so d = 2,048 and N = 12·2048²·24 + 32,000·2,048.
    model = ModelConfig("1B", 24, 8192, 32, 32_000, 1024, "bfloat16")
    assert (model.width, model.head_size, model.params_by_rule) == (2048, 64, 1_273_495_552)
    run = replace(RUN, model=model, batch=256, steps=10)
    assert run.tokens == 10 * 256 * 1024
    assert run.flops == 6 * 1_273_495_552 * run.tokens

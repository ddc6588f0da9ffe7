"""The readable half of a run's id: what tells the run from the paper's main ones, in short codes.

    mini small smoke      the scale, where it isn't the paper's
    500m                  the size of the model, then the method:
    dp                    data-parallel
    diloco stream         one fragment of everything, or several; fedpart freezes those that aren't due
    h30                   H, then what differs from the main runs of the method, in this order:
    f32 bf16 e4m3 e2m1 …  the format of what is sent (main: e3m0, of DiLoCo bfloat16), and with it
      …tk50 ti50 fd50 da50  Top-K, TIES, FedDropout or DARE keeping 50 % of the values
      …gt g32             a scale for a tensor, or for 32 values (main: a row)
    t5 t1x20              τ, or that of each replica (main: 1, of DiLoCo 0)
    a100                  α in percent (main: 50, of DiLoCo 0)
    l6 seq em             layers a fragment (main: 3, in miniature 1); sequential ones; the embedding with the first
    plus due              the other sign of the offsets; a first sync as soon as one is due
    m4 b0p5 x80           replicas (main: 2); half the main runs' batch a replica; 80 tokens a parameter (main: 20)
    do                    Dolma
    sgd hb adam o80 n60   the outer optimiser (main: Nesterov), its rate in percent (40), its momentum (90)
    fl nf                 a final flush, or none, where the main runs of the scale have it otherwise
    q2048 r0p5            sequences of 2,048 (main: on C4 1,024); half the usual inner learning rate
    s0                    the seed, always

Decimals have a p. What has no code here (a decay, a width, ...) the hash alone tells apart; where not all codes fit
h30 is left out, then the last ones, never the seed.
"""

import re
from collections.abc import Iterator

from repro.corpora import CORPORA
from repro.spec.config import CodecConfig, FragmentConfig, OuterConfig, RunConfig
from repro.spec.laws import DATA_PARALLEL, law_batch_tokens
from repro.spec.scales import MINI_SEQ, PAPER_FRAGMENT, TOKENS_PER_PARAMETER, usual_batch, usual_rate

FORMAT_CODES = {"float32": "f32", "bfloat16": "bf16", "float8_e4m3": "e4m3", "float8_e5m2": "e5m2"}
DROP_CODES = {"feddropout": "fd", "dare": "da", "topk": "tk", "ties": "ti"}
OUTER_CODES = {"heavy_ball": "hb"}
FORMAT = {"diloco": "bfloat16", "stream": "e3m0"}
DELAY = {"diloco": 0, "stream": 1}
MIX = {"diloco": 0.0, "stream": 0.5}
SEQUENCE = {"c4": 1_024, "dolma": 2_048}  # of the main runs
EVERY = "h30"  # which most have
FLUSH = {"paper": "none", "mini": "last", "small": "last", "smoke": "last"}  # of the main runs of a scale
FLUSH_CODES = {"last": "fl", "none": "nf"}
RATE, MOMENTUM = 0.4, 0.9  # of the outer optimiser


def slug(config: RunConfig, limit: int) -> str:
    """Codes with dashes between them, at most `limit` characters of [a-z0-9-], of a canonical config."""
    size = re.sub("[^a-z0-9-]", "p", config.model.size.lower())
    scale = "" if config.scale == "paper" else config.scale
    codes = [code for code in (scale, size, *_method(config), *_run(config)) if code]
    seed = f"-s{config.seed}"
    while len("-".join(codes)) + len(seed) > limit and len(codes) > 1:
        codes.remove(EVERY) if EVERY in codes else codes.pop()
    return "-".join(codes)[: limit - len(seed)].rstrip("-") + seed


def _method(config: RunConfig) -> Iterator[str]:
    sync = config.sync
    if sync is None:
        yield "dp"
    else:
        main = "diloco" if sync.fragments.pattern == "whole" else "stream"
        yield "fedpart" if sync.frozen else main
        yield f"h{sync.every}"
        yield _codec(sync.codec, FORMAT[main])
        yield "" if sync.delays == (DELAY[main],) else "t" + "x".join(map(str, sync.delays))
        yield "" if sync.mix == MIX[main] else f"a{_percent(sync.mix)}"
        if main == "stream":
            yield from _fragments(sync.fragments, PAPER_FRAGMENT if config.scale == "paper" else 1)
        yield "plus" if sync.offset_sign == 1 else ""
        yield "due" if sync.first_sync == "due" else ""


def _codec(codec: CodecConfig, main: str) -> str:
    form = "" if codec.format == main else FORMAT_CODES.get(codec.format, codec.format)
    drop = "" if codec.drop == "none" else DROP_CODES[codec.drop] + _percent(codec.keep)
    scale = "" if codec.scale == "row" else "g" + codec.scale.replace("tensor", "t").removeprefix("block:")
    return form + drop + scale


def _fragments(fragments: FragmentConfig, main: int) -> Iterator[str]:
    yield "" if fragments.layers == main else f"l{fragments.layers}"
    yield "seq" if fragments.pattern == "sequential" else ""
    yield "em" if fragments.embedding == "merged" else ""


def _outer(outer: OuterConfig) -> str:
    name = "" if outer.optimizer == "nesterov" else OUTER_CODES.get(outer.optimizer, outer.optimizer)
    rate = "" if outer.learning_rate == RATE else f"o{_percent(outer.learning_rate)}"
    momentum = "" if outer.momentum in (0, MOMENTUM) else f"n{_percent(outer.momentum)}"
    return name + rate + momentum


def _run(config: RunConfig) -> Iterator[str]:
    """Replicas, their batch and the length, corpus, outer optimiser and rate, each where it isn't the main runs'."""
    model = config.model
    replicas = config.replicas if config.sync else 2
    batch = _batch(config, replicas)
    tokens = float(f"{config.tokens / model.params_by_rule:.2g}")
    main = config.scale == "smoke" or tokens == TOKENS_PER_PARAMETER
    of_batch = ("" if replicas == 2 else f"m{replicas}") + ("" if batch == 1 else f"b{_number(batch)}")
    yield of_batch + ("" if main else f"x{_number(tokens)}")
    yield "" if config.corpus in ("c4", "mini", "smoke") else config.corpus[:2]
    if config.sync is not None:
        yield _outer(config.sync.outer)
        yield "" if config.sync.flush == FLUSH[config.scale] else FLUSH_CODES[config.sync.flush]
    usual_length = {"paper": SEQUENCE.get(config.corpus, model.seq_len), "mini": MINI_SEQ}
    length = usual_length.get(config.scale, model.seq_len)
    yield "" if model.seq_len == length else f"q{model.seq_len}"
    rate = round(config.inner.learning_rate / usual_rate(config), 6)
    yield "" if rate == 1 else f"r{_number(rate)}"


def _batch(config: RunConfig, replicas: int) -> float:
    """The batch of a replica over that of the main runs: on C4 the law's, of two replicas or of data-parallel."""
    if config.scale != "paper":
        return config.batch / usual_batch(config)
    law = law_batch_tokens(config.model.params_by_rule, 2 if config.sync else DATA_PARALLEL)
    main = CORPORA[config.corpus].batch_tokens or law
    return 2 * config.batch * config.model.seq_len / (replicas * main)


def _percent(share: float) -> str:
    return _number(100 * share)


def _number(value: float) -> str:
    return f"{value:.3g}".replace(".", "p").replace("+", "").replace("-", "m")

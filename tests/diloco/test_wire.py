"""What the compiled programs send: read from their HLO on a mesh replica × data × fsdp of two each."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rig
import tiny

from repro.diloco import wire
from repro.diloco.buffers import codes_struct
from repro.diloco.mesh import make_mesh
from repro.diloco.resources import Resources
from repro.errors import UserError
from repro.machines import hlo
from repro.spec.actions import Action
from repro.spec.config import CodecConfig, SyncConfig
from repro.spec.payload import fragment_bytes
from repro.spec.shapes import fragment_shapes, is_norm, parameter_shapes
from repro.training.state import Layout
from repro.training.step import Stepper

pytestmark = pytest.mark.compiles

MESH = {"replica": 2, "data": 2, "fsdp": 2}
PAIR = (2, False)  # a fragment of two layers
EMBED = (0, True)


def moved(sync: SyncConfig | None, *actions: Action) -> list[hlo.Collective]:
    layout = Layout.of(tiny.run_config(sync, replicas=2, batch=8), tiny.SHARDED)
    return hlo.collectives(Stepper(layout).compile(actions).as_text(), MESH)


def between_replicas(found: list[hlo.Collective]) -> list[hlo.Collective]:
    return [c for c in found if "replica" in c.axes]


def test_a_quiet_step_has_no_traffic_between_replicas() -> None:
    found = moved(tiny.synced())
    assert between_replicas(found) == []
    assert {"data"} <= set().union(*(c.axes for c in found))


@pytest.mark.parametrize("codec", ["e3m0", "bfloat16", "float32"])
def test_a_send_is_one_gather_of_the_payload_in_bytes(codec: str) -> None:
    found = moved(tiny.synced(codec=codec), Action(PAIR, send=True, parts=1, apply=True, mix=True))
    (send,) = between_replicas(found)
    shapes = fragment_shapes(tiny.MODEL, *PAIR)
    per_device = wire.part_bytes(shapes, CodecConfig(codec), fsdp=2, parts=1)
    assert (send.kind, send.axes) == ("all-gather", {"replica"})
    assert send.results == (("u8", (2, per_device)),)
    # Both fsdp shards together send the payload: the norms, which both hold, are not sent twice.
    assert 2 * per_device == fragment_bytes(CodecConfig(codec), shapes)


def test_a_blocking_send_is_the_same_gather() -> None:
    (send,) = between_replicas(moved(tiny.synced(codec="e3m0"), Action(EMBED, sync=True, mix=True)))
    size = wire.part_bytes(fragment_shapes(tiny.MODEL, *EMBED), CodecConfig("e3m0"), fsdp=2, parts=1)
    assert (send.kind, send.results) == ("all-gather", (("u8", (2, size)),))


def test_each_of_several_parts_moves_its_share() -> None:
    sync = tiny.synced(delays=(3,), codec="e3m0")
    shapes = fragment_shapes(tiny.MODEL, *PAIR)
    size = wire.part_bytes(shapes, CodecConfig("e3m0"), fsdp=2, parts=3)
    for action in (Action(PAIR, send=True, parts=3), Action(PAIR, parts=3)):
        (send,) = between_replicas(moved(sync, action))
        assert (send.kind, send.results) == ("all-gather", (("u8", (2, size)),))
    payload = fragment_bytes(CodecConfig("e3m0"), shapes)
    assert payload <= 2 * 3 * size < payload + 2 * 3  # at most a byte of padding a device and part


def test_two_fragments_in_one_step_are_two_gathers() -> None:
    actions = (Action(PAIR, send=True, parts=1, apply=True), Action(EMBED, send=True, parts=1, apply=True))
    sends = between_replicas(moved(tiny.synced(codec="e3m0"), *actions))
    assert [c.kind for c in sends] == ["all-gather"] * 2
    shapes = [fragment_shapes(tiny.MODEL, *kind) for kind in (PAIR, EMBED)]
    sizes = [wire.part_bytes(s, CodecConfig("e3m0"), fsdp=2, parts=1) for s in shapes]
    assert sorted(c.bytes for c in sends) == sorted(2 * size for size in sizes)
    # The five bytes of the embedding's one norm are split in two: a byte of padding.
    assert 2 * sum(sizes) == sum(fragment_bytes(CodecConfig("e3m0"), s) for s in shapes) + 1


def test_e3m0_is_half_a_byte_a_parameter_and_a_byte_a_row() -> None:
    shapes = fragment_shapes(tiny.MODEL, *PAIR)
    parameters = sum(int(np.prod(s)) for s in shapes.values())
    rows = sum(int(np.prod(s[:-1])) for s in shapes.values())
    assert fragment_bytes(CodecConfig("e3m0"), shapes) == parameters / 2 + rows


def test_a_late_mix_moves_nothing() -> None:
    assert between_replicas(moved(tiny.synced(), Action(PAIR, mix=True))) == []


def test_parameters_are_really_sharded() -> None:
    layout = Layout.of(tiny.run_config(tiny.synced(), batch=8), tiny.SHARDED)
    state = rig.begin(layout)
    Stepper(layout)(state, jax.device_put(rig.tokens(layout.config, 1)))
    trees = (state.params, state.inner[1].mu, state.inner[1].nu)
    for tree in trees:
        for group, leaves in parameter_shapes(tiny.MODEL).items():
            for name, shape in leaves.items():
                local = tree[group][name].addressable_shards[0].data.shape
                split = shape if is_norm(name) else (*shape[:-2], shape[-2] // 2, shape[-1])
                assert local == (1, *split), name
    for entry, fragment in zip(state.outer, layout.fragments, strict=True):
        for name, shape in fragment_shapes(tiny.MODEL, *fragment.kind).items():
            local = entry["params"][name].addressable_shards[0].data.shape
            assert local == (shape if is_norm(name) else (*shape[:-2], shape[-2] // 2, shape[-1])), name


def rows_like(shapes: wire.LeafShapes, replicas: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    return {n: rng.standard_normal((replicas, *s)).astype(np.float32) for n, s in shapes.items()}


SEED, TAKEN = 3, 5


def encoded(codec: CodecConfig, deltas: wire.Rows) -> wire.Rows:
    """The codes of both replicas."""

    def one(delta: wire.Rows, replica: jax.Array) -> wire.Rows:
        return wire.quantise_rows(delta, codec, SEED, jnp.int32(TAKEN), replica)

    return jax.vmap(one)(deltas, jnp.arange(2))


def received(codec: CodecConfig, resources: Resources, parts: int, deltas: wire.Rows) -> wire.Rows:
    """What every replica has of all outer gradients after `parts` transfers on a mesh."""
    mesh, shapes = make_mesh(resources), {name: leaf.shape[1:] for name, leaf in deltas.items()}

    def through(deltas: wire.Rows) -> wire.Rows:
        codes = encoded(codec, deltas)
        inbox = jnp.zeros(wire.inbox_shape(shapes, codec, mesh, 2, parts), jnp.uint8)
        for part in range(parts):
            inbox = wire.move(codes, inbox, jnp.int32(part), parts, mesh)
        return wire.dequantise_rows(inbox, shapes, codec, mesh, SEED, jnp.int32(TAKEN))

    compiled = jax.jit(through).lower(deltas).compile()
    return jax.tree.map(np.asarray, compiled(deltas))


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("resources", [tiny.ONE, tiny.TWO, tiny.SHARDED], ids=["one", "two", "sharded"])
def test_what_is_moved_and_unpacked_is_what_was_encoded(resources: Resources, parts: int) -> None:
    # float32 travels bit for bit, so every value must come back in its place, on any mesh, in any number of parts.
    deltas = rows_like(fragment_shapes(tiny.MODEL, 2, True), replicas=2)
    jax.tree.map(np.testing.assert_array_equal, received(CodecConfig("float32"), resources, parts, deltas), deltas)


@pytest.mark.parametrize("drop", ["none", "feddropout", "ties"])
def test_what_is_received_does_not_depend_on_the_layout(drop: str) -> None:
    codec = CodecConfig("e3m0", drop=drop, keep=1.0 if drop == "none" else 0.5)
    deltas = rows_like(fragment_shapes(tiny.MODEL, *EMBED), replicas=2)
    alone, sharded = received(codec, tiny.ONE, 1, deltas), received(codec, tiny.SHARDED, 3, deltas)
    jax.tree.map(np.testing.assert_array_equal, alone, sharded)
    assert any(np.any(leaf[0] != leaf[1]) for leaf in alone.values())


def test_codes_do_not_depend_on_the_layout() -> None:
    deltas = rows_like(fragment_shapes(tiny.MODEL, 2, True), replicas=2)
    sync = tiny.synced(codec="e3m0", fragments=tiny.MERGED, delays=(2,))
    kinds: list[wire.Rows] = []
    for resources in (tiny.ONE, tiny.SHARDED):
        structs = codes_struct(Layout.of(tiny.run_config(sync, batch=8), resources).recipe, (2, True))
        out = {name: struct.sharding for name, struct in structs.items()}
        encode = jax.jit(lambda d: encoded(CodecConfig("e3m0"), d), out_shardings=out)
        kinds.append(jax.tree.map(np.asarray, encode(deltas)))
        assert {n: x.shape for n, x in kinds[-1].items()} == {n: s.shape for n, s in structs.items()}
    jax.tree.map(np.testing.assert_array_equal, *kinds)


def test_a_mesh_without_enough_devices_is_one_sentence() -> None:
    with pytest.raises(UserError, match=r"4 x 2 x 2 needs 16 devices and 8 are there"):
        make_mesh(Resources(replica=4, data=2, fsdp=2))


@pytest.mark.parametrize(
    ("resources", "sentence"),
    [
        (Resources(replica=3), "2 replicas on a mesh axis of 3"),
        (Resources(replica=4), "2 replicas on a mesh axis of 4"),
        (Resources(replica=2, data=4), "2 sequences a replica over data=4 x fsdp=1"),
        (Resources(replica=2, fsdp=3), "2 sequences a replica over data=1 x fsdp=3"),
    ],
)
def test_a_placement_that_does_not_divide_is_one_sentence(resources: Resources, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        Layout.of(tiny.run_config(tiny.synced()), resources)


def test_fsdp_that_does_not_divide_the_model_is_one_sentence() -> None:
    config = replace(tiny.run_config(tiny.synced(), batch=12), model=replace(tiny.MODEL, vocab=33))
    with pytest.raises(UserError, match="fsdp=3 does not divide the vocabulary of 32"):
        Layout.of(tiny.run_config(tiny.synced(), batch=12), Resources(replica=2, fsdp=3))
    with pytest.raises(UserError, match="fsdp=2 does not divide the vocabulary of 33"):
        Layout.of(config, Resources(replica=2, fsdp=2))


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("replica_groups={{0,1},{2,3}}, dimensions={0}", [(0, 1), (2, 3)]),
        ("replica_groups={}, to_apply=%add", [tuple(range(8))]),
        ("replica_groups=[2,4]<=[8], dimensions={0}", [(0, 1, 2, 3), (4, 5, 6, 7)]),
        ("replica_groups=[4,2]<=[2,4]T(1,0), x", [(0, 4), (1, 5), (2, 6), (3, 7)]),
        ("replica_groups=mesh['replica'=2,'data'=4] {'replica'}, x", [(0, 4), (1, 5), (2, 6), (3, 7)]),
        ("replica_groups=mesh['a'=2,'b'=4] {'a','b'}, x", [tuple(range(8))]),
        ("replica_groups=mesh['a'=2,'b'=4] {'b':(1)2}, x", [(0, 2), (1, 3), (4, 6), (5, 7)]),
        ("replica_groups=mesh['a'=2,'b'=4] {'b':(2)2}, x", [(0, 1), (2, 3), (4, 5), (6, 7)]),
        (
            "replica_groups=mesh['a'=2,'b'=2,'c'=2], device_ids=([2,2,2]T(0,2,1)) {'b'}, x",
            [(0, 1), (2, 3), (4, 5), (6, 7)],
        ),
        ("source_target_pairs={{0,4},{4,0}}, x", [(0, 4), (4, 0)]),
    ],
)
def test_every_spelling_of_device_groups(text: str, groups: hlo.Groups) -> None:
    assert sorted(hlo.device_groups(f"%x = f32[2] all-gather(%y), {text}", 8)) == groups


def test_groups_are_read_as_mesh_axes() -> None:
    lines = """
      %g = (u8[4]{0}, u8[8]{0}) all-gather-start(u8[4]{0} %x), replica_groups=[4,2]<=[2,4]T(1,0), dimensions={0}
      %d = u8[8]{0} all-gather-done((u8[4]{0}, u8[8]{0}) %g)
      ROOT %r = (f32[3,2]{1,0}, pred[]) all-reduce(%a, %b), replica_groups={{0,1},{2,3},{4,5},{6,7}}, to_apply=%add
      %all-gather.1 = f32[2]{0} fusion(%q), calls=%all-gather
    """
    gather, reduce = hlo.collectives(lines, MESH)
    assert (gather.kind, gather.results, gather.axes) == ("all-gather", (("u8", (8,)),), {"replica"})
    assert (reduce.kind, reduce.bytes, reduce.axes) == ("all-reduce", 25, {"fsdp"})
    with pytest.raises(ValueError, match="no device groups"):
        hlo.collectives("%g = f32[2] all-to-all(%x), dimensions={0}", MESH)

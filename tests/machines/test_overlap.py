"""The reader of scheduled TPU programs, on programs written by hand."""

import re

import pytest

from repro.machines.transfers import Transfer, read_schedule

ATTRIBUTES = (
    'is_host_transfer=true, frontend_attributes={{_xla_host_transfer_handler_name="xla_megascale_runtime",'
    '_xla_host_transfer_rendezvous="{meeting}",_xla_megascale_target="{{{slices}}}x{{0:3}}",'
    '_xla_megascale_transfer_type="{kind}"}}'
)
GATHER = ATTRIBUTES.format(meeting="all-gather.1_0", slices="1,2", kind="ALL_GATHER")
REDUCE = ATTRIBUTES.format(meeting="all-reduce.1_0", slices="1:4", kind="ALL_REDUCE")
FORWARD = 'metadata={op_name="jit(program)/inner/drjax_map/vmap(jvp(Decoder))/while"}'
BACKWARD = 'metadata={op_name="jit(program)/inner/drjax_map/vmap(transpose(jvp(Decoder)))/while"}'
UPDATE = 'metadata={op_name="jit(program)/inner/drjax_map/vmap()/sub"}'

OVERLAPPED = f"""HloModule jit_program, is_scheduled=true

ENTRY %main (a: u8[1,60], p: f32[4]) -> (f32[4], u8[2,60]) {{
  %a = u8[1,60]{{1,0}} parameter(0)
  %p = f32[4]{{0}} parameter(1)
  %after-all = token[] after-all()
  %send = (u8[1,60]{{1,0:T(4,128)(4,1)}}, u32[], token[]) send(%a, %after-all), channel_id=2, {GATHER}
  %recv = (u8[2,60]{{1,0:T(4,128)(4,1)}}, u32[], token[]) recv(%after-all), channel_id=1, {GATHER}
  %forward = f32[4]{{0}} fusion(%p), kind=kLoop, calls=%f, {FORWARD}
  %backward = f32[4]{{0}} fusion(%forward), kind=kLoop, calls=%f, {BACKWARD}
  %update = f32[4]{{0}} fusion(%backward), kind=kLoop, calls=%f, {UPDATE}
  %send-done = token[] send-done(%send), channel_id=2
  %recv-done = (u8[2,60]{{1,0}}, token[]) recv-done(%recv), channel_id=1
  %got = u8[2,60]{{1,0}} get-tuple-element(%recv-done), index=0
  ROOT %out = (f32[4]{{0}}, u8[2,60]{{1,0}}) tuple(%update, %got)
}}
"""


def test_a_transfer_beside_the_inner_step() -> None:
    schedule = read_schedule(OVERLAPPED)
    assert schedule.transfers == (Transfer("ALL_GATHER", "u8", (1, 60), 2, 1, 3, 9, independent=True),)
    assert (schedule.length, schedule.forward, schedule.updated) == (12, 5, 7)
    assert schedule.overlaps(schedule.transfers[0])
    assert schedule.bytes == 60
    assert schedule.moved == 60  # the other replica's


def test_a_transfer_that_starts_after_the_forward_pass_or_is_awaited_before_the_update() -> None:
    lines = OVERLAPPED.splitlines(keepends=True)
    forward = next(i for i, line in enumerate(lines) if "%forward = " in line)
    early = [*lines[: forward - 2], lines[forward], *lines[forward - 2 : forward], *lines[forward + 1 :]]
    done = next(i for i, line in enumerate(lines) if "%recv-done = " in line)
    soon = [*lines[: done - 2], lines[done], *lines[done - 2 : done], *lines[done + 1 :]]
    for text in ("".join(early), "".join(soon)):
        schedule = read_schedule(text)
        assert not schedule.overlaps(schedule.transfers[0])
        assert schedule.transfers[0].independent


def test_a_transfer_that_the_inner_step_needs_or_that_needs_it_is_not_independent() -> None:
    needed = OVERLAPPED.replace("fusion(%backward)", "fusion(%backward, %recv-done)")
    needs = OVERLAPPED.replace("send(%a,", "send(%forward,")
    for text in (needed, needs):
        assert not read_schedule(text).transfers[0].independent


LOOP = f"""HloModule jit_program, is_scheduled=true

%condition (c: (s32[], f32[4,8])) -> pred[] {{
  %c = (s32[]{{:T(128)}}, f32[4,8]{{1,0}}) parameter(0)
  %six = s32[]{{:T(128)}} constant(6)
  %i = s32[]{{:T(128)}} get-tuple-element(%c), index=0
  ROOT %lt = pred[]{{:T(512)}} compare(%i, %six), direction=LT
}}

%body (b: (s32[], f32[4,8])) -> (s32[], f32[4,8]) {{
  %b = (s32[]{{:T(128)}}, f32[4,8]{{1,0}}) parameter(0)
  %g = bf16[4,8]{{1,0}} get-tuple-element(%b), index=1
  %after-all = token[] after-all()
  %send = (bf16[4,8]{{1,0}}, u32[], token[]) send(%g, %after-all), channel_id=2, {REDUCE}
  %recv = (bf16[4,8]{{1,0}}, u32[], token[]) recv(%after-all), channel_id=1, {REDUCE}
  %recv-done = (bf16[4,8]{{1,0}}, token[]) recv-done(%recv), channel_id=1
  ROOT %t = (s32[]{{:T(128)}}, f32[4,8]{{1,0}}) tuple(%b, %recv-done)
}}

ENTRY %main (p: f32[4,8]) -> f32[4,8] {{
  %p = f32[4,8]{{1,0}} parameter(0)
  %one = s32[]{{:T(128)}} constant(1)
  %first = s32[]{{:T(128)}} copy(%one)
  %forward = f32[4]{{0}} fusion(%p), kind=kLoop, calls=%f, {FORWARD}
  %start = (s32[]{{:T(128)}}, f32[4,8]{{1,0}}) tuple(%first, %p)
  %loop = (s32[]{{:T(128)}}, f32[4,8]{{1,0}}) while(%start), condition=%condition, body=%body, {BACKWARD}
  ROOT %update = f32[4]{{0}} fusion(%loop), kind=kLoop, calls=%f, {UPDATE}
}}
"""


def test_a_loop_moves_its_transfers_at_each_trip() -> None:
    """From 1 to 5, so five trips; a ring of four moves 2 · 3 / 4 of the payload."""
    schedule = read_schedule(LOOP)
    assert schedule.transfers == (Transfer("ALL_REDUCE", "bf16", (4, 8), 4, 5, 5, 5, independent=False),)
    assert schedule.bytes == 5 * 2 * 4 * 8
    assert schedule.moved == 1.5 * schedule.bytes


def test_a_loop_of_unknown_length_is_an_error() -> None:
    with pytest.raises(ValueError, match="not a constant"):
        read_schedule(LOOP.replace("constant(1)", "parameter(1)"))
    with pytest.raises(ValueError, match="count up"):
        read_schedule(LOOP.replace("direction=LT", "direction=NE"))


def test_a_program_without_transfers() -> None:
    quiet = re.sub(r"(?m)^.*(send|recv|%got).*\n", "", OVERLAPPED)
    schedule = read_schedule(quiet)
    assert schedule.transfers == () and schedule.bytes == 0


def test_text_that_is_no_step_is_an_error() -> None:
    with pytest.raises(ValueError, match="no entry computation"):
        read_schedule("HloModule nothing")
    with pytest.raises(ValueError, match="forward pass"):
        read_schedule(OVERLAPPED.replace("/inner/", "/other/"))

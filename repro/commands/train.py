"""`python -m repro train`: one run from its config, in one process or in one of several.

The same command serves a shell, `srun` and pods: the processes meet at a coordinator named by hand, or in
the cluster that JAX finds in the environment. Folders must be shared between them.
"""

import argparse
import contextlib
import json
import signal
import sys
from dataclasses import replace
from typing import Any

from experiments.papers import DEFAULT, papers
from experiments.registry import trained
from repro.commands import options
from repro.cores import cores
from repro.diloco.jax_settings import start_jax
from repro.diloco.resource_flags import MESH, add_flags, asked
from repro.diloco.resources import Resources
from repro.errors import EXIT_INTERRUPTED, Interrupted, UserError
from repro.files import folder_at, read_json
from repro.machines.hardware import host_memory, require_devices, train_here
from repro.machines.seats import all_devices, check_time
from repro.runs import restarts
from repro.runs.folder import RunFolder, open_folder
from repro.runs.leases import LEASE_S, Lease, LeaseLost, take
from repro.runs.progress import progress_line
from repro.runs.worker import record_failure
from repro.spec.config import RunConfig
from repro.spec.experiment import expand
from repro.spec.identity import from_json, run_id
from repro.stopping import Stop, end_now

REPORT_SECONDS = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "config", type=folder_at, help="a config.json, as in every run folder; or a run's id, see below"
    )
    options.add_root(parser)
    options.add_cache(parser)
    parser.add_argument(
        "--checkpoint-every", type=options.step, help="steps between checkpoints (default: eight a run)"
    )
    text = f"without a sign of another process, seconds until its run is taken over (default {LEASE_S:g})"
    parser.add_argument("--takeover-after", type=options.seconds, default=LEASE_S, metavar="SECONDS", help=text)
    of = parser.add_argument_group("a run by its id, for pods, which have the code but no folder")
    of.add_argument("--experiment", help="of which CONFIG is a run's id")
    options.add_scale(of)
    options.add_seeds(of)
    parser.add_argument("--json", action="store_true", help="progress as JSON lines on standard output, for programs")
    text = "placement over all processes (default: all devices, each replica on as many as it has)"
    add_flags(parser.add_argument_group(text))
    group = parser.add_argument_group("processes")
    group.add_argument("--cluster", action="store_true", help="as JAX finds them: Slurm, Kubernetes, TPU pods")
    group.add_argument("--coordinator", type=options.address, metavar="HOST:PORT", help="of process 0")
    group.add_argument("--processes", type=options.count, help="how many there are")
    group.add_argument("--process", type=options.process, help="this one's number, from 0")
    text = "until when all must be there; else exit 42, to be started again (default 300)"
    group.add_argument("--meet-within", type=options.seconds, default=300.0, metavar="SECONDS", help=text)
    text = "in a row without a new checkpoint, after which the run counts as failed (default: never)"
    group.add_argument("--restarts", type=options.count, metavar="N", help=text)
    group.add_argument("--devices", type=options.devices, help="simulated CPU devices of this process")


def main(args: argparse.Namespace) -> int:
    """Train; 42 when asked to stop, with everything saved, or when the processes don't meet: both may be tried again.

    Process 0 leases the run and decides for the others.
    """
    if args.experiment is None:
        options.refuse(args, ("scale", "seeds"), "they say which runs --experiment has")
    if not args.cluster and args.coordinator is None:
        options.refuse(args, ("meet_within",), "one process meets no other")
    config = _config(args)  # a wrong one is told before seconds of imports
    stop = Stop(lambda sentence: _tell(args, sentence, interrupted=sentence))
    stop.free(lambda: "Stopped before anything was begun.")
    train_here(smoke=config.scale == "smoke", simulated=args.devices is not None)
    start_jax(args.cache)
    from repro.training.processes import Cluster, any_of, from_first, is_first, join

    cluster = Cluster(args.cluster, args.coordinator, args.processes, args.process, args.devices)
    open_run = RunFolder(args.root, run_id(config))
    before = restarts.unmet(open_run) if args.restarts else 0
    if args.restarts and before >= args.restarts:
        raise _given_up(open_run, before)
    noted = restarts.note_unmet(open_run, before) if args.restarts else (lambda: None)
    if join(cluster, restarts.patience(args.meet_within, before), noted):
        stop.yield_signal(signal.SIGTERM)
    require_devices()
    resources = _resources(args, config)
    stop.busy()
    lease = None
    if is_first():
        lease = take(open_folder(args.root, config), lease_s=args.takeover_after, on_stall=end_now)
    number = from_first(lease.number if lease else 0)
    folder = RunFolder(args.root, run_id(config), number)
    if number == 0:
        raise UserError(f"{folder.run_id} is being trained by another process: wait for it, or stop it.")
    outcome = "failed"
    try:
        starts = from_first(restarts.fruitless(folder, number)) if args.restarts else 0
        if args.restarts and starts >= args.restarts:
            raise _given_up(folder, starts)
        if lease:
            restarts.forget_unmet(folder)
        if not any_of(is_first() and folder.summary() is not None):
            _train(args, config, resources, folder, stop, lease)
        outcome = "finished"
    except Interrupted as message:
        outcome = "interrupted"
        _tell(args, str(message), interrupted=str(message))
        return EXIT_INTERRUPTED
    except LeaseLost as message:
        outcome = "lost"
        raise UserError(str(message)) from message
    except Exception as error:
        if lease and not lease.lost(look=True):
            record_failure(lease, error)
        raise
    finally:
        if lease:
            lease.release(outcome)
    if lease:
        _tell(args, f"{folder.run_id}  finished: {folder.path}", finished=folder.run_id)
    return 0


def _given_up(folder: RunFolder, starts: int) -> UserError:
    reason = restarts.restarts_sentence(folder, starts)
    folder.write_failure(reason, crashed=False)
    restarts.give_up(folder)
    return UserError(reason)


def _tell(args: argparse.Namespace, text: str, **message: Any) -> None:
    """To a program or to a person."""
    if args.json:
        with contextlib.suppress(BrokenPipeError):  # a program that is gone is no failure of the run
            print(json.dumps(message), flush=True)
    else:
        print(text, file=sys.stderr, flush=True)


def _train(
    args: argparse.Namespace,
    config: RunConfig,
    resources: Resources,
    folder: RunFolder,
    stop: Stop,
    lease: Lease | None,
) -> None:
    from repro.runs.attempt import attempt
    from repro.training.loop import Pace

    def report(message: dict[str, Any]) -> None:
        if lease:
            lease.mark(message)
            _tell(args, progress_line(folder.run_id, config, message), **message)

    pace = replace(Pace.of(config), report_seconds=REPORT_SECONDS)
    if args.checkpoint_every is not None:
        pace = replace(pace, checkpoint_every=args.checkpoint_every)
    if lease:
        lease.folder.forget_failure()
        report({"stage": f"starting on {_mesh_words(resources)}", "step": 0})
    attempt(config, resources, folder, args.cache, report, stop, pace, lease)


def _config(args: argparse.Namespace) -> RunConfig:
    if args.experiment is not None:
        return _run_of(args)
    value = read_json(args.config)
    if value is None:
        raise UserError(f"no config in {args.config}: give the config.json of a run.")
    return from_json(RunConfig, value, f"{args.config}: config")


def _run_of(args: argparse.Namespace) -> RunConfig:
    of = [paper.name for paper in papers()] if args.experiment == "all" else [DEFAULT]
    for experiment in (e for name in of for e in trained(args.experiment, name)):
        for run in expand(experiment, args.scale, args.seeds):
            if run.run_id == str(args.config):
                return run.config
    raise UserError(
        f"{args.experiment} at scale {args.scale} has no run {args.config} with seeds below {args.seeds}: "
        "see its plan; what launched it may be another version of this code."
    )


def _resources(args: argparse.Namespace, config: RunConfig) -> Resources:
    import jax

    given = asked(args)
    if given.keys() & set(MESH):
        resources = replace(Resources(), **given)
    else:
        own = jax.local_devices()
        if own[0].platform != "cpu":
            memory = (own[0].memory_stats() or {}).get("bytes_limit")
        else:
            memory = (host_memory() or 0) // len(own) or None
            if args.devices is None:
                check_time(config, len(cores()) * jax.process_count())
        resources = replace(all_devices(config, jax.device_count(), memory), **given)
    resources.check(config)
    return resources


def _mesh_words(resources: Resources) -> str:
    """`8 x NVIDIA H100 (gpu), replica 2 x data 1 x fsdp 4`."""
    import jax

    first = jax.devices()[0]
    mesh = " x ".join(f"{name} {getattr(resources, name)}" for name in MESH)
    return f"{resources.devices} x {first.device_kind} ({first.platform}), {mesh}"

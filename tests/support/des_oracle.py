"""A slow simulator of the same DAG: every node an event, one priority queue, nothing shared with
`repro.network.simulate`.

Tasks know their predecessors and their resource; a resource takes ready tasks in the order in which they
became ready (the link) or in program order (a worker). Times are exact fractions.
"""

import heapq
from collections import defaultdict
from fractions import Fraction


def simulate(layers, node_times, period, sends, delays, latency, steps):
    """Run `steps` steps from rest.

    node_times: seconds of a compute node for each worker. sends: {step within the period: {layer: seconds
    on the link}}; layer 0 is ready with layer 1 and needed by forward 1. delays: tau for each worker.
    Returns (for each worker, the end of each step's last compute node; [(start, end, step, layer)] of the
    link).
    """
    tasks, successors, missing = {}, defaultdict(list), {}

    def add(name, duration, before):
        tasks[name] = duration
        missing[name] = len(before)
        for predecessor in before:
            successors[predecessor].append(name)

    workers = range(len(node_times))
    for worker in workers:
        previous = None
        for step in range(steps):
            program = [("f", layer) for layer in range(1, layers + 1)]
            for layer in range(layers, 0, -1):
                program += [("a", layer)] if layer > 1 else []
                program += [("p", layer)]
            for kind, layer in program:
                name = (kind, worker, step, layer)
                before = [previous] if previous else []
                sent = step - 1 - delays[worker]
                if kind == "f" and sent >= 0:
                    needed = [layer] + ([0] if layer == 1 else [])
                    before += [("arrive", sent, n) for n in needed if n in sends.get(sent % period, {})]
                add(name, node_times[worker], before)
                previous = name
    for step in range(steps):
        for layer, seconds in sends.get(step % period, {}).items():
            add(("link", step, layer), seconds, [("p", w, step, max(layer, 1)) for w in workers])
            add(("arrive", step, layer), latency, [("link", step, layer)])
    return _run(tasks, successors, missing, len(node_times), steps)


def _run(tasks, successors, missing, workers, steps):
    ends, log = [[Fraction(0)] * steps for _ in range(workers)], []
    waiting, link_busy = [], False
    queue, order = [], 0

    def start(name, now):
        nonlocal order
        order += 1
        heapq.heappush(queue, (now + tasks[name], order, name))

    def serve_link(now):
        nonlocal link_busy
        if waiting and not link_busy:
            # First ready, first sent; a tie goes to the earlier step and, within it, to the deeper layer.
            _, step, _, name = heapq.heappop(waiting)
            link_busy = True
            log.append((now, now + tasks[name], step, name[2]))
            start(name, now)

    def release(name, now):
        if name[0] == "link":
            heapq.heappush(waiting, (now, name[1], -name[2], name))
        else:
            start(name, now)

    for name, count in list(missing.items()):
        if count == 0:
            release(name, Fraction(0))
    while queue:
        now = queue[0][0]
        done = []
        while queue and queue[0][0] == now:
            done.append(heapq.heappop(queue)[2])
        for name in done:
            if name[0] == "link":
                link_busy = False
            elif name[0] == "p":
                ends[name[1]][name[2]] = now
            for follower in successors[name]:
                missing[follower] -= 1
                if missing[follower] == 0:
                    release(follower, now)
        # Zero-length tasks may end now as well; the link chooses only once all of these are known.
        if not (queue and queue[0][0] == now):
            serve_link(now)
    return ends, log

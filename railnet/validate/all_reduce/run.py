"""Runs the all-reduce over each rail: a rank in the pod of each node, by `exec`, all at the same time."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from queue import Empty, SimpleQueue
from threading import Thread
from typing import NamedTuple

from railnet.apiserver.client import NoAnswer, RequestFailed
from railnet.apiserver.request import ApiObject, JsonObject
from railnet.validate.all_reduce.rail_all_reduce import NodeRank, RailAllReduce, without_nodes
from railnet.validate.all_reduce.result import RankEnd, RankResult, parse_rank
from railnet.validate.probe.probe_objects import CONTAINER, Target, all_reduce_command
from railnet.validate.probe.probe_pod_state import PodRail, taken_away
from railnet.validate.probe.probe_pods import RunsCommands

_PORT = 29400  # of rail 0; a rank that hangs on one rail is in the way of no other one
_START_SECONDS = 120.0  # until all ranks have met: the import of PyTorch from a slow disk
_SIZE_SECONDS = 20.0  # of each size, beside its measurement: the first all-reduce of a slow rail
_MORE_SECONDS = 30.0  # of a slow API server
_GRACE_SECONDS = 20.0  # after the end of one rank: the others that wait for it tell what they know, or are not awaited

RunCommand = Callable[[str, Sequence[str], float], str]
"""Runs a command in a node's pod for at most some seconds, and returns what it printed; raises RequestFailed."""


class AllReducePlan(NamedTuple):
    """What is measured.

    Attributes:
        sizes: in bytes.
        seconds: how long each size is measured.
    """

    sizes: tuple[int, ...]
    seconds: float

    @property
    def measure_seconds(self) -> float:
        """The longest time from the meeting of all ranks to their end."""
        return len(self.sizes) * (2 * self.seconds + _SIZE_SECONDS)


class _RankPlace(NamedTuple):
    node: str
    rail: PodRail


def all_reduces(
    rails: Sequence[int],
    rails_of: Mapping[str, Sequence[PodRail]],
    sound: set[tuple[int, str]],
    plan: AllReducePlan,
    run_in: RunCommand,
    say: Callable[[str], None],
) -> Iterator[RailAllReduce]:
    """Yield the all-reduce over each rail, one after the other.

    Args:
        rails: the numbers of the rails.
        rails_of: the rails of the pods, by node.
        sound: the ports, by rail and node, that have reached another one of their own rail.
        plan: what is measured.
        run_in: runs a command in a node's pod.
        say: is told the progress.
    """
    for rail in rails:
        has_rail = [
            _RankPlace(node, pod_rail)
            for node, pod_rails in sorted(rails_of.items())
            for pod_rail in pod_rails
            if pod_rail.rail == rail and pod_rail.address
        ]
        ranks = [rank for rank in has_rail if (rail, rank.node) in sound]
        left_out = tuple(rank.node for rank in has_rail if rank not in ranks)
        versions = {":" in rank.rail.address for rank in ranks}
        if len(ranks) < 2:  # noqa: PLR2004 - an all-reduce of one rank sends nothing
            yield RailAllReduce(rail, untried="fewer than two pods have this rail, and a sound pair", left_out=left_out)
        elif len(versions) > 1:
            yield RailAllReduce(rail, untried="its addresses are of different versions of IP", left_out=left_out)
        else:
            say(f"all-reduce over rail {rail}: {len(ranks)} nodes")
            began = time.monotonic()
            results = _together(ranks, rail, plan, run_in)
            yield RailAllReduce(rail, results, "", left_out, time.monotonic() - began)


def _together(ranks: Sequence[_RankPlace], rail: int, plan: AllReducePlan, run_in: RunCommand) -> tuple[NodeRank, ...]:
    """Run all ranks of a rail, and return what they have found. After one has failed, the others are awaited a little longer and no more."""
    done: SimpleQueue[tuple[int, RankResult]] = SimpleQueue()
    address = ranks[0].rail.address
    meet = f"[{address}]:{_PORT + rail}" if ":" in address else f"{address}:{_PORT + rail}"
    whole = _START_SECONDS + plan.measure_seconds + _MORE_SECONDS

    def run_rank(number: int) -> None:
        rank = ranks[number]
        limits = (_START_SECONDS, plan.measure_seconds)
        command = all_reduce_command((number, len(ranks)), meet, rank.rail.netdev, plan.sizes, plan.seconds, limits)
        done.put((number, _result(lambda: run_in(rank.node, command, whole), plan.sizes)))

    for number, _ in enumerate(ranks):  # daemons: Ctrl-C does not wait for them
        Thread(target=run_rank, args=(number,), daemon=True).start()
    results: dict[int, RankResult] = {}
    end = time.monotonic() + whole + _MORE_SECONDS
    while len(results) < len(ranks):
        try:
            number, result = done.get(timeout=max(0.0, end - time.monotonic()))
        except Empty:
            break
        results[number] = result
        if result.end is not RankEnd.DONE:
            end = min(end, time.monotonic() + _GRACE_SECONDS)
    unanswered = RankResult(RankEnd.UNANSWERED)
    return tuple(
        NodeRank(rank.node, rank.rail.netdev, results.get(number, unanswered)) for number, rank in enumerate(ranks)
    )


def _result(run: Callable[[], str], sizes: Sequence[int]) -> RankResult:
    """Return what a rank has found. A command that has failed is the rank's; one that was not run to its end says nothing of the rank."""
    try:
        return parse_rank(run(), sizes)
    except ValueError as error:
        return RankResult(RankEnd.LOST, str(error))
    except RequestFailed as error:
        was_run = not error.status and not isinstance(error, NoAnswer)
        return RankResult(RankEnd.LOST if was_run else RankEnd.OUT_OF_REACH, str(error))
    except Exception as error:  # noqa: BLE001 - the rail waits for an answer of each thread
        return RankResult(RankEnd.OUT_OF_REACH, f"{type(error).__name__}: {error}")


def without_taken_pods(
    reduced: Sequence[RailAllReduce], targets: Sequence[Target], listed: Callable[[], Sequence[JsonObject]]
) -> tuple[RailAllReduce, ...]:
    """Return the all-reduces; those without a result that have lost a pod to a job say nothing but why, and so do those of unknown end.

    `listed` returns the pods of the run as they are now; it is called if there is an all-reduce without a result, and may raise RequestFailed.
    """
    if all(all_reduce.is_done or not all_reduce.ranks for all_reduce in reduced):
        return tuple(reduced)
    try:
        pods = {probe_pod["metadata"]["name"]: probe_pod for probe_pod in listed()}
        gone = {
            target.node: f"pod {target.pod} on {target.node} {words} before the all-reduce was over"
            for target in targets
            if (words := taken_away(pods.get(target.pod)))
        }
    except RequestFailed as error:
        gone = {target.node: f"whether its pods were there until the end is not known: {error}" for target in targets}
    return tuple(without_nodes(all_reduce, gone) for all_reduce in reduced)


def runner(execution: RunsCommands, pod_of: Callable[[str], ApiObject]) -> RunCommand:
    """Return what runs commands in the pods of nodes."""
    return lambda node, command, seconds: execution.run(pod_of(node), CONTAINER, command, seconds)

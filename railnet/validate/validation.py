"""One run: pods on the nodes, the rounds of measurements, the all-reduce, and nothing left behind."""

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue
from threading import BoundedSemaphore, Thread
from typing import NamedTuple

from railnet.apiserver.client import ApiServer, RequestFailed
from railnet.apiserver.request import ApiObject, Collection
from railnet.validate.all_reduce import program
from railnet.validate.all_reduce.judgement import judge_all_reduces, untested_all_reduces
from railnet.validate.all_reduce.rail_all_reduce import RailAllReduce, sizes_of
from railnet.validate.all_reduce.run import AllReducePlan, all_reduces, runner, without_taken_pods
from railnet.validate.failure import ValidateFailed
from railnet.validate.findings.baseline import Earlier, uncompared
from railnet.validate.findings.judgement import RailLimits, judge
from railnet.validate.findings.rail_reach import (
    ReachTry,
    judge_reach,
    parse_try,
    plan_tries,
    sound_places,
    without_places,
)
from railnet.validate.findings.speed_judgement import port_rates, strictly, together
from railnet.validate.idle.job_arrivals import JobArrivals
from railnet.validate.mode import Mode
from railnet.validate.node_try import NodeTry
from railnet.validate.pair_plan import Pair, Round, plan, untested
from railnet.validate.probe import rail_probe
from railnet.validate.probe.measured import Measured, parse, without_failures, without_nodes
from railnet.validate.probe.probe_objects import (
    ALL_REDUCE_FILE,
    CONTAINER,
    PROBE_FILE,
    Run,
    Target,
    choose,
    measurement,
    parts,
    reach_command,
)
from railnet.validate.probe.probe_pod_state import PodRail
from railnet.validate.probe.probe_pods import ProbePods, RunsCommands
from railnet.validate.reports.report import Report, untried_tools
from railnet.validate.reports.run_description import RunDescription

LOOK_SECONDS = 1.0
_AT_ONCE = 64  # commands in pods; each is a connection of its own to the API server
# Of one measurement, beside its bandwidths: the search for the MTU, three tools for RDMA that hang (rail_probe), and a slow API server.
_MORE_SECONDS = 150.0
_GPU_MEMORY, _MEMORY = "8Gi", "2Gi"  # of a rank: PyTorch with gloo has 300 MiB, with CUDA some GiB


class AllReduce(NamedTuple):
    """The all-reduce that the user asks for.

    Attributes:
        image: with PyTorch.
        gpu: the resource of GPUs, of which each pod requests one; empty for none.
    """

    image: str
    gpu: str = ""


class WantedTests(NamedTuple):
    """The tests that the user asks for.

    Attributes:
        nodes: the names of the nodes; empty for all that have the resource.
        selector: a selector of the nodes' labels; empty for all.
        most: at most so many nodes; None for all.
        rails: VFs of each pod; None for as many as each node's label says.
        seconds: how long each bandwidth is measured.
        start_seconds: how long pods may take to start.
        seed: of the random pairs of a large rail.
        mode: how thorough the tests are.
        earlier: the run to compare with; None for none.
        all_reduce: None for none.
    """

    nodes: frozenset[str]
    selector: str
    most: int | None
    rails: int | None
    seconds: float
    start_seconds: float
    seed: int
    limits: RailLimits
    mode: Mode = Mode.FULL
    earlier: Earlier | None = None
    all_reduce: AllReduce | None = None


def validated(
    api: ApiServer, execution: RunsCommands, run: Run, wanted: WantedTests, say: Callable[[str], None]
) -> Report | None:
    """Measure, and take everything back, as `Validation.report`; there is always a report.

    Raises:
        ValidateFailed, RequestFailed: as there.
    """
    return Validation(api, execution, run, wanted, say).report()


class Validation:
    """One run."""

    def __init__(  # noqa: PLR0913 - what a run is made of
        self,
        api: ApiServer,
        execution: RunsCommands,
        run: Run,
        wanted: WantedTests,
        say: Callable[[str], None],
        look_seconds: float = LOOK_SECONDS,
        *,
        jobs: JobArrivals | None = None,
    ) -> None:
        """Prepare a run; `say` is told its progress. With `jobs`, the run ends when a job comes."""
        self._exec, self._run, self._wanted, self._say = execution, run, wanted, say
        self._jobs = jobs
        self._pods = ProbePods(api, run, say, look_seconds, self._check)
        self._targets: tuple[Target, ...] = ()
        self._untested: list[str] = []
        self._unstarted: Mapping[str, str] = {}
        self._deleted = frozenset[str]()

    def report(self) -> Report:
        """Measure, and take everything back.

        Raises:
            ValidateFailed: there is nothing to measure.
            RequestFailed: the API server refuses what a run needs.
            JobComes: a job has come, and the run gives way to jobs.
        """
        started, began = datetime.now(UTC), time.monotonic()
        chosen = choose(
            self._pods.listed(Collection("v1", "nodes", labels=self._wanted.selector), parts),
            self._run,
            self._wanted.nodes,
            self._wanted.rails,
            self._wanted.most,
        )
        self._untested = [f"node {node}: {why}" for node, why in chosen.left_out.items()]
        if len(chosen.targets) < 2:  # noqa: PLR2004 - a pair
            raise ValidateFailed(
                "; ".join([f"a rail needs two nodes, and {len(chosen.targets)} can be tested", *self._untested])
            )
        self._targets = chosen.targets
        with self._pods.taken_back():
            rails_of = self._started()
            measured = self._measured(rails_of)
            outcomes = self._tries(rails_of, measured)
            gone, unseen = self._gone(rails_of)
            measured = without_failures(measured, unseen) if unseen else without_nodes(measured, gone)
            reduced = self._all_reduces(measured)
        about = RunDescription(
            started.isoformat(timespec="seconds"),
            time.monotonic() - began,
            namespace=self._run.namespace,
            image=self._run.image,
            measured_seconds=self._wanted.seconds,
            baseline="" if self._wanted.earlier is None else self._wanted.earlier.words,
            all_reduce_image="" if self._wanted.all_reduce is None else self._wanted.all_reduce.image,
        )
        rails_seen = sorted({measurement.pair.rail for measurement in measured})
        reach = judge_reach(rails_seen, without_places(outcomes, dict.fromkeys(rails_of, unseen) if unseen else gone))
        tries = tuple(
            NodeTry(target.node, target.rails, self._unstarted.get(target.node, ""), gone.get(target.node, ""))
            for target in self._targets
        )
        judged = self._judged(rails_of, measured, reduced)
        return judged._replace(about=about, reach=reach, all_reduces=reduced, tries=tries)

    def _judged(
        self,
        rails_of: Mapping[str, tuple[PodRail, ...]],
        measured: Sequence[Measured],
        reduced: Sequence[RailAllReduce],
    ) -> Report:
        mtus = {(rail.rail, node): rail.mtu for node, pod_rails in rails_of.items() for rail in pod_rails}
        self._untested += [
            f"rail {measured_pair.pair.rail} between {measured_pair.pair.server} and {measured_pair.pair.client}: {measured_pair.untried}"
            for measured_pair in measured
            if measured_pair.untried
        ]
        limits, mode = self._wanted.limits, self._wanted.mode
        expected = "GPUDirect" if self._run.gpu else "RDMA" if limits.of_rdma or mode.needs_rdma else ""
        if expected:
            self._untested += [f"{expected}: {tools}" for tools in untried_tools(measured)]
        self._untested += untested_all_reduces(
            reduced, wants_gpu=bool(self._wanted.all_reduce and self._wanted.all_reduce.gpu)
        )
        judgement = together(
            (
                judge(measured, mtus, limits, self._wanted.earlier),
                judge_all_reduces(reduced, limits.least_busbw_gbits, self._wanted.earlier, port_rates(measured)),
            )
        )
        if not mode.permits_warnings:
            judgement = strictly(judgement)
        return Report(
            dict(rails_of),
            tuple(measured),
            judgement.findings,
            tuple(self._untested),
            limits,
            bool(self._run.gpu),
            judgement.warnings,
            judgement.unjudged,
            mode,
            () if self._wanted.earlier is None else tuple(uncompared(measured, self._wanted.earlier)),
        )

    def _check(self) -> None:
        if self._jobs is not None:
            self._jobs.check()

    def _started(self) -> dict[str, tuple[PodRail, ...]]:
        """Create the pods, and return the rails of those that run."""
        programs = {PROBE_FILE: _source(rail_probe.__file__)}
        if self._wanted.all_reduce is not None:
            programs[ALL_REDUCE_FILE] = _source(program.__file__)
        self._pods.create(self._targets, programs)
        started = self._pods.started(self._targets, self._wanted.start_seconds)
        self._untested += started.untested
        self._unstarted, self._deleted = started.unstarted, started.deleted
        return started.rails_of

    def _all_reduces(self, measured: Sequence[Measured]) -> tuple[RailAllReduce, ...]:
        """Have an all-reduce over each rail, in pods of their own with the image of the user: the first ones have the VFs until they end."""
        wanted = self._wanted.all_reduce
        if wanted is None:
            return ()
        sound = sound_places(measured)
        numbers = sorted({measurement.pair.rail for measurement in measured})
        with_sound_rail = {node for _, node in sound}
        targets = [
            target._replace(pod=f"{target.pod}-all-reduce")
            for target in self._targets
            if target.node in with_sound_rail
        ]
        if not targets:
            return tuple(RailAllReduce(rail, untried="no pair of any rail is sound") for rail in numbers)
        memory = _GPU_MEMORY if wanted.gpu else _MEMORY
        try:
            self._pods.end_pods()
            self._pods.create(targets, {}, self._run._replace(image=wanted.image, gpu=wanted.gpu, memory=memory))
            started = self._pods.started(targets, self._wanted.start_seconds)
        except RequestFailed as error:  # such as a quota of GPUs; what was measured is as good without it
            return tuple(RailAllReduce(rail, untried=f"its pods were not created: {error}") for rail in numbers)
        self._untested += [f"all-reduce on {why}" for why in started.untested]
        pods = {target.node: self._run.pod(target.pod) for target in targets}
        plan_of_sizes = AllReducePlan(sizes_of(self._wanted.mode), self._wanted.seconds)
        run_in = runner(self._exec, pods.__getitem__)
        reduced = tuple(all_reduces(numbers, started.rails_of, sound, plan_of_sizes, run_in, self._say))
        return without_taken_pods(reduced, targets, lambda: self._pods.listed(self._run.pods))

    def _measured(self, rails_of: Mapping[str, tuple[PodRail, ...]]) -> list[Measured]:
        usable = self._usable(rails_of)
        rounds = plan(usable, self._wanted.seed, ring_only=self._wanted.mode.ring_only)
        self._untested += [f"rail {rail}: no other node than {node} has it" for rail, node in untested(usable)]
        measured_pairs: list[Measured] = []
        for number, round_ in enumerate(rounds, 1):
            self._check()
            self._say(f"round {number} of {len(rounds)}: {len(round_)} pairs")
            measured_pairs += self._round(
                round_, {(rail.rail, node): rail for node in usable for rail in rails_of[node]}
            )
        return measured_pairs

    def _usable(self, rails_of: Mapping[str, tuple[PodRail, ...]]) -> dict[str, list[int]]:
        """Return the numbers of the rails with an address, by node; say of the others why they are not tested."""
        asked = {target.node: target.rails for target in self._targets}
        for node, pod_rails in sorted(rails_of.items()):
            self._untested += [
                f"rail {rail.rail} of node {node}: {rail.netdev} has no address"
                for rail in pod_rails
                if not rail.address
            ]
            if len(pod_rails) < asked[node]:
                self._untested.append(
                    f"node {node}: {asked[node]} VFs were given, and they are on {len(pod_rails)} rails alone"
                )
        return {node: [rail.rail for rail in pod_rails if rail.address] for node, pod_rails in rails_of.items()}

    def _round(self, pairs: Round, place: Mapping[tuple[int, str], PodRail]) -> list[Measured]:
        """Measure the pairs of a round at the same time; the round ends with its last pair."""
        done: SimpleQueue[Measured] = SimpleQueue()
        room = BoundedSemaphore(_AT_ONCE)

        def measure(pair: Pair) -> None:
            with room:
                began = time.monotonic()
                measured = self._one(pair, place)
                done.put(measured._replace(seconds=time.monotonic() - began))

        for pair in pairs:  # daemons: Ctrl-C does not wait for them
            Thread(target=measure, args=(pair,), daemon=True).start()
        return sorted(done.get() for _ in pairs)

    def _one(self, pair: Pair, place: Mapping[tuple[int, str], PodRail]) -> Measured:
        client, server = place[pair.rail, pair.client], place[pair.rail, pair.server]
        if (":" in client.address) != (":" in server.address):
            return Measured(pair, untried=f"{client.address} and {server.address} are of different versions of IP")
        seconds = self._wanted.seconds
        command = measurement(
            client.netdev,
            client.address,
            server.address,
            seconds,
            rdma=self._wanted.mode.tries_rdma,
            gpu=bool(self._run.gpu),
        )
        try:
            output = self._exec.run(self._pod(pair.client), CONTAINER, command, 2 * seconds + _MORE_SECONDS)
            return parse(pair, output)
        except (RequestFailed, ValueError) as error:
            return Measured(pair, untried=str(error))
        except Exception as error:  # noqa: BLE001 - the round waits for an answer of each thread
            return Measured(pair, untried=f"{type(error).__name__}: {error}")

    def _gone(self, rails_of: Mapping[str, object]) -> tuple[dict[str, str], str]:
        """Return the nodes of which nothing is known, with the reason; and why that could not be found out, empty if it was.

        Their pods have ended or are being deleted, or a job has come beside them.

        Raises:
            RequestFailed: it could not be found out, and the run gives way to jobs: what a job has disturbed would be a node's fault.
        """
        try:
            serving = self._pods.serving()
        except RequestFailed as error:  # what was measured is not lost for it
            if self._jobs is not None:
                raise
            unseen = f"whether all pods were there until the end: {error}"
            self._untested.append(unseen)
            return {}, f"not known {unseen}"
        gone = {
            target.node: f"pod {target.pod} on {target.node} was deleted or has ended before the run was over"
            for target in self._targets
            if target.pod not in serving and (target.node in rails_of or target.node in self._deleted)
        }
        return gone if self._jobs is None else self._jobs.taken() | gone, ""

    def _tries(
        self, rails_of: Mapping[str, tuple[PodRail, ...]], measured: Sequence[Measured]
    ) -> dict[ReachTry, tuple[bool | None, str]]:
        """Try which rails reach each other."""
        numbers = sorted({measurement.pair.rail for measurement in measured})
        place = {(rail.rail, node): rail for node, pod_rails in rails_of.items() for rail in pod_rails}
        tries = plan_tries(numbers, sound_places(measured))
        if tries:
            self._say(f"which rails reach each other: {len(tries)} tries")
        done: SimpleQueue[tuple[ReachTry, tuple[bool | None, str]]] = SimpleQueue()
        room = BoundedSemaphore(_AT_ONCE)

        def attempt(reach_try: ReachTry) -> None:
            with room:
                done.put((reach_try, self._tried(reach_try, place)))

        for reach_try in tries:
            Thread(target=attempt, args=(reach_try,), daemon=True).start()
        outcomes = dict(done.get() for _ in tries)
        return {reach_try: outcomes[reach_try] for reach_try in tries}

    def _tried(self, reach_try: ReachTry, place: Mapping[tuple[int, str], PodRail]) -> tuple[bool | None, str]:
        client, server = place[reach_try.rail, reach_try.client], place[reach_try.other, reach_try.server]
        if (":" in client.address) != (":" in server.address):
            return None, f"{client.address} and {server.address} are of different versions of IP"
        command = reach_command(client.netdev, client.address, server.address)
        try:
            return parse_try(self._exec.run(self._pod(reach_try.client), CONTAINER, command, _MORE_SECONDS))
        except (RequestFailed, ValueError) as error:
            return None, str(error)
        except Exception as error:  # noqa: BLE001 - the run waits for an answer of each thread
            return None, f"{type(error).__name__}: {error}"

    def _pod(self, node: str) -> ApiObject:
        return self._run.pod(next(target.pod for target in self._targets if target.node == node))


def _source(file: str) -> str:
    return Path(file).read_text(encoding="utf-8")

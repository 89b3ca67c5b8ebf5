"""One run: pods on the nodes, the rounds of measurements, and nothing left behind.

The owner comes first and is deleted first; the pods are deleted beside it, so that a cluster keeps none, either, while its garbage
collector stands still.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from queue import SimpleQueue
from threading import BoundedSemaphore, Thread
from typing import NamedTuple, Protocol

from railnet.apiserver.client import Absent, ApiServer, Conflict, RequestFailed
from railnet.apiserver.object_watch import pages
from railnet.apiserver.request import ApiObject, Collection, JsonObject, create, delete
from railnet.objects.metadata_times import is_deleted
from railnet.validate import rail_probe
from railnet.validate.baseline import Earlier, uncompared
from railnet.validate.failure import ValidateFailed
from railnet.validate.judgement import RailLimits, judge
from railnet.validate.measured import Measured, parse
from railnet.validate.mode import Mode
from railnet.validate.pair_plan import Pair, Round, plan, untested
from railnet.validate.probe_objects import CONTAINER, LABEL, Run, Target, choose, measurement, owner, pod, reach_command
from railnet.validate.probe_pod_state import PodRail, rails, runs, waits_for
from railnet.validate.rail_reach import RailReach, ReachTry, judge_reach, parse_try, plan_tries, sound_places
from railnet.validate.report import Report, RunDescription, untried_tools
from railnet.validate.speed_judgement import strictly

_LOOK_SECONDS = 1.0
_PROGRESS_SECONDS = 5.0
# A busy kubelet reported a pod's end more than a minute late: what it misses, it finds when it synchronises the pod anew, after a minute and
# a half at the latest (pkg/kubelet/pod_workers.go, workerResyncIntervalJitterFactor).
_GONE_SECONDS = 150.0
_AT_ONCE = 64  # commands in pods; each is a connection of its own to the API server
# Of one measurement, beside its bandwidths: the search for the MTU, three tools for RDMA that hang (rail_probe), and a slow API server.
_MORE_SECONDS = 150.0


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


class RunsCommands(Protocol):
    """Runs a command in a pod; as `railnet.apiserver.pod_exec.PodExec`."""

    def run(self, pod: ApiObject, container: str, command: Sequence[str], seconds: float) -> str:
        """Run a command, and return what it wrote to standard output."""


class Validation:
    """One run."""

    def __init__(
        self,
        api: ApiServer,
        execution: RunsCommands,
        run: Run,
        wanted: WantedTests,
        say: Callable[[str], None],
        look_seconds: float = _LOOK_SECONDS,
    ) -> None:
        """Prepare a run; `say` is told its progress."""
        self._api, self._exec, self._run, self._wanted, self._say = api, execution, run, wanted, say
        self._look_seconds = look_seconds
        self._targets: tuple[Target, ...] = ()
        self._untested: list[str] = []

    def report(self) -> Report:
        """Measure, and take everything back.

        Raises:
            ValidateFailed: there is nothing to measure.
            RequestFailed: the API server refuses what a run needs.
        """
        started, began = datetime.now(UTC), time.monotonic()
        chosen = choose(
            self._listed(Collection("v1", "nodes", labels=self._wanted.selector)),
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
        with self._taken_back():
            self._create()
            rails_of = self._started()
            measured = self._measured(rails_of)
            reach = self._reach(rails_of, measured)
        about = RunDescription(
            started.isoformat(timespec="seconds"),
            time.monotonic() - began,
            namespace=self._run.namespace,
            image=self._run.image,
            measured_seconds=self._wanted.seconds,
            baseline="" if self._wanted.earlier is None else self._wanted.earlier.words,
        )
        return self._judged(rails_of, measured)._replace(about=about, reach=reach)

    def _judged(self, rails_of: Mapping[str, tuple[PodRail, ...]], measured: Sequence[Measured]) -> Report:
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
        judgement = judge(measured, mtus, limits, self._wanted.earlier)
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

    def _create(self) -> None:
        run = self._run
        self._say(f"creating {len(self._targets)} pods in namespace {run.namespace}, label {LABEL}={run.name}")
        probe = Path(rail_probe.__file__).read_text(encoding="utf-8")
        try:
            uid = self._api.send(create(run.owner, owner(run, probe)))["metadata"]["uid"]
        except Conflict:  # of an earlier try, of which the answer was lost: the name is this run's alone
            uid = self._listed(run.owners)[0]["metadata"]["uid"]
        for target in self._targets:
            with suppress(Conflict):
                self._api.send(create(run.pod(target.pod), pod(run, target, uid)))

    def _started(self) -> dict[str, tuple[PodRail, ...]]:
        """Wait until the pods run and have their rails; return the rails of those that do."""
        end, told = time.monotonic() + self._wanted.start_seconds, time.monotonic()
        while True:
            pods = {probe_pod["metadata"]["name"]: probe_pod for probe_pod in self._listed(self._run.pods)}
            ready = {
                target.node: rails(pods[target.pod])
                for target in self._targets
                if target.pod in pods and runs(pods[target.pod])
            }
            ready = {node: pod_rails for node, pod_rails in ready.items() if pod_rails}
            if len(ready) == len(self._targets):
                break
            if time.monotonic() > end:
                self._untested += self._waiting(pods, ready)
                break
            if time.monotonic() - told > _PROGRESS_SECONDS:
                told = time.monotonic()
                self._say(f"{len(ready)} of {len(self._targets)} pods run")
            time.sleep(self._look_seconds)
        self._say(f"{len(ready)} of {len(self._targets)} pods run and have their rails")
        return ready

    def _waiting(self, pods: Mapping[str, JsonObject], ready: Mapping[str, object]) -> Iterator[str]:
        events = self._events()
        for target in self._targets:
            if target.node not in ready:
                probe_pod = pods.get(target.pod)
                why = "it was deleted by something else" if probe_pod is None else waits_for(probe_pod, events)
                yield f"node {target.node}: pod {target.pod} has not started in {self._wanted.start_seconds:g} s: {why}"

    def _events(self) -> list[JsonObject]:
        """Return the namespace's warnings about pods; none if the user may not read them."""
        try:
            return self._listed(
                Collection("v1", "events", self._run.namespace, fields="type=Warning,involvedObject.kind=Pod")
            )
        except RequestFailed as error:
            if error.status == HTTPStatus.FORBIDDEN:
                return []
            raise

    def _measured(self, rails_of: Mapping[str, tuple[PodRail, ...]]) -> list[Measured]:
        usable = self._usable(rails_of)
        rounds = plan(usable, self._wanted.seed, ring_only=self._wanted.mode.ring_only)
        self._untested += [f"rail {rail}: no other node than {node} has it" for rail, node in untested(usable)]
        measured_pairs: list[Measured] = []
        for number, round_ in enumerate(rounds, 1):
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

    def _reach(
        self, rails_of: Mapping[str, tuple[PodRail, ...]], measured: Sequence[Measured]
    ) -> tuple[RailReach, ...]:
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
        return judge_reach(numbers, {reach_try: outcomes[reach_try] for reach_try in tries})

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

    @contextmanager
    def _taken_back(self) -> Iterator[None]:
        try:
            yield
        finally:
            self._take_back()

    def _take_back(self) -> None:
        """Delete all objects of the run, and wait until they are gone. Say if objects are left, also if Ctrl-C ends this."""
        self._say("deleting the pods")
        gone = False
        try:
            gone = self._deleted()
        except RequestFailed as error:
            self._say(str(error))
        finally:
            if not gone:
                run = self._run
                self._say(
                    f"objects of this run are left; kubectl -n {run.namespace} delete configmap,pod -l {LABEL}={run.name}"
                )

    def _deleted(self) -> bool:
        """Return whether two looks, one after the other, have found nothing: a creation may have been on its way."""
        end, empty = time.monotonic() + _GONE_SECONDS, 0
        while time.monotonic() < end:
            objects = [
                (ApiObject("v1", "configmaps", config_map["metadata"]["name"], self._run.namespace), config_map)
                for config_map in self._listed(self._run.owners)
            ]
            objects += [
                (self._run.pod(probe_pod["metadata"]["name"]), probe_pod) for probe_pod in self._listed(self._run.pods)
            ]
            for place, document in objects:
                if not is_deleted(document["metadata"]):
                    with suppress(Absent, Conflict):
                        self._api.send(delete(place, document["metadata"]["uid"]))
            empty = 0 if objects else empty + 1
            if empty > 1:
                return True
            time.sleep(self._look_seconds)
        return False

    def _listed(self, about: Collection) -> list[JsonObject]:
        return [document for page in pages(self._api, about) for document in page.found]

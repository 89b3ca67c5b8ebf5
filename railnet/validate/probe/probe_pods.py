"""The pods of one run in the cluster: they are created, awaited, and taken back.

The owner comes first and is deleted first; the pods are deleted beside it, so that a cluster keeps none, either, while its garbage
collector stands still.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import NamedTuple, Protocol

from railnet.apiserver.client import Absent, ApiServer, Conflict, RequestFailed
from railnet.apiserver.object_watch import pages
from railnet.apiserver.request import ApiObject, Collection, JsonObject, create, delete
from railnet.objects.metadata_times import is_deleted
from railnet.validate.probe.probe_objects import LABEL, Run, Target, owner, pod
from railnet.validate.probe.probe_pod_state import PodRail, has_ended, rails, runs, waits_for

_PROGRESS_SECONDS = 5.0
# A busy kubelet reported a pod's end more than a minute late: what it misses, it finds when it synchronises the pod anew, after a minute and
# a half at the latest (pkg/kubelet/pod_workers.go, workerResyncIntervalJitterFactor).
_GONE_SECONDS = 150.0


class RunsCommands(Protocol):
    """Runs a command in a pod; as `railnet.apiserver.pod_exec.PodExec`."""

    def run(self, pod: ApiObject, container: str, command: Sequence[str], seconds: float) -> str:
        """Run a command, and return what it wrote to standard output."""


class StartedPods(NamedTuple):
    """The rails of the pods that run, by node, why the others do not, and the nodes of those that something else has deleted."""

    rails_of: dict[str, tuple[PodRail, ...]]
    unstarted: dict[str, str]
    deleted: frozenset[str]

    @property
    def untested(self) -> tuple[str, ...]:
        """What is said of the nodes whose pods do not run."""
        return tuple(f"node {node}: {why}" for node, why in self.unstarted.items())


class ProbePods:
    """The objects of one run."""

    def __init__(
        self,
        api: ApiServer,
        run: Run,
        say: Callable[[str], None],
        look_seconds: float,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Name the run; `say` is told its progress. `check` is called while pods are awaited, and may raise an error, which ends the wait."""
        self._api, self._run, self._say, self._look_seconds = api, run, say, look_seconds
        self._check = check
        self._owner_uid = ""

    def listed(
        self, about: Collection, kept: Callable[[JsonObject], JsonObject] = lambda document: document
    ) -> list[JsonObject]:
        """Return all objects of a collection; `kept` returns what is kept of each."""
        return [kept(document) for page in pages(self._api, about) for document in page.found]

    def serving(self) -> frozenset[str]:
        """Return the names of the pods that run and are not being deleted."""
        return frozenset(
            probe_pod["metadata"]["name"]
            for probe_pod in self.listed(self._run.pods)
            if runs(probe_pod) and not is_deleted(probe_pod["metadata"])
        )

    def create(self, targets: Sequence[Target], programs: Mapping[str, str], run: Run | None = None) -> None:
        """Create a pod on each node, and before the first ones their owner, with the programs by file.

        Args:
            targets: the nodes and the pods.
            programs: the source of each program by its file's name.
            run: the run with another image for these pods; None for no other one.
        """
        this = self._run if run is None else run
        self._say(f"creating {len(targets)} pods in namespace {this.namespace}, label {LABEL}={this.name}")
        if not self._owner_uid:
            self._owner_uid = self._created_owner(programs)
        for target in targets:
            with suppress(Conflict):
                self._api.send(create(this.pod(target.pod), pod(this, target, self._owner_uid)))

    def _created_owner(self, programs: Mapping[str, str]) -> str:
        run = self._run
        try:
            return str(self._api.send(create(run.owner, owner(run, programs)))["metadata"]["uid"])
        except Conflict:  # of an earlier try, of which the answer was lost: the name is this run's alone
            return str(self.listed(run.owners)[0]["metadata"]["uid"])

    def started(self, targets: Sequence[Target], seconds: float) -> StartedPods:
        """Wait until the pods run and have their rails, or have ended; no longer than some seconds."""
        end, told = time.monotonic() + seconds, time.monotonic()
        unstarted: dict[str, str] = {}
        while True:
            pods = {probe_pod["metadata"]["name"]: probe_pod for probe_pod in self.listed(self._run.pods)}
            ready = {
                target.node: rails(pods[target.pod])
                for target in targets
                if target.pod in pods and runs(pods[target.pod])
            }
            ready = {node: pod_rails for node, pod_rails in ready.items() if pod_rails}
            # `create` has made all of them: one that is not there was deleted, such as by a job that preempts it.
            ended = [target for target in targets if target.pod not in pods or has_ended(pods[target.pod])]
            if len(ready) == len(targets):
                break
            if time.monotonic() > end or len(ready) + len(ended) == len(targets):
                unstarted = dict(self._waiting(targets, pods, ready, seconds))
                break
            if time.monotonic() - told > _PROGRESS_SECONDS:
                told = time.monotonic()
                self._check()
                self._say(f"{len(ready)} of {len(targets)} pods run")
            time.sleep(self._look_seconds)
        self._say(f"{len(ready)} of {len(targets)} pods run and have their rails")
        deleted = frozenset(target.node for target in targets if target.pod not in pods)
        return StartedPods(ready, unstarted, deleted)

    def _waiting(
        self, targets: Sequence[Target], pods: Mapping[str, JsonObject], ready: Mapping[str, object], seconds: float
    ) -> Iterator[tuple[str, str]]:
        events = self._events()
        for target in targets:
            if target.node not in ready:
                probe_pod = pods.get(target.pod)
                why = "it was deleted by something else" if probe_pod is None else waits_for(probe_pod, events)
                has_failed = probe_pod is None or has_ended(probe_pod)
                how = "has ended" if has_failed else f"has not started in {seconds:g} s"
                yield target.node, f"pod {target.pod} {how}: {why}"

    def _events(self) -> list[JsonObject]:
        """Return the namespace's warnings about pods; none if the user may not read them."""
        try:
            return self.listed(
                Collection("v1", "events", self._run.namespace, fields="type=Warning,involvedObject.kind=Pod")
            )
        except RequestFailed as error:
            if error.status == HTTPStatus.FORBIDDEN:
                return []
            raise

    def end_pods(self) -> None:
        """Delete the pods, whose devices others need, and wait until they are gone; their owner stays."""
        self._say("deleting the pods")
        if not self._deleted(owners=False):
            self._say("pods of this run are still there; the next ones wait for their VFs")

    @contextmanager
    def taken_back(self) -> Iterator[None]:
        """Take all back when the block ends, and after an error."""
        try:
            yield
        finally:
            self._take_back()

    def _take_back(self) -> None:
        """Delete all objects of the run, and wait until they are gone. Say if objects are left, also if Ctrl-C ends this."""
        self._say("deleting the pods")
        gone = False
        try:
            gone = self._deleted(owners=True)
        except RequestFailed as error:
            self._say(str(error))
        finally:
            if not gone:
                run = self._run
                self._say(
                    f"objects of this run are left; kubectl -n {run.namespace} delete configmap,pod -l {LABEL}={run.name}"
                )

    def _deleted(self, *, owners: bool) -> bool:
        """Return whether two looks, one after the other, have found nothing: a creation may have been on its way."""
        end, empty = time.monotonic() + _GONE_SECONDS, 0
        while time.monotonic() < end:
            objects = [
                (ApiObject("v1", "configmaps", config_map["metadata"]["name"], self._run.namespace), config_map)
                for config_map in (self.listed(self._run.owners) if owners else ())
            ]
            objects += [
                (self._run.pod(probe_pod["metadata"]["name"]), probe_pod) for probe_pod in self.listed(self._run.pods)
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

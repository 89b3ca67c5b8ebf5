"""The well-behaved tenants of a soak: each creates job after job of one kind, has it run for some seconds, and says what became of it."""

import http.client
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from itertools import count
from typing import Any

from railnet.jobs.railnet_labels import HOST_PORT, NET1
from railnet.objects.network_status import ANNOTATION
from railnet.objects.times import moment
from railnet.vf.permitted_networks import ADDRESS_ANNOTATION, STICKY_ANNOTATION
from simnode.chaos.job_pauses import Span
from simnode.chaos.soak_judgement import JobLife
from tests.control_plane.api import Api, JsonObject
from tests.control_plane.gang_cluster import required
from tests.control_plane.gang_jobs import GangJob
from tests.control_plane.host_ports import a_pod, job
from tests.control_plane.server import ApiServer
from tests.railnet.controllers.builders import network_status

NAMESPACES = ("good-gang", "good-names", "good-sticky", "good-ports")
NETWORK, STICKY_NETWORK = "default", "staying"
_LOOK_SECONDS = 0.2
_MOST_SECONDS = 240.0  # a job that has not what it asks for by then never has it
_LONG_SECONDS = 10.0  # half of what is permitted at least (`simnode.chaos.soak_judgement`)
_VFS = {"rdma/ib_vf": "1"}
_CONTAINER: JsonObject = {"name": "main", "image": "train:1"}

Held = dict[str, str]
"""What a job was given, by pod: a node, a name's address, a sticky address or a port. Empty until it has all that it asks for."""


class Tenant:
    """One well-behaved tenant, in a thread of its own."""

    kind = ""
    resource = "/apis/batch/v1", "jobs"
    members = 3
    life_seconds = 4.0

    def __init__(self, server: ApiServer, namespace: str) -> None:
        """Make its namespace."""
        server.namespace(namespace)
        self._server, self.namespace = server, namespace
        self._api: Api = server.api.another()
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        version, resource = self.resource
        self._path = f"{version}/namespaces/{namespace}/{resource}"

    def run(self, ended: threading.Event, beside: threading.Event, take: Callable[[JobLife], None]) -> None:
        """Have one job after the other until `ended` is set; `beside` is set while hostile tenants are there."""
        with closing(self._api):
            for number in count():
                if ended.is_set():
                    return
                take(self._live(f"{self.kind}-{number}", beside.is_set()))

    def body(self, name: str) -> JsonObject:
        """Return the job as its author creates it."""
        raise NotImplementedError

    def held(self, name: str) -> Held:
        """Return what a job has; empty as long as something is missing."""
        raise NotImplementedError

    def disturb(self, name: str) -> None:
        """Do what a job has to bear."""

    def pauses(self, name: str) -> tuple[Span, ...]:
        """Return when Kubernetes did nothing for a job so far, since the node had failed a pod of it: kwok's nodes fail none."""
        return ()

    def _live(self, name: str, beside: bool) -> JobLife:
        began = time.monotonic()
        self._create(name)
        first = self._wait(name)
        waited, pauses = time.monotonic() - began, self.pauses(name)
        told = tuple(self._story(name, time.time() - waited)) if waited > _LONG_SECONDS else ()
        harm = tuple(dict.fromkeys(self._harm(name, first))) if first else tuple(self._state(name))
        self._remove(name)
        return JobLife(self.kind, name, beside, waited if first else None, harm, pauses, told)

    def _create(self, name: str) -> None:
        """Create the job, as often as it takes: an operator tries again, too."""
        began = time.monotonic()
        while time.monotonic() - began < _MOST_SECONDS:
            if self._api.create(self._path, self.body(name)).status in (http.client.CREATED, http.client.CONFLICT):
                return
            time.sleep(_LOOK_SECONDS)

    def _wait(self, name: str) -> Held:
        began = time.monotonic()
        while not (held := self.held(name)) and time.monotonic() - began < _MOST_SECONDS:
            time.sleep(_LOOK_SECONDS)
        return held

    def _harm(self, name: str, first: Held) -> Iterator[str]:
        """Look at a job until its life is over; yield what it lost."""
        self.disturb(name)
        began = time.monotonic()
        held = first
        while time.monotonic() - began < self.life_seconds:
            held = self.held(name)
            yield from (
                f"{pod} had {first[pod]}, and then {what}" for pod, what in held.items() if first.get(pod) != what
            )
            time.sleep(_LOOK_SECONDS)
        held = held or self._wait(name)
        yield from (f"{pod} lost {first[pod]}" for pod in first if pod not in held)

    def _state(self, name: str) -> Iterator[str]:
        """Yield what the API server says of a job that never had what it asks for: the job's status, and that of each pod with its warnings."""
        yield f"status {self._api.get(f'{self._path}/{name}').object.get('status')}"
        events = self._api.items(f"/api/v1/namespaces/{self.namespace}/events")
        for pod in self.pods(name):
            own = pod["metadata"]["name"]
            warnings = [event["message"] for event in events if event["involvedObject"].get("name") == own]
            yield f"{own}, deleted {pod['metadata'].get('deletionTimestamp')}: {pod['status']}; {warnings}"
        yield f"names {self.names()}"

    def _story(self, name: str, began: float) -> Iterator[str]:
        """Yield the events of a job and its pods, and since when each condition of a pod is as it is, in the order of time."""
        pods = self.pods(name)
        conditions = [
            (
                moment(condition["lastTransitionTime"]),
                f"{pod['metadata']['name']}: {condition['type']} {condition['status']}",
            )
            for pod in pods
            for condition in pod["status"].get("conditions") or ()
        ]
        own = {name, *(pod["metadata"]["name"] for pod in pods)}
        events = [
            (
                moment(event.get("eventTime") or event.get("lastTimestamp")),
                f"{event['involvedObject']['name']}: {event['reason']} ({event.get('count', 1)}): {event['message']:.200}",
            )
            for event in self._api.items(f"/api/v1/namespaces/{self.namespace}/events")
            if event["involvedObject"].get("name") in own
        ]
        for at, what in sorted((at or 0.0, what) for at, what in (*conditions, *events)):
            yield f"+{at - began:5.1f} s {what}"

    def _remove(self, name: str) -> None:
        self._api.delete(f"{self._path}/{name}?propagationPolicy=Background")
        began = time.monotonic()
        while self.pods(name) and time.monotonic() - began < _MOST_SECONDS:
            time.sleep(_LOOK_SECONDS)

    def pods(self, name: str) -> list[JsonObject]:
        """Return the pods of a job."""
        return [pod for pod in self._api.items(self._pods) if pod["metadata"]["labels"].get("of") == name]

    def names(self) -> Held:
        """Return the address to which each name in the namespace leads."""
        slices = self._api.items(f"/apis/discovery.k8s.io/v1/namespaces/{self.namespace}/endpointslices")
        return {
            end["hostname"]: end["addresses"][0]
            for one in slices
            for end in one["endpoints"] or ()
            if end.get("hostname")
        }

    def attach(self, pod: JsonObject, address: str, network: str = NETWORK) -> None:
        """Write what the daemon of the pod's node writes; kwok has no daemons."""
        status = network_status(address).replace("railnet/default", f"railnet/{network}")
        patch = {"metadata": {"annotations": {ANNOTATION: status}}}
        self._api.merge(f"{self._pods}/{pod['metadata']['name']}/status", patch)


class GangTenant(Tenant):
    """Has gangs, each in one leaf."""

    kind = "gang"
    members = 4

    def body(self, name: str) -> JsonObject:
        """Return a Job that is one gang."""
        return GangJob(self._server, name, self.members, required(), namespace=self.namespace).body()

    def held(self, name: str) -> Held:
        """Return the node of each pod, when all run."""
        pods = {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in self.pods(name) if runs(pod)}
        return pods if len(pods) == self.members else {}


class NamesTenant(Tenant):
    """Has Jobs whose pods have names on net1."""

    kind = "names"

    def __init__(self, server: ApiServer, namespace: str) -> None:
        """Begin without addresses."""
        super().__init__(server, namespace)
        self._numbers = count(1)

    def body(self, name: str) -> JsonObject:
        """Return an Indexed Job."""
        own = {"completions": self.members, "parallelism": self.members, "completionMode": "Indexed"}
        spec = {"restartPolicy": "Never", "containers": [_CONTAINER]}
        template = {"metadata": {"labels": {NET1: "true", "of": name}}, "spec": spec}
        return {"metadata": {"name": name}, "spec": {**own, "template": template}}

    def held(self, name: str) -> Held:
        """Return the address to which the name of each pod leads."""
        pods = [pod for pod in self.pods(name) if runs(pod)]
        for pod in pods:
            if ANNOTATION not in annotations(pod):
                number = next(self._numbers)
                self.attach(pod, f"10.56.{number // 250 % 250}.{number % 250 + 1}")
        of_job = {pod["metadata"]["name"] for pod in pods}
        held = {pod: address for pod, address in self.names().items() if pod in of_job}
        return held if len(held) == self.members else {}


class StickyTenant(Tenant):
    """Has StatefulSets whose addresses stay; one of the pods is deleted, and made again at once."""

    kind = "sticky"
    resource = "/apis/apps/v1", "statefulsets"

    def body(self, name: str) -> JsonObject:
        """Return a StatefulSet."""
        own = {"replicas": self.members, "podManagementPolicy": "Parallel", "serviceName": name}
        metadata = {"labels": {NET1: "true", "of": name}, "annotations": {STICKY_ANNOTATION: "true"}}
        template = {"metadata": metadata, "spec": {"containers": [_CONTAINER]}}
        spec = {**own, "selector": {"matchLabels": {"of": name}}, "template": template}
        return {"metadata": {"name": name}, "spec": spec}

    def held(self, name: str) -> Held:
        """Return the sticky address of each pod; its name leads there."""
        given = {
            pod["metadata"]["name"]: annotations(pod)[ADDRESS_ANNOTATION]
            for pod in self.pods(name)
            if ADDRESS_ANNOTATION in annotations(pod)
        }
        names = self.names()
        whole = len(given) == self.members and all(
            names.get(pod) == text.partition("/")[0] for pod, text in given.items()
        )
        return given if whole else {}

    def disturb(self, name: str) -> None:
        """Delete a pod."""
        self._api.delete(f"{self._pods}/{name}-1?gracePeriodSeconds=0")


class PortsTenant(Tenant):
    """Has pods of TFJobs in host-network mode. No operator is there: the tenant makes the pods."""

    kind = "ports"

    def pod(self, name: str, labels: JsonObject) -> JsonObject:
        """Return a pod."""
        return a_pod(name, labels=labels)

    def _create(self, name: str) -> None:
        for index in range(self.members):
            pod = self.pod(f"{name}-worker-{index}", {**job(name, index), "of": name})
            began = time.monotonic()
            while self._api.create(self._pods, pod).status not in (http.client.CREATED, http.client.CONFLICT):
                if time.monotonic() - began > _MOST_SECONDS:
                    return
                time.sleep(_LOOK_SECONDS)

    def held(self, name: str) -> Held:
        """Return the port of each pod, when all run."""
        given = {pod["metadata"]["name"]: annotations(pod).get(HOST_PORT, "") for pod in self.pods(name) if runs(pod)}
        return given if len(set(given.values()) - {""}) == self.members else {}

    def _remove(self, name: str) -> None:
        for pod in self.pods(name):
            self._api.delete(f"{self._pods}/{pod['metadata']['name']}?gracePeriodSeconds=0")


def tenants(server: ApiServer) -> list[Tenant]:
    """Return one tenant of each kind."""
    kinds = (GangTenant, NamesTenant, StickyTenant, PortsTenant)
    return [kind(server, namespace) for kind, namespace in zip(kinds, NAMESPACES, strict=True)]


def runs(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod runs, and is not being deleted."""
    return pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")


def annotations(pod: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the annotations of a pod."""
    return pod["metadata"].get("annotations") or {}

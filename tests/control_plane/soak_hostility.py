"""What the hostile tenants of a soak do: each function does one thing of `soak_schedule.HOSTILITIES` in the tenant's namespace.

A refusal is as good as success: what counts is that no other tenant notices.
"""

import json
from collections.abc import Callable, Mapping
from itertools import count

from railnet.jobs.gang.recogniser import PLACEMENT
from railnet.jobs.railnet_labels import NAMES, NET1
from railnet.objects.network_status import ANNOTATION
from railnet.vf.permitted_networks import ADDRESS_ANNOTATION, STICKY_ANNOTATION
from simnode.chaos.soak_schedule import HOSTILITIES, NODE_HOSTILITIES, Hostility
from tests.control_plane.api import JsonObject
from tests.control_plane.gang_cluster import required
from tests.control_plane.gang_jobs import CONSTRAINT, GROUP
from tests.control_plane.host_ports import a_pod, job, with_host_ports
from tests.control_plane.server import ApiServer
from tests.control_plane.soak_jobs import NAMESPACES
from tests.control_plane.soak_node_jobs import renaming_pod
from tests.railnet.controllers.builders import network_status

QUOTA = {"pods": "120", "count/jobs.batch": "60", "requests.rdma/ib_vf": "24"}
"""What an administrator lets one tenant have (SECURITY.md)."""

PORTS = range(20000, 20256)
"""A small range of host ports, so that it can run out."""

_LARGE = 240 << 10
_NOWHERE = {"nodeSelector": {"railnet.example.com/none": "true"}}
_CONTAINER: JsonObject = {"name": "main", "image": "train:1"}
_JOBS = "/apis/batch/v1/namespaces/{}/jobs"


class HostileTenant:
    """One hostile tenant, which may do everything in its namespace. One thread uses it."""

    def __init__(self, server: ApiServer, namespace: str) -> None:
        """Make its namespace, with a quota."""
        server.namespace(namespace)
        quota = {"metadata": {"name": "tenant"}, "spec": {"hard": QUOTA}}
        server.api.create(f"/api/v1/namespaces/{namespace}/resourcequotas", quota)
        self.namespace, self.api = namespace, server.api.another()
        self._pods, self._jobs = f"/api/v1/namespaces/{namespace}/pods", _JOBS.format(namespace)
        self._numbers = count()

    def act(self, kind: Hostility) -> None:
        """Do one thing."""
        _ACTS[kind](self)

    def pod(self, labels: Mapping[str, str] = {}, annotations: Mapping[str, str] = {}, **parts: JsonObject) -> str:
        """Create a pod of its own, on no node; return its name."""
        name = f"hostile-{next(self._numbers)}"
        metadata = {"name": name, "labels": dict(labels), "annotations": dict(annotations), **parts.get("metadata", {})}
        spec = {"containers": [_CONTAINER], **_NOWHERE, **parts.get("spec", {})}
        self.api.create(self._pods, {"metadata": metadata, "spec": spec})
        return name

    def job(
        self, parallelism: int, labels: Mapping[str, str], annotations: Mapping[str, str] = {}, **spec: object
    ) -> JsonObject:
        """Create a Job with rails; return it as the API server did."""
        name = f"job-{next(self._numbers)}"
        amounts = {"requests": {"rdma/ib_vf": "1"}, "limits": {"rdma/ib_vf": "1"}}
        template = {
            "metadata": {"labels": dict(labels), "annotations": dict(annotations)},
            "spec": {"restartPolicy": "Never", "containers": [{**_CONTAINER, "resources": amounts}]},
        }
        own = {
            "completions": parallelism,
            "parallelism": parallelism,
            "completionMode": "Indexed",
            "template": template,
        }
        return self.api.create(self._jobs, {"metadata": {"name": name}, "spec": {**own, **spec}}).object

    def large_pods(self) -> None:
        """Create gated pods of a megabyte, whose requirements of a node are large."""
        values = [f"node-{number:05}" * 6 for number in range(18_000)]
        term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": values}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
        self.pod(_gang("large"), spec={"affinity": affinity})

    def large_annotations(self) -> None:
        """Create pods whose annotations are as long as they may be, and that say to have thousands of addresses."""
        for number in range(3):
            status = network_status(*(f"10.56.{of // 250}.{of % 250 + 1}" for of in range(12_000)))
            long = {ANNOTATION: status} if number else dict.fromkeys((CONSTRAINT, NAMES), "x" * (_LARGE // 2))
            self.pod({NET1: "true"}, long)

    def long_rank(self) -> None:
        """Create pods whose rank has a hundred thousand numbers."""
        for _ in range(2):
            self.pod(
                {NET1: "true", **_gang("ranks")},
                {"batch.kubernetes.io/job-completion-index": "1" + ".1" * (_LARGE // 2)},
            )

    def large_owner(self) -> None:
        """Create a pod whose owner has a name of a megabyte."""
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "x" * 1_000_000, "uid": "u", "controller": True}
        self.pod({NET1: "true", **_gang("owned")}, metadata={"ownerReferences": [owner]})

    def suspended_job(self) -> None:
        """Create a suspended Job of a hundred thousand pods, and some gated pods that name it as their owner."""
        made = self.job(100_000, {}, suspend=True)
        if "uid" not in made.get("metadata", {}):
            return
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": made["metadata"]["name"],
            "uid": made["metadata"]["uid"],
        }
        for _ in range(4):
            labels = {f"{GROUP}/name": made["metadata"]["name"]}
            self.pod(labels, {CONSTRAINT: required()}, metadata={"ownerReferences": [{**owner, "controller": True}]})

    def dry_runs(self) -> None:
        """Ask for ports without making pods."""
        for _ in range(30):
            self.api.create(f"{self._pods}?dryRun=All", a_pod(f"dry-{next(self._numbers)}"))

    def refused_reviews(self) -> None:
        """Ask for ports for pods that the API server refuses after the review."""
        for _ in range(30):
            pod = a_pod(f"refused-{next(self._numbers)}", labels=job("refused"))
            pod["spec"]["serviceAccountName"] = "there-is-none"
            self.api.create(self._pods, pod)

    def all_ports(self) -> None:
        """Declare all host ports."""
        pod = with_host_ports(f"ports-{next(self._numbers)}", PORTS)
        pod["spec"] |= _NOWHERE
        self.api.create(self._pods, pod)

    def foreign_addresses(self) -> None:
        """Say that the pod has addresses that no node gave."""
        for number, address in enumerate(("10.96.0.1", "8.8.8.8", "10.4.52.5")):
            labels = {NET1: "true", "railnet.io/job": "forged", "railnet.io/rank": str(number)}
            written = {ANNOTATION: network_status(address)} if number else {ADDRESS_ANNOTATION: f"{address}/24"}
            self.pod(labels, written)

    def edited_service(self) -> None:
        """Add a port and an address to a Service of its names."""
        labels = {NET1: "true", "railnet.io/job": "edited", "railnet.io/rank": str(next(self._numbers))}
        self.pod(labels, {ANNOTATION: network_status("10.56.250.1")})
        service = f"/api/v1/namespaces/{self.namespace}/services/edited-net1"
        self.api.merge(service, {"spec": {"ports": [{"name": "ssh", "port": 22}], "externalIPs": ["10.96.7.9"]}})

    def task_without_rank(self) -> None:
        """Ask for a name of a task that has the job's own."""
        labels = {NET1: "true", "railnet.io/job": "rankless", "railnet.io/role": "net1"}
        self.pod(labels, {NAMES: "task", ANNOTATION: network_status("10.56.250.2")})

    def sticky(self) -> None:
        """Take the sticky address of one rank after the other, with one pod at a time."""
        for _ in range(8):
            labels = {NET1: "true", "railnet.io/job": "hoard", "railnet.io/rank": str(next(self._numbers))}
            name = self.pod(labels, {STICKY_ANNOTATION: "true"})
            self.api.delete(f"{self._pods}/{name}?gracePeriodSeconds=0")

    def foreign_owner(self) -> None:
        """Create pods that name another tenant's Job as their owner's, and another one as its owner."""
        for namespace in NAMESPACES[:2]:
            for body in self.api.items(_JOBS.format(namespace)):
                uid, name = body["metadata"]["uid"], body["metadata"]["name"]
                owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": True}
                self.pod({NET1: "true", **_gang(name)}, metadata={"ownerReferences": [owner]})

    def lonely_member(self) -> None:
        """Create one pod of a gang whose others never come."""
        self.pod(
            {f"{GROUP}/name": f"lonely-{next(self._numbers)}", f"{GROUP}/min-available": "1000"},
            {CONSTRAINT: required()},
        )

    def larger_than_job(self) -> None:
        """Create a gang that waits for more pods than its Job makes."""
        self.job(3, {f"{GROUP}/name": f"more-{next(self._numbers)}", f"{GROUP}/min-available": "40"})

    def larger_than_leaf(self) -> None:
        """Create a gang that no leaf can hold."""
        name = f"wide-{next(self._numbers)}"
        self.job(
            20,
            {f"{GROUP}/name": name, f"{GROUP}/min-available": "20"},
            {CONSTRAINT: required("kubernetes.io/hostname")},
        )

    def foreign_seats(self) -> None:
        """Write into waiting pods that they have been given the first node, for a thousand years."""
        place = {"domain": {}, "attempt": 1, "node": "leaf-0-0", "reservedUntil": 33_000_000_000}
        for pod in self.api.items(f"{self._pods}?limit=20"):
            patch = {"metadata": {"annotations": {PLACEMENT: json.dumps(place)}, "labels": _gang("seats")}}
            self.api.merge(f"{self._pods}/{pod['metadata']['name']}", patch)

    def renamed_rail(self) -> None:
        """Create a pod on the real node that gives its VF another name, and ends."""
        self.pod(spec=renaming_pod())

    def sweep(self) -> None:
        """Delete everything."""
        self.api.delete(f"{self._jobs}?propagationPolicy=Background")
        self.api.delete(f"{self._pods}?gracePeriodSeconds=0")


def _gang(name: str) -> Mapping[str, str]:
    return {f"{GROUP}/name": name}


_ACTS: Mapping[Hostility, Callable[[HostileTenant], None]] = {
    "large pods": HostileTenant.large_pods,
    "annotations of 240 KiB": HostileTenant.large_annotations,
    "rank of 240 KiB": HostileTenant.long_rank,
    "owner of 1 MB": HostileTenant.large_owner,
    "suspended Job of 100,000 pods": HostileTenant.suspended_job,
    "dry-run reviews": HostileTenant.dry_runs,
    "refused reviews": HostileTenant.refused_reviews,
    "all host ports": HostileTenant.all_ports,
    "foreign addresses": HostileTenant.foreign_addresses,
    "port on the Service of the names": HostileTenant.edited_service,
    "task without a rank": HostileTenant.task_without_rank,
    "sticky addresses": HostileTenant.sticky,
    "owner's foreign UID": HostileTenant.foreign_owner,
    "member that never comes": HostileTenant.lonely_member,
    "min-available beyond the job": HostileTenant.larger_than_job,
    "gang larger than a leaf": HostileTenant.larger_than_leaf,
    "foreign seats": HostileTenant.foreign_seats,
    "rail renamed and set down": HostileTenant.renamed_rail,
    "sweep": HostileTenant.sweep,
}
assert _ACTS.keys() == {*HOSTILITIES, *NODE_HOSTILITIES}

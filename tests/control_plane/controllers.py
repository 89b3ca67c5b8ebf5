"""`railnet controllers` as a process, and the pods of a job whose names it makes."""

import http.client
import json
import re
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

from tests.cluster.manifests import NAMESPACE
from tests.cluster.process import Program, wait_until
from tests.control_plane.account import Account
from tests.control_plane.api import Api, JsonObject
from tests.control_plane.proxy import ApiProxy, killed, none
from tests.control_plane.server import ApiServer
from tests.railnet.controllers.builders import network_status

NAME = "railnet-controllers"
NODES = tuple(f"node-{number}" for number in range(7))
"""The nodes of the members of a `Job`."""

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{NAME}"
_SECONDS = 60.0


class Controllers:
    """At most one replica, as a process, with the rights of its manifest, which is applied already."""

    def __init__(
        self,
        server: ApiServer,
        folder: Path,
        configuration: JsonObject | None = None,
        options: Iterable[str] = (),
        number: int = 0,
    ) -> None:
        """Find the API server as a pod of the Deployment does; `folder` is for its files, `configuration` is that of the nodes.

        Where several run at one time, each has another `number`.
        """
        self._health_port = 8090 + number
        (folder / "node.yaml").write_text(json.dumps(configuration or {}))
        self._api = server.api
        self._account = Account(server, folder / "account", NAME)
        self._arguments = [
            "controllers",
            f"--health-port={self._health_port}",
            f"--service-account={self._account.folder}",
        ]
        self._arguments += [f"--config={folder}/node.yaml", *options]
        self.program = Program([sys.executable])

    def start(self, proxy: ApiProxy | None = None, *, hasty: bool = True) -> None:
        """Start a replica, which leads at once: the Lease of the one before is taken away, as if its time was over.

        Behind a proxy, what waits for half a minute waits for seconds, unless it is not to be hasty.
        """
        self._api.delete(LEASE)
        self._account.write()
        module = "tests.control_plane.hasty_controllers" if proxy is not None and hasty else "railnet"
        self.program = Program([sys.executable, "-m", module, *self._arguments], self._account.environment(proxy))
        self.program.start()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Have the replica do nothing in the block; its Lease behind a proxy is long enough for that."""
        process = self.program.process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        assert self.program.process is not None
        self.program.process.kill()

    def wait(self) -> None:
        """Wait until the replica leads, and knows all objects."""
        self.program.wait(self.leads, _SECONDS)

    def leads(self) -> bool:
        """Return whether the replica leads, and knows all objects."""
        return "railnet_controllers_leader 1" in self.asked("/metrics") and self.asked("/readyz") == "ok\n"

    def stop(self) -> None:
        self.program.stop()

    def ended(self) -> bool:
        process = self.program.process
        assert process is not None
        return process.poll() is not None

    def pods(self) -> int:
        """Return how many pods of training jobs the replica knows."""
        found = re.search(r'objects\{kind="pods"\} (\d+)', self.asked("/metrics"))
        assert found is not None
        return int(found[1])

    def requests(self, *verbs: str, result: str = r"\w+") -> dict[str, int]:
        """Return how many requests the replica has sent, by verb and resource; of all verbs, or of some; with all results, or with one."""
        found: dict[str, int] = {}
        pattern = rf'requests_total\{{verb="(\w+)",resource="(\w+)",result="{result}"\}} (\d+)'
        for verb, resource, number in re.findall(pattern, self.asked("/metrics")):
            if not verbs or verb in verbs:
                found[f"{verb} {resource}"] = found.get(f"{verb} {resource}", 0) + int(number)
        return found

    def asked(self, path: str) -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._health_port}{path}", timeout=_SECONDS) as answer:
                text: str = answer.read().decode()
                return text
        except urllib.error.HTTPError as error:
            return error.read().decode()
        except (OSError, http.client.HTTPException):  # it may be killed in the middle of its answer
            return ""


class Job:
    """A Job of batch/v1 that the test manages in place of the Job controller, in a namespace of its own: it makes the pods, and attaches VFs."""

    def __init__(self, server: ApiServer, name: str) -> None:
        self.name, self._api = name, server.api
        server.namespace(name)
        template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "train:1"}]}}
        body = {"metadata": {"name": name}, "spec": {"managedBy": "railnet.io/tests", "template": template}}
        made = self._api.create(f"/apis/batch/v1/namespaces/{name}/jobs", body)
        assert made.status == http.client.CREATED, made.message
        self.root = made.object
        self.pods = f"/api/v1/namespaces/{name}/pods"

    def add(
        self, number: int, annotations: JsonObject | None = None, vfs: int = 0, labels: JsonObject | None = None
    ) -> None:
        """Create a member, which has no address yet. A label that is None is left out."""
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": self.name, "uid": self.root["metadata"]["uid"]}
        own = {"railnet.io/net1": "true", "railnet.io/job": self.name, "railnet.io/rank": str(number)}
        metadata = {
            "name": f"{self.name}-{number}",
            "labels": {key: text for key, text in {**own, **(labels or {})}.items() if text is not None},
            "annotations": annotations or {},
            "ownerReferences": [{**owner, "controller": True}],
        }
        devices = {"rdma/ib_vf": str(vfs)} if vfs else {}
        container = {"name": "main", "image": "train:1", "resources": {"limits": devices, "requests": devices}}
        spec = {"nodeName": NODES[number % len(NODES)], "containers": [container]}
        made = self._api.create(self.pods, {"metadata": metadata, "spec": spec})
        assert made.status == http.client.CREATED, made.message

    def attach(self, number: int, address: str, api: Api | None = None) -> None:
        """Annotate a member as the daemon of its node does."""
        annotations = {"k8s.v1.cni.cncf.io/network-status": network_status(address)}
        patch = {"metadata": {"annotations": annotations}}
        assert (api or self._api).merge(f"{self.pods}/{self.name}-{number}/status", patch).status == 200

    def edit_service(self, name: str, spec: JsonObject) -> None:
        """Change a Service as a tenant may that may write the namespace's Services."""
        answer = self._api.merge(f"/api/v1/namespaces/{self.name}/services/{name}", {"spec": spec})
        assert answer.status == http.client.OK, answer.message

    def spec(self, name: str) -> JsonObject:
        """Return the specification of a Service."""
        found: JsonObject = self._api.get(f"/api/v1/namespaces/{self.name}/services/{name}").object["spec"]
        return found

    def end(self, number: int, phase: str = "Succeeded") -> None:
        self._api.merge(f"{self.pods}/{self.name}-{number}/status", {"status": {"phase": phase}})

    def remove(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._api.send("DELETE", f"{self.pods}/{self.name}-{number}?gracePeriodSeconds=0")

    def services(self) -> list[str]:
        return sorted(one["metadata"]["name"] for one in self._items("/api/v1", "services"))

    def slices(self) -> dict[str, dict[str, str]]:
        """Return the slices: of each the addresses by hostname, or by pod where there is no hostname."""
        return {
            one["metadata"]["name"]: {
                end.get("hostname") or end["targetRef"]["name"]: end["addresses"][0] for end in one["endpoints"]
            }
            for one in self._items("/apis/discovery.k8s.io/v1", "endpointslices")
        }

    def names(self) -> dict[str, str]:
        return {name: address for one in self.slices().values() for name, address in one.items()}

    def owners(self) -> set[str]:
        """Return the UIDs of the owners of all Services and slices; empty for none."""
        items = [*self._items("/api/v1", "services"), *self._items("/apis/discovery.k8s.io/v1", "endpointslices")]
        return {owner["uid"] for one in items for owner in one["metadata"].get("ownerReferences", [{"uid": ""}])}

    def events(self) -> list[tuple[str, str]]:
        """Return the events of Railnet's."""
        found = [one for one in self._items("/api/v1", "events") if one["source"].get("component") == NAME]
        return [(one["involvedObject"]["kind"], one["reason"]) for one in found]

    def wait(self, names: dict[str, str], what: str) -> None:
        wait_until(lambda: self.names() == names, _SECONDS, what)

    def _items(self, version: str, resource: str) -> list[JsonObject]:
        found: list[JsonObject] = self._api.get(f"{version}/namespaces/{self.name}/{resource}").object["items"]
        return found


def die_until(replica: Controllers, proxy: ApiProxy, complete: Callable[[], bool], of: Collection[str]) -> int:
    """Start leaders that die at their first write of some resources, every other one before it is done; return how many died."""
    for died, before in enumerate(cycle([True, False])):
        proxy.fault = killed(replica.kill, of, before=before)
        replica.start(proxy)
        try:
            wait_until(lambda: replica.ended() or complete(), _SECONDS, "the leader to die, or all to be done")
            if complete() and not dies(replica):
                return died
        finally:
            replica.stop()
            proxy.fault = none
    raise AssertionError


def dies(replica: Controllers) -> bool:
    """Return whether a leader still has something to write."""
    wait_until(lambda: replica.ended() or replica.leads(), _SECONDS, "a leader, which may die at once")
    try:
        wait_until(replica.ended, 3.0, "the leader to die")
    except TimeoutError:
        return False
    return True

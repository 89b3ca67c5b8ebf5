"""`railnet controllers` as a process, and the pods of a job whose names it makes."""

import json
import os
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from itertools import cycle
from pathlib import Path

from tests.cluster.process import Program, wait_until
from tests.controllers.builders import network_status
from tests.genericapiserver.api import Api, ApiAnswer, JsonObject
from tests.genericapiserver.server import PORT, ApiServer

NAMESPACE, NAME = "railnet", "railnet-controllers"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{NAME}"
_HEALTH = 8090
_SECONDS = 60.0


class Controllers:
    """At most one replica, as a process."""

    def __init__(
        self, server: ApiServer, folder: Path, configuration: JsonObject | None = None, options: Iterable[str] = ()
    ) -> None:
        """Find the API server as a pod of the Deployment does; `folder` is for its files, `configuration` is that of the nodes."""
        (folder / "node.yaml").write_text(json.dumps(configuration or {}))
        self._api = server.api
        account = folder / "account"
        account.mkdir()
        (account / "token").write_text(f"{NAMESPACE}/{NAME}/{NAME}-0/node-a")
        (account / "namespace").write_text(NAMESPACE)
        (account / "ca.crt").write_bytes(server.api.authority.read_bytes())
        self._arguments = ["controllers", f"--health-port={_HEALTH}", f"--service-account={account}"]
        self._arguments += [f"--config={folder}/node.yaml", *options]
        self._environment = {
            **os.environ,
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(PORT),
        }
        self.program = self._program()

    def start(self, fault: str = "") -> None:
        """Start a replica, which leads at once: the Lease of the one before is taken away, as if its time was over."""
        self._api.send("DELETE", LEASE)
        self.program = self._program(fault)
        self.program.start()

    def _program(self, fault: str = "") -> Program:
        module = ["tests.genericapiserver.controllers_with_faults", fault] if fault else ["railnet"]
        return Program([sys.executable, "-m", *module, *self._arguments], self._environment)

    def wait(self) -> None:
        """Wait until the replica leads, and knows all objects."""
        leads = "railnet_controllers_leader 1"
        self.program.wait(lambda: leads in self.asked("/metrics") and self.asked("/readyz") == "ok\n", _SECONDS)

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

    def requests(self, *verbs: str) -> dict[str, int]:
        """Return how many requests the replica has sent, by verb and resource; of all verbs, or of some."""
        found: dict[str, int] = {}
        pattern = r'requests_total\{verb="(\w+)",resource="(\w+)",result="\w+"\} (\d+)'
        for verb, resource, number in re.findall(pattern, self.asked("/metrics")):
            if not verbs or verb in verbs:
                found[f"{verb} {resource}"] = found.get(f"{verb} {resource}", 0) + int(number)
        return found

    def asked(self, path: str) -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{_HEALTH}{path}", timeout=5) as answer:
                text: str = answer.read().decode()
                return text
        except urllib.error.HTTPError as error:
            return error.read().decode()
        except OSError:
            return ""


class Job:
    """A Job of batch/v1 with pods of its own, in a namespace of its own. Nothing runs them: a test gives them addresses."""

    def __init__(self, api: Api, name: str) -> None:
        self.name, self._api = name, api
        api.create("/api/v1/namespaces", {"metadata": {"name": name}})
        spec = {"template": {"spec": {"containers": [{"name": "main", "image": "train:1"}]}}}
        self.root = api.create(
            f"/apis/batch/v1/namespaces/{name}/jobs", {"metadata": {"name": name}, "spec": spec}
        ).object
        self.pods = f"/api/v1/namespaces/{name}/pods"

    def add(self, number: int, annotations: JsonObject | None = None, vfs: int = 0) -> None:
        """Create a member, which has no address yet."""
        made = self.try_to_add(number, annotations, vfs)
        assert made.status == 201, made.message

    def try_to_add(self, number: int, annotations: JsonObject | None = None, vfs: int = 0) -> ApiAnswer:
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": self.name, "uid": self.root["metadata"]["uid"]}
        metadata = {
            "name": f"{self.name}-{number}",
            "labels": {"railnet.io/net1": "true", "railnet.io/job": self.name, "railnet.io/rank": str(number)},
            "annotations": annotations or {},
            "ownerReferences": [{**owner, "controller": True}],
        }
        devices = {"rdma/ib_vf": str(vfs)} if vfs else {}
        container = {"name": "main", "image": "train:1", "resources": {"limits": devices, "requests": devices}}
        spec = {"nodeName": f"node-{number % 7}", "containers": [container]}
        return self._api.create(self.pods, {"metadata": metadata, "spec": spec})

    def attach(self, number: int, address: str, api: Api | None = None) -> None:
        """Annotate a member as the daemon of its node does."""
        annotations = {"k8s.v1.cni.cncf.io/network-status": network_status(address)}
        patch = {"metadata": {"annotations": annotations}}
        assert (api or self._api).merge(f"{self.pods}/{self.name}-{number}/status", patch).status == 200

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
        found = self._items("/api/v1", "events")
        return [(one["involvedObject"]["kind"], one["reason"]) for one in found]

    def wait(self, names: dict[str, str], what: str) -> None:
        wait_until(lambda: self.names() == names, _SECONDS, what)

    def _items(self, version: str, resource: str) -> list[JsonObject]:
        found: list[JsonObject] = self._api.get(f"{version}/namespaces/{self.name}/{resource}").object["items"]
        return found


def die_until(replica: Controllers, complete: Callable[[], bool], of: str = "") -> int:
    """Start leaders that die at their first write (`of` a kind), every other one before it is done; return how many died."""
    for died, fault in enumerate(cycle(["before", "after"])):
        replica.start(f"{fault}:{of}")
        try:
            wait_until(lambda: replica.ended() or complete(), _SECONDS, "the leader to die, or all to be done")
            if complete() and not dies(replica):
                return died
        finally:
            replica.stop()
    raise AssertionError


def dies(replica: Controllers) -> bool:
    """Return whether a leader still has something to write."""
    try:
        wait_until(replica.ended, 3.0, "the leader to die")
    except TimeoutError:
        return False
    return True

"""A stand-in for kube-scheduler: binds pods, one after another; tests/stand_ins/pod_scheduler.py decides."""

from collections.abc import Callable, Iterable

from tests.genericapiserver.api import Api, JsonObject
from tests.genericapiserver.server import ApiServer
from tests.genericapiserver.stand_in import StandIn
from tests.stand_ins.pod_scheduler import PodScheduler, Unschedulable, waits

Foreign = Callable[[Api, JsonObject], Iterable[JsonObject]]


def _no_pods(_: Api, __: JsonObject) -> Iterable[JsonObject]:
    return ()


class Scheduler(StandIn):
    """Gives each pod that waits a node, or the condition that says why it gets none."""

    def __init__(self, server: ApiServer, foreign: Foreign = _no_pods) -> None:
        """Schedule all pods of a server; `foreign` is called before each, and returns pods that it has bound in between."""
        super().__init__(server, ["/api/v1/nodes", "/api/v1/pods"])
        self._foreign = foreign
        self._bound: dict[str, str] = {}  # by UID, until the watch tells of it

    def look(self, *lists: list[JsonObject]) -> bool:
        nodes, pods = lists
        unseen = {_uid(pod): pod for pod in pods if not pod["spec"].get("nodeName")}
        self._bound = {uid: node for uid, node in self._bound.items() if uid in unseen}
        scheduler = PodScheduler(nodes, pods)
        for uid, node in self._bound.items():
            scheduler.add(unseen[uid], node)
        for pod in sorted((one for one in pods if waits(one) and _uid(one) not in self._bound), key=_order):
            for one in self._foreign(self.api, pod):
                scheduler.add(one)
            self._schedule(scheduler, pod)
        return False

    def _schedule(self, scheduler: PodScheduler, pod: JsonObject) -> None:
        try:
            node = scheduler.place(pod)
        except Unschedulable as error:
            self._mark(pod, str(error))
        else:
            binding = {"metadata": {"name": pod["metadata"]["name"]}, "target": {"kind": "Node", "name": node}}
            if self.api.create(f"{_path(pod)}/binding", binding).status == 201:
                self._bound[_uid(pod)] = node

    def _mark(self, pod: JsonObject, message: str) -> None:
        made = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        before = pod.get("status", {}).get("conditions", [])
        if not any(made.items() <= one.items() for one in before):
            others = [one for one in before if one["type"] != "PodScheduled"]
            self.api.merge(f"{_path(pod)}/status", {"status": {"conditions": [*others, made]}})


def _order(pod: JsonObject) -> tuple[int, str, str]:
    metadata = pod["metadata"]
    return -pod["spec"].get("priority", 0), metadata["creationTimestamp"], metadata["name"]


def _path(pod: JsonObject) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def _uid(pod: JsonObject) -> str:
    uid: str = pod["metadata"]["uid"]
    return uid

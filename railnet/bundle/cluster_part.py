"""What a bundle has of a cluster: of each node the Node, Railnet's pods with their logs, events, and what `railnet bundle` says there.

Nodes are asked side by side. A node that does not answer, or a right that the user lacks, costs its part alone.
"""

import json
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from typing import Any, NamedTuple, Protocol

from railnet.apiserver.client import RequestFailed, StreamingApiServer
from railnet.apiserver.object_watch import pages
from railnet.apiserver.request import ApiObject, Collection, JsonObject, ServerVersion, get, log
from railnet.bundle import allowed
from railnet.bundle.parts import MOST_FILE_BYTES, BundleParts
from railnet.cli.at_once import each_at_once
from railnet.errors import Misconfigured

_OURS = "railnet"  # the namespace of daemonset/, and the name of the DaemonSet's pods' program
_PROGRAM = "app.kubernetes.io/name"
_PROGRAMS = Collection("v1", "pods", _OURS, f"{_PROGRAM} in (railnet,railnet-admission,railnet-controllers)")
_EVENTS = (Collection("v1", "events", _OURS), Collection("v1", "events", "default", "", "involvedObject.kind=Node"))
_CONTAINER = "railnet"
_COMMAND = ("railnet", "bundle", "--print")
_COMMAND_SECONDS = 90.0  # of the command on a node: reads that hang cost seconds each
_LOG_LINES, _LOG_BYTES = 5000, 1 << 20
_AT_ONCE = 8  # nodes
_MOST_EVENTS = 5000


class CommandRunner(Protocol):
    """Runs a command in a container: `railnet.apiserver.pod_exec.PodExec`."""

    def run(self, pod: ApiObject, container: str, command: Sequence[str], seconds: float) -> str:
        """Run a command, and return what it wrote; raise RequestFailed if it could not be run."""


class Wanted(NamedTuple):
    """What is asked for.

    Attributes:
        nodes: the names of nodes; empty for those with the label.
        selector: the labels of nodes, as kubectl's `-l`; empty for all.
        seconds: how long the nodes may take together; a node whose turn comes later is left out.
        most_bytes: of all texts of the bundle.
    """

    nodes: tuple[str, ...] = ()
    selector: str = ""
    seconds: float = 300.0
    most_bytes: int = 64 << 20


class ClusterBundle:
    """Gathers the parts."""

    def __init__(
        self,
        api: StreamingApiServer,
        execution: CommandRunner,
        wanted: Wanted,
        progress: Callable[[str], object],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Ask by these clients; `progress` is called with each line for the person who waits."""
        self._api, self._execution, self._wanted, self._progress, self._now = api, execution, wanted, progress, now
        self._parts = BundleParts(wanted.most_bytes)
        self._lock = threading.Lock()

    def gather(self, doctor: Callable[[], Any]) -> BundleParts:
        """Return the parts; `doctor` returns what `railnet doctor --cluster` says.

        Raises:
            RequestFailed: the nodes cannot be listed. Misconfigured: no node is as asked.
        """
        end = self._now() + self._wanted.seconds
        nodes = self._nodes()
        self._progress(f"{len(nodes)} {'node' if len(nodes) == 1 else 'nodes'}")
        self._attempt("cluster/version.json", lambda: self._api.send(get(ServerVersion())))
        self._attempt("cluster/doctor.json", doctor)
        pods = self._list(_PROGRAMS)
        events = [event for about in _EVENTS for event in self._list(about)]
        for pod in pods:
            if _node_of(pod) is None or not _is_daemon(pod):
                self._pod(f"cluster/{_name(pod)}", pod)
        railnets = {str(_dig(pod, "metadata", "name")) for pod in pods}
        self._events("cluster/events.json", [event for event in events if _about(event)[1] in railnets])
        each_at_once(lambda name: self._node(name, nodes[name], pods, events, end), nodes, _AT_ONCE)
        return self._parts

    def _nodes(self) -> dict[str, JsonObject]:
        listed = [
            node
            for page in pages(self._api, Collection("v1", "nodes", None, self._wanted.selector))
            for node in page.found
        ]
        by_name = {_name(node): node for node in listed}
        missing = [name for name in self._wanted.nodes if name not in by_name]
        for name in missing:
            self._parts.leave_out(f"nodes/{name}", "the cluster has no such node")
        chosen = {name: by_name[name] for name in self._wanted.nodes or by_name if name in by_name}
        if not chosen:
            raise Misconfigured(
                f"no node of the cluster is as asked; its nodes are: {', '.join(sorted(by_name))[:400] or 'none with these labels'}"
            )
        return chosen

    def _node(
        self, name: str, node: JsonObject, pods: Sequence[JsonObject], events: Sequence[JsonObject], end: float
    ) -> None:
        folder = f"nodes/{name}"
        self._attempt(f"{folder}/node.json", lambda: allowed.node(node))
        self._events(f"{folder}/events.json", [event for event in events if _about(event) == ("Node", name)])
        if self._now() >= end:
            self._leave_out(
                folder,
                f"its turn came after {self._wanted.seconds:.0f} s; ask for fewer nodes, or for more with --timeout",
            )
            self._progress(f"{name}: left out, the time is over")
            return
        own = [pod for pod in pods if _is_daemon(pod) and _node_of(pod) == name]
        for pod in own:
            self._pod(f"{folder}/{_name(pod)}", pod)
        if not own:
            self._leave_out(folder, "Railnet has no pod on this node, so nothing of the node itself is here")
            self._progress(f"{name}: no pod of Railnet")
            return
        self._progress(f"{name}: {self._by_command(folder, own[0])}")

    def _by_command(self, folder: str, pod: JsonObject) -> str:
        try:
            about = ApiObject("v1", "pods", _name(pod), _OURS)
            answer = json.loads(self._execution.run(about, _CONTAINER, _COMMAND, _COMMAND_SECONDS))
            with self._lock:
                self._parts.take(answer, folder)
        except (RequestFailed, ValueError, TypeError, AttributeError, RecursionError) as error:
            self._leave_out(f"{folder}, what the node says of itself", error)
            return f"the node's own part is left out: {error!s:.200}"
        return "taken"

    def _pod(self, path: str, pod: JsonObject) -> None:
        self._attempt(f"{path}.json", lambda: allowed.taken(pod, allowed.POD))
        statuses = _dig(pod, "status", "containerStatuses")
        for status in statuses if isinstance(statuses, list) else ():
            container = _dig(status, "name")
            if isinstance(container, str):
                self._log(f"{path}.{container}.log", pod, container=container)
                if _dig(status, "restartCount"):
                    self._log(f"{path}.{container}.previous.log", pod, container=container, previous="true")

    def _log(self, path: str, pod: JsonObject, **parameters: str) -> None:
        try:
            about = ApiObject("v1", "pods", _name(pod), _OURS, "log")
            bounds: dict[str, str | int] = {"tailLines": _LOG_LINES, "limitBytes": _LOG_BYTES, **parameters}
            text = _joined(self._api.lines(log(about, **bounds)))
        except (RequestFailed, ValueError) as error:
            self._leave_out(path, error)
            return
        with self._lock:
            self._parts.add(path, text)

    def _events(self, path: str, events: Sequence[JsonObject]) -> None:
        self._attempt(path, lambda: [allowed.taken(event, allowed.EVENT) for event in events[-_MOST_EVENTS:]])

    def _list(self, about: Collection) -> list[JsonObject]:
        try:
            return [document for page in pages(self._api, about) for document in page.found]
        except RequestFailed as error:
            self._leave_out(str(about), error)
            return []

    def _attempt(self, path: str, read: Callable[[], Any]) -> None:
        try:
            document = read()
        except RequestFailed as error:
            self._leave_out(path, error)
            return
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            self._leave_out(path, f"the API server sent something in an unknown form: {error!r:.120}")
            return
        with self._lock:
            self._parts.add_json(path, document)

    def _leave_out(self, what: str, why: object) -> None:
        with self._lock:
            self._parts.leave_out(what, why)


def _joined(lines: Generator[bytes]) -> str:
    """Return lines, as many as a file of a bundle may have; an API server need not heed `limitBytes`."""
    taken, size = [], 0
    with closing(lines):
        for line in lines:
            size += len(line) + 1
            if size > MOST_FILE_BYTES // 3:  # a byte that is no UTF-8 becomes three
                taken.append(b"(the rest is left out)")
                break
            taken.append(line)
    return "".join(f"{line.decode(errors='replace')}\n" for line in taken)


def _name(document: Any) -> str:
    name = _dig(document, "metadata", "name")
    return name if isinstance(name, str) else "unnamed"


def _node_of(pod: JsonObject) -> str | None:
    name = _dig(pod, "spec", "nodeName")
    return name if isinstance(name, str) else None


def _is_daemon(pod: JsonObject) -> bool:
    return bool(_dig(pod, "metadata", "labels", _PROGRAM) == "railnet")


def _about(event: JsonObject) -> tuple[Any, Any]:
    return _dig(event, "involvedObject", "kind"), _dig(event, "involvedObject", "name")


def _dig(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value

"""Reads what the nodes of a cluster report, by exec in Railnet's pods, and the configurations that run. Acts; decides nothing of the proposal.

A node that does not answer, or a right that the user lacks, costs that node or that part alone.
"""

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

from railnet.apiserver.client import RequestFailed, StreamingApiServer
from railnet.apiserver.object_watch import pages
from railnet.apiserver.request import ApiObject, Collection, JsonObject
from railnet.plan.node_facts import KnownNode, SeenNode, UnseenNode, node_of
from railnet.plan.node_objects import group_of, identity, is_of_daemon, name_of, node_of_pod, node_yaml
from railnet.plan.running_configuration import RunningConfiguration, running

_OURS = "railnet"  # the namespace of daemonset/, and the name of the DaemonSet's pods' program
_PROGRAM = "app.kubernetes.io/name=railnet"
_CONTAINER = "railnet"
_COMMAND = ("railnet", "status", "-o", "json")
_COMMAND_SECONDS = 20.0  # the daemon answers within five, a command by exec starts within seconds
_AT_ONCE = 16  # nodes


class NodeCommand(Protocol):
    """Runs a command in a container: `railnet.apiserver.pod_exec.PodExec`."""

    def run(self, pod: ApiObject, container: str, command: Sequence[str], seconds: float) -> str:
        """Run a command, and return what it wrote; raise RequestFailed if it could not be run."""


class WantedNodes(NamedTuple):
    """Which nodes are asked.

    Attributes:
        selector: the labels of nodes, as kubectl's `-l`; empty for all.
        seconds: how long all nodes may take together; a node whose turn comes later is not seen.
    """

    selector: str = ""
    seconds: float = 300.0


class Reading(NamedTuple):
    """What was read.

    Attributes:
        assumed: what is assumed of nodes that were not asked for; one sentence each.
    """

    nodes: tuple[SeenNode, ...]
    unseen: tuple[UnseenNode, ...]
    running: RunningConfiguration
    assumed: tuple[str, ...] = ()


def read(
    api: StreamingApiServer,
    execution: NodeCommand,
    wanted: WantedNodes,
    progress: Callable[[str], object],
    now: Callable[[], float] = time.monotonic,
) -> Reading:
    """Ask each node; `progress` is called with a line for the person who waits.

    Raises:
        RequestFailed: the nodes or Railnet's pods cannot be listed.
    """
    end = now() + wanted.seconds
    nodes = _listed(api, Collection("v1", "nodes", None, wanted.selector))
    pods = {
        node_of_pod(pod): pod for pod in _listed(api, Collection("v1", "pods", _OURS, _PROGRAM)) if is_of_daemon(pod)
    }
    progress(f"asking {len(nodes)} {'node' if len(nodes) == 1 else 'nodes'}")
    identities = [identity(node, group_of(pods.get(name_of(node)))) for node in nodes]

    def ask(node: KnownNode) -> SeenNode | UnseenNode:
        pod = pods.get(node.name)
        if pod is None:
            return UnseenNode(node.name, "Railnet has no pod on this node", node.labels)
        if now() >= end:
            return UnseenNode(
                node.name, f"its turn came after {wanted.seconds:.0f} s; allow more by --timeout", node.labels
            )
        return _ask(execution, node, pod)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = list(pool.map(ask, identities))
    return Reading(
        tuple(answer for answer in answers if isinstance(answer, SeenNode)),
        tuple(answer for answer in answers if isinstance(answer, UnseenNode)),
        _running(api),
        _of_selector(wanted.selector),
    )


def _of_selector(selector: str) -> tuple[str, ...]:
    if not selector:
        return ()
    return (
        f"only the nodes with {selector:.200} were asked: the others have the same ipam.rails, and should not have the labels of these groups",
    )


def _ask(execution: NodeCommand, node: KnownNode, pod: JsonObject) -> SeenNode | UnseenNode:
    about = ApiObject("v1", "pods", name_of(pod), _OURS)
    try:
        return node_of(node, json.loads(execution.run(about, _CONTAINER, _COMMAND, _COMMAND_SECONDS)))
    except RequestFailed as error:
        return UnseenNode(node.name, f"{error!s:.400}", node.labels)
    except (ValueError, RecursionError) as error:
        return UnseenNode(node.name, f"it did not answer as a node does: {error!s:.300}", node.labels)


def _running(api: StreamingApiServer) -> RunningConfiguration:
    try:
        config_maps = _listed(api, Collection("v1", "configmaps", _OURS, _PROGRAM))
    except RequestFailed as error:
        return running({}, (f"the configurations that run could not be read: {error!s:.300}",))
    texts = dict(pair for each in config_maps if (pair := node_yaml(each)) is not None)
    return running(
        texts, () if texts else ("the namespace railnet has no configuration that runs; the defaults were taken",)
    )


def _listed(api: StreamingApiServer, about: Collection) -> list[Any]:
    return [document for page in pages(api, about) for document in page.found]

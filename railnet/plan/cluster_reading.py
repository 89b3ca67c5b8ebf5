"""Reads what the nodes of a cluster report, by exec in Railnet's pods, and the configurations that run. Acts; decides nothing of the proposal.

A node that does not answer, or a right that the user lacks, costs that node or that part alone.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from railnet.apiserver.client import RequestFailed, StreamingApiServer
from railnet.apiserver.object_watch import pages
from railnet.apiserver.request import ApiObject, Collection, JsonObject
from railnet.cli.at_once import each_at_once
from railnet.errors import Misconfigured
from railnet.plan.node_facts import KnownNode, SeenNode, UnseenNode, node_of
from railnet.plan.node_objects import (
    group_of,
    identity,
    is_of_daemon,
    labels_of_groups,
    name_of,
    node_of_pod,
    node_yaml,
)
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
        unasked: the labels of the nodes that were not asked for, by their names; None if all nodes were.
    """

    nodes: tuple[SeenNode, ...]
    unseen: tuple[UnseenNode, ...]
    running: RunningConfiguration
    unasked: Mapping[str, Mapping[str, str]] | None = None


def read(
    api: StreamingApiServer,
    execution: NodeCommand,
    wanted: WantedNodes,
    progress: Callable[[str], object],
    now: Callable[[], float] = time.monotonic,
) -> Reading:
    """Ask each node; `progress` is called with a line for the person who waits.

    Raises:
        RequestFailed: the nodes or Railnet's pods cannot be listed. Misconfigured: there is no node to ask.
    """
    end = now() + wanted.seconds
    nodes = _listed(api, Collection("v1", "nodes", None, wanted.selector))
    if not nodes:
        with_labels = f" with the labels {wanted.selector:.200}" if wanted.selector else ""
        raise Misconfigured(
            f"the cluster has no node{with_labels}; `kubectl get nodes --show-labels` shows those that it has"
        )
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

    answers = each_at_once(ask, identities, _AT_ONCE)
    return Reading(
        tuple(answer for answer in answers if isinstance(answer, SeenNode)),
        tuple(answer for answer in answers if isinstance(answer, UnseenNode)),
        _running(api, pods.values()),
        _unasked(api, nodes) if wanted.selector else None,
    )


def _unasked(api: StreamingApiServer, asked: Sequence[JsonObject]) -> dict[str, Mapping[str, str]]:
    """Return the labels of the other nodes: a label of a group must not be theirs."""
    others = {name_of(node): identity(node, "").labels for node in _listed(api, Collection("v1", "nodes", None))}
    for node in asked:
        others.pop(name_of(node), None)
    return others


def _ask(execution: NodeCommand, node: KnownNode, pod: JsonObject) -> SeenNode | UnseenNode:
    about = ApiObject("v1", "pods", name_of(pod), _OURS)
    try:
        return node_of(node, json.loads(execution.run(about, _CONTAINER, _COMMAND, _COMMAND_SECONDS)))
    except RequestFailed as error:
        return UnseenNode(node.name, f"{error!s:.400}", node.labels)
    except (ValueError, RecursionError) as error:
        return UnseenNode(node.name, f"it did not answer as a node does: {error!s:.300}", node.labels)


def _running(api: StreamingApiServer, pods: Iterable[JsonObject]) -> RunningConfiguration:
    labels = labels_of_groups(list(pods))
    try:
        config_maps = _listed(api, Collection("v1", "configmaps", _OURS, _PROGRAM))
    except RequestFailed as error:
        return running({}, (f"the configurations that run could not be read: {error!s:.300}",), labels)
    texts = dict(pair for each in config_maps if (pair := node_yaml(each)) is not None)
    absent = () if texts else ("the namespace railnet has no configuration that runs; the defaults were taken",)
    return running(texts, absent, labels)


def _listed(api: StreamingApiServer, about: Collection) -> list[Any]:
    return [document for page in pages(api, about) for document in page.found]

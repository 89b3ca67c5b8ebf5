"""A scheduler that is late: it binds the pods that the test names, one at a time, as the kube-scheduler chooses their nodes.

It may choose only nodes that match what is written into the pod and that have room. The node that the pod prefers comes first; of the others it takes
the emptiest one, as LeastAllocated does, so pods that lose their place are spread over many nodes.
"""

from railnet.gangs.placement.free_capacity import FreeCapacity
from railnet.gangs.placement.node import Node, node
from railnet.gangs.placement.pod_shape import shape
from tests.railnet.controllers.gangs.gang_cluster import GangCluster, JsonObject

_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def unbound(cluster: GangCluster, gang: str) -> list[str]:
    """Return the pods of a gang that the scheduler may bind: their gates are gone, and they have no node."""
    return [
        name
        for name, pod in cluster.pods().items()
        if name.startswith(f"{gang}-") and not pod["spec"].get("schedulingGates") and not pod["spec"].get("nodeName")
    ]


def seat_of(pod: JsonObject) -> str:
    """Return the node that a pod prefers; empty if it prefers none."""
    terms = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(_PREFERRED) or ()
    hosts = [term["preference"]["matchExpressions"][0]["values"][0] for term in terms]
    return hosts[-1] if hosts else ""


def bind(cluster: GangCluster, name: str) -> bool:
    """Bind a pod; return False if it has room nowhere."""
    nodes = {json["metadata"]["name"]: node(json) for json in cluster.of("nodes")}
    rooms = _rooms(cluster, nodes)
    pod = cluster.pods()[name]
    asks = shape(pod["spec"])
    fitting = [
        at for at in sorted(nodes) if asks.may_be_on(at, nodes[at].labels) and nodes[at].ready and rooms[at].slots(asks)
    ]
    if fitting:
        prefers = seat_of(pod)
        emptiest = max(fitting, key=lambda at: rooms[at].slots(asks))
        cluster.bind(name, prefers if prefers in fitting else emptiest)
    return bool(fitting)


def _rooms(cluster: GangCluster, nodes: dict[str, Node]) -> dict[str, FreeCapacity]:
    rooms = {name: FreeCapacity(of_node.allocatable) for name, of_node in nodes.items()}
    for pod in cluster.of("pods"):
        if (at := pod["spec"].get("nodeName")) in rooms:
            rooms[at].take(shape(pod["spec"]))
    return rooms

"""What tests of PodGroups read of a cluster in memory."""

from railnet.jobs.gang.engine import pod_group_name
from tests.railnet.controllers.gangs.gang_cluster import GangCluster, JsonObject, Leader

NAME = pod_group_name("bert")


PATH = f"/apis/scheduling.k8s.io/v1beta1/namespaces/ml/podgroups/{NAME}"


def groups(cluster: GangCluster) -> list[JsonObject]:
    return [one["spec"] for one in cluster.pod_groups().values()]


def hear(leader: Leader) -> None:
    """Settle, and have the leader take in what came of its last writes, which changed nothing."""
    leader.settle()
    leader.look()


def texts(cluster: GangCluster, reason: str) -> list[str]:
    return [text for said, _, text in cluster.events if said == reason]


def nominated(cluster: GangCluster) -> dict[str, str]:
    return {name: one["status"].get("nominatedNodeName", "") for name, one in cluster.pods().items()}

"""What the tests of evictions share: a cluster of three leaves, pods that take the place of a gang, and what follows an eviction."""

from railnet.gangs import evictions
from tests.railnet.controllers.gangs.gang_cluster import GangCluster, Leader

STUCK = evictions.STUCK_SECONDS


def three_leaves() -> GangCluster:
    """Return three leaves of four nodes with eight GPUs."""
    made = GangCluster()
    for leaf in ("a", "b", "c"):
        for number in range(4):
            made.add_node(f"{leaf}-{number}", leaf)
    return made


def said(cluster: GangCluster, reason: str) -> list[str]:
    return [text for found, _, text in cluster.events if found == reason]


def take(cluster: GangCluster, node: str) -> None:
    """Bind a pod that is of no gang, as another scheduler or a DaemonSet does."""
    cluster.add_pod(f"foreign-{node}", "none")

    def foreign(pod: dict[str, object]) -> None:
        pod["metadata"].update(labels={})  # type: ignore[attr-defined]
        pod["spec"].pop("schedulingGates")  # type: ignore[attr-defined]

    cluster.change(f"foreign-{node}", foreign)
    cluster.bind(f"foreign-{node}", node)


def place_and_take(cluster: GangCluster, leader: Leader, leaf: str) -> None:
    """Have a gang placed in a leaf, and a node of it taken before the scheduler binds its pods."""
    leader.settle()
    take(cluster, f"{leaf}-0")
    cluster.schedule()
    leader.settle()


def round_of(cluster: GangCluster, leader: Leader, pods: int, **fields: object) -> None:
    """Let everyone do what is to be done once: leader, kubelets, Job controller, scheduler."""
    leader.settle()
    cluster.end_leaving()
    cluster.make_again("bert", pods, **fields)
    leader.settle()
    cluster.schedule()
    leader.settle()


def ungate(cluster: GangCluster, name: str, **fields: object) -> None:
    """Have a pod as it is where the webhook leaves it alone, or is down."""

    def change(pod: dict[str, dict[str, object]]) -> None:
        pod["spec"].pop("schedulingGates")
        pod["spec"].update(fields)

    cluster.change(name, change)

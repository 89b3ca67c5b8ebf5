"""What the names of a job cost: formulas for `docs/training/dns.md`, for one Service per job and one per task.

N is the number of members. Every member has one IPv4 address, and every member is ready at the end.
"""

from dataclasses import dataclass
from math import ceil

SIZES = (10, 100, 1_000, 10_000)
SLICE = 100  # endpoints of one EndpointSlice, as kube-controller-manager's --max-endpoints-per-slice

# What a container asks for one look-up of mnist-worker-0.mnist-net1.ml.svc, with kubelet's ndots:5 and search list: three names,
# of which the last exists, for an IPv4 and an IPv6 address each.
QUERIES_OF_A_LOOKUP = 6
QUERIES_PER_SECOND = 33_667  # of one CoreDNS with two CPUs: coredns/deployment, kubernetes/Scaling_CoreDNS.md
REFUSALS_OF_A_LOOKUP = 5  # of these six: the first two names do not exist, and the last one has no IPv6 address
CACHED_REFUSALS = 9984  # kubernetes/kubernetes, cluster/addons/dns/nodelocaldns/nodelocaldns.yaml: "denial 9984 5"
MEMBERS_OF_A_NODE = 8  # one for each GPU
CORES_OF_A_NODE = 128

_HEADER = 12  # RFC 1035 4.1.1
_OF_THE_QUESTION = 4  # type and class, 4.1.2
_RECORD = 16  # a compressed name (2), type, class, TTL, length (10) and an IPv4 address (4), 4.1.3 and 4.1.4
LARGEST_UDP_ANSWER = 512  # 4.2.1: of a client without EDNS, as glibc's is without `options edns0`
LARGEST_ANSWER = 65_535  # by TCP, whose length has two bytes, 4.2.2


@dataclass(frozen=True, slots=True)
class Cost:
    """What one job costs.

    Attributes:
        endpoints: objects of the old kind Endpoints, which Kubernetes makes for each Service with a selector.
        names, records: names that the DNS answers for, and their records A.
        events: what a watcher of Services and EndpointSlices is sent until the job runs, at least and at most.
        sent: the endpoints in these events, at least and at most.
    """

    services: int
    slices: int
    endpoints: int
    names: int
    records: int
    events: tuple[int, int]
    sent: tuple[int, int]


def of_one_service(n: int) -> Cost:
    """One headless Service without a selector. At least: all addresses are known at once. At most: each address arrives alone."""
    slices = ceil(n / SLICE)
    full, rest = divmod(n, SLICE)
    alone = full * _sum_to(SLICE) + _sum_to(rest)
    return Cost(1, slices, 0, names=n + 1, records=2 * n, events=(1 + slices, 1 + n), sent=(n, alone))


def of_a_service_for_each_task(n: int) -> Cost:
    """One headless Service with a selector for each task, made before its pod runs.

    Kubernetes makes an empty slice with each Service. At least: the address comes with the pod's readiness. At most: before it.
    """
    return Cost(n, n, n, names=2 * n, records=2 * n, events=(3 * n, 4 * n), sent=(n, 2 * n))


def _sum_to(n: int) -> int:
    return n * (n + 1) // 2


def all_to_all(n: int) -> int:
    """Return the queries if each member looks up every other, as TensorFlow's servers do."""
    return QUERIES_OF_A_LOOKUP * n * (n - 1)


def to_coredns_with_node_caches(n: int) -> int:
    """Return how many of these queries leave the nodes: each node asks for each name once while its cache keeps the answer."""
    return QUERIES_OF_A_LOOKUP * n * nodes(n)


def fits_the_node_caches(n: int) -> bool:
    return n * REFUSALS_OF_A_LOOKUP <= CACHED_REFUSALS


def nodes(n: int) -> int:
    return ceil(n / MEMBERS_OF_A_NODE)


def replicas(nodes: int, cores: int, linear: dict[str, int]) -> int:
    """Return the autoscaler's number (linear_controller.go of kubernetes-sigs/cluster-proportional-autoscaler)."""
    found = max(ceil(cores / linear["coresPerReplica"]), ceil(nodes / linear["nodesPerReplica"]))
    least = 2 if linear["preventSinglePointFailure"] and nodes > 1 else 1
    return max(least, min(found, linear["max"]))


def seconds(queries: int, replicas: int) -> float:
    return queries / (replicas * QUERIES_PER_SECOND)


def answer_bytes(n: int, name: str) -> int:
    """Return the length of the answer for a name with n addresses."""
    return _HEADER + len(name.encode()) + 2 + _OF_THE_QUESTION + n * _RECORD

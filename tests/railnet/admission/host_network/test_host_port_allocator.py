"""The host ports of one replica, and of two that see the cluster's pods some time after each other."""

import asyncio
from collections import deque
from collections.abc import Callable
from random import Random

import pytest

from railnet.admission.host_network.host_port_allocator import HostPorts
from railnet.admission.host_network.host_port_usage import Identity, SeenPod, seen_pod
from railnet.errors import NotReady
from railnet.jobs.host_port_choice import PortRange
from railnet.objects.pod import Container, ContainerPort, Pod

RANGE = PortRange(20000, 29999)
POD = Pod(
    "mnist-worker-0", "ml", {}, {}, (Container("tensorflow", {}, False, {}, (ContainerPort("tfjob-port", 2222),)),)
)
ME = Identity("ml", ("training.kubedl.io", "mnist", "worker", "0"))


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def a_seen(name: str, *ports: int, identity: Identity | None = None, names: tuple[str, ...] | None = None) -> SeenPod:
    """Return a pod that runs, and that a review gave its first port."""
    kept = ports[0] if ports else None
    return SeenPod(name, ports, identity, names, replica=False, namespace="ml", kept_port=kept)


def a_replica(name: str) -> SeenPod:
    return SeenPod(name, (), None, None, replica=True)


def a_pod(namespace: str) -> Pod:
    return POD._replace(namespace=namespace)


def gives(ports: HostPorts, pod: Pod = POD) -> int:
    """Return the port that a pod has been given by a review."""
    port = ports.free_port(pod)
    ports.give(port, pod.namespace)
    return port


def seen(namespace: str, node: str, *numbers: int, given: int | None = None) -> SeenPod:
    """Return a pod with host ports as an informer sees it: `node` is empty before it is bound, `given` the port that a review gave it."""
    metadata = {
        "name": f"pod-of-{namespace}-{numbers[0]}",
        "namespace": namespace,
        "annotations": {} if given is None else {"railnet.io/host-port": str(given)},
    }
    ports = [{"containerPort": number, "hostPort": number} for number in numbers]
    spec = {"containers": [{"name": "c", "ports": ports}], **({"nodeName": node} if node else {})}
    found = seen_pod({"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}, ("railnet", "railnet"))
    assert found is not None
    return found


def known(
    ports: PortRange = RANGE, replicas: tuple[str, ...] = ("a",), me: str = "a", clock: Clock | None = None
) -> HostPorts:
    found = HostPorts(ports, me, clock or Clock())
    for name in replicas:
        found.changed(None, a_replica(name))
    found.listed()
    return found


def test_few_ports_are_kept_of_a_pod_with_thousands_and_the_one_that_a_review_gave_is_among_them() -> None:
    """Ten thousand pods of 64 ports took 96 MB of the webhook's 256."""
    found = seen("ml", "node-a", *range(20000, 30000), given=29999)

    assert (len(found.ports), found.ports[0], found.kept_port) == (16, 29999, 29999)


def test_no_port_is_given_before_the_pods_are_listed() -> None:
    with pytest.raises(NotReady, match="not listed; try again"):
        gives(HostPorts(RANGE, "a", Clock()))


def test_port_of_a_seen_pod_is_not_given() -> None:
    ports = known(PortRange(20000, 20002))
    ports.changed(None, a_seen("p", 20000))

    assert gives(ports) == 20001


def test_port_that_the_pod_declares_itself_is_not_given() -> None:
    pod = Pod(
        "p", "ml", {}, {}, (Container("c", {}, False, {}, (ContainerPort("a", 9000), ContainerPort("b", 20000))),)
    )

    assert gives(known(), pod) == 20001


def test_port_of_two_pods_is_free_when_both_have_gone() -> None:
    """A pod of another maker may have the port, too: on another node, or declared only."""
    ports = known(PortRange(20000, 20000))
    first, second = a_seen("p", 20000), a_seen("q", 20000)
    for pod in (first, second):
        ports.changed(None, pod)
    ports.changed(first, None)
    with pytest.raises(NotReady):
        gives(ports)
    ports.changed(second, None)

    assert gives(ports) == 20000


def test_given_port_is_given_again_if_its_pod_was_never_made() -> None:
    clock = Clock()
    ports = known(PortRange(20000, 20000), clock=clock)
    gives(ports)
    clock.seconds = 89
    with pytest.raises(NotReady, match="pods have 0 of 1"):
        gives(ports)
    clock.seconds = 91

    assert gives(ports) == 20000


def test_pod_that_is_made_again_gets_another_port() -> None:
    ports = known(PortRange(20000, 20001))
    given = gives(ports)
    ports.changed(None, a_seen("mnist-worker-0", given))
    ports.changed(a_seen("mnist-worker-0", given), None)

    assert gives(ports) != given


@pytest.mark.slow
def test_replicas_have_ports_of_their_own() -> None:
    names = ("a", "b", "c")
    replicas = [known(replicas=names, me=name) for name in names]

    given = [[gives(one) for _ in range(1000)] for one in replicas]

    assert len({port for ports in given for port in ports}) == 3000


def test_replica_that_is_alone_has_the_whole_range() -> None:
    ports = known(PortRange(20000, 20009), ("a", "b"))
    ports.changed(a_replica("b"), None)

    assert {gives(ports) for _ in range(10)} == set(range(20000, 20010))


def test_replica_that_does_not_see_its_own_pod_has_the_whole_range() -> None:
    ports = known(PortRange(20000, 20001), ("b", "c"))

    assert {gives(ports) for _ in range(2)} == {20000, 20001}


class Cluster:
    """An API server with two replicas of the webhook: each pod is reviewed by one of them, and both see it later, each by its own watch."""

    def __init__(self, random: Random, ports: PortRange, latest: int) -> None:
        """Let a replica see a change at most `latest` changes after it happened."""
        self._random, self._latest, self._clock = random, latest, Clock()
        self.replicas = [known(ports, ("a", "b"), name, self._clock) for name in ("a", "b")]
        self._unseen: list[deque[tuple[SeenPod | None, SeenPod | None]]] = [deque(), deque()]
        self.live: dict[int, SeenPod] = {}
        self.made = self.refused = 0

    def create(self) -> bool:
        """Have a pod made, as an operator does that tries again; return whether it was made."""
        for _ in range(20):
            try:
                port = gives(self._random.choice(self.replicas))
            except NotReady:
                self.refused += 1
                self.pass_time()
                continue
            assert port not in self.live, f"port {port} twice, with {len(self.live)} live pods"
            self.made += 1
            pod = self.live[port] = a_seen(f"pod-{self.made}", port)
            self._happened(None, pod)
            return True
        return False

    def delete(self) -> None:
        pod = self.live.pop(self._random.choice(list(self.live)))
        self._happened(pod, None)

    def pass_time(self) -> None:
        self._clock.seconds += 1
        for replica, unseen in zip(self.replicas, self._unseen, strict=True):
            while unseen:
                replica.changed(*unseen.popleft())

    def _happened(self, before: SeenPod | None, after: SeenPod | None) -> None:
        self._clock.seconds += 0.01
        for replica, unseen in zip(self.replicas, self._unseen, strict=True):
            unseen.append((before, after))
            while len(unseen) > self._random.randint(0, self._latest):
                replica.changed(*unseen.popleft())


@pytest.mark.parametrize(
    ("size", "seed"), [pytest.param(10_000, 0, marks=pytest.mark.slow), *((400, seed) for seed in range(5))]
)
def test_as_many_pods_as_ports_have_each_one_of_its_own(size: int, seed: int, measured: Callable[[str], None]) -> None:
    """Two replicas that see each change up to 30 changes late fill the range, while pods end and others are made."""
    random = Random(seed)  # noqa: S311 - the same pods in every run
    ports = PortRange(20000, 20000 + size - 1)
    cluster = Cluster(random, ports, latest=30)
    while len(cluster.live) < size:
        assert cluster.create()
        if random.random() < 0.2:
            cluster.delete()

    assert set(cluster.live) == set(range(ports.first, ports.last + 1))
    assert not cluster.create()
    for _ in range(size // 10):
        cluster.delete()
        assert cluster.create()
    measured(f"{cluster.made} pods made, {size} at a time, {cluster.refused} reviews refused, no port twice")


def test_full_range_is_refused_with_what_to_do() -> None:
    ports = known(PortRange(20000, 20001))
    for port in (20000, 20001):
        ports.changed(None, a_seen(f"p{port}", port))
    ports.changed(None, a_seen("other", 8080))

    with pytest.raises(
        NotReady, match=r"no host port of 20000-20001 is free .*: pods have 2 of 2; wait until pods end, or"
    ):
        gives(ports)


def test_pod_that_was_seen_is_returned_at_once() -> None:
    ports = known()
    pod = a_seen("mnist-worker-0", 20000, identity=ME, names=("tfjob-port",))
    ports.changed(None, pod)

    assert asyncio.run(ports.pod(ME, 0.01)) == pod


def test_pod_is_returned_as_soon_as_it_is_seen() -> None:
    async def main() -> SeenPod | None:
        ports = known()
        waiting = [asyncio.create_task(ports.pod(ME, 20)) for _ in range(2)]
        await asyncio.sleep(0)
        ports.changed(None, a_seen("other", 20001, identity=Identity("ml", ("other",))))
        await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        ports.changed(None, a_seen("mnist-worker-0", 20000, identity=ME))
        first, second = [await task for task in waiting]
        assert first == second
        return first

    assert (asyncio.run(main()) or a_seen("")).name == "mnist-worker-0"


def test_pod_that_is_not_seen_in_time_is_none() -> None:
    ports = known()
    gone = a_seen("mnist-worker-0", 20000, identity=ME)
    ports.changed(None, gone)
    ports.changed(gone, None)

    assert asyncio.run(ports.pod(ME, 0.01)) is None


def test_port_of_a_review_that_gave_none_stays_free() -> None:
    ports = known(PortRange(20000, 20000))

    assert [ports.free_port(POD) for _ in range(3)] == [20000] * 3


def test_namespace_gets_no_more_ports_while_a_quarter_of_the_range_waits_for_its_pods() -> None:
    """A quota refuses the pods after the review, or a client sends reviews and makes no pods."""
    clock = Clock()
    ports = known(PortRange(20000, 20399), clock=clock)
    for _ in range(100):
        gives(ports, a_pod("attacker"))
    with pytest.raises(NotReady, match="namespace attacker has 100 host ports that were given to pods which do not"):
        ports.free_port(a_pod("attacker"))
    assert gives(ports, a_pod("ml"))
    clock.seconds = 91

    assert ports.free_port(a_pod("attacker"))


def test_pods_that_come_make_room_for_more_pods_of_their_namespace() -> None:
    ports = known(PortRange(20000, 20399))
    for number in range(300):
        port = gives(ports, a_pod("ml"))
        ports.changed(None, seen("ml", f"node-{number}", port, given=port))

    assert gives(ports, a_pod("ml"))


@pytest.mark.parametrize("reviewed", [("attacker",), tuple(f"attacker-{number}" for number in range(1000))], ids=len)
def test_ports_of_pods_that_do_not_come_go_to_a_namespace_with_fewer(reviewed: tuple[str, ...]) -> None:
    clock = Clock()
    ports = known(PortRange(20000, 20063), clock=clock)
    for number in range(64):
        gives(ports, a_pod(reviewed[number % len(reviewed)]))
    with pytest.raises(NotReady, match="no host port of 20000-20063 is free"):
        ports.free_port(a_pod("ml"))  # the pods may still come
    clock.seconds = 3

    assert gives(ports, a_pod("ml")) == 20000


def test_port_of_a_pod_that_has_just_been_reviewed_is_not_given_to_another_namespace() -> None:
    clock = Clock()
    ports = known(PortRange(20000, 20001), clock=clock)
    gives(ports, a_pod("attacker"))
    gives(ports, a_pod("attacker"))
    clock.seconds = 3
    first = gives(ports, a_pod("ml"))
    second = gives(ports, a_pod("ml"))

    assert {first, second} == {20000, 20001}
    with pytest.raises(NotReady):
        gives(ports, a_pod("attacker"))


@pytest.mark.parametrize("node", ["", "node-a"], ids=["pending", "bound"])
@pytest.mark.slow
def test_pod_with_all_host_ports_takes_none_from_another_namespace(node: str) -> None:
    ports = known()
    pod = seen("attacker", node, *range(20000, 30000))
    ports.changed(None, pod)
    given = [gives(ports, a_pod("ml")) for _ in range(1000)]

    assert len(set(given)) == 1000
    assert len(pod.ports) < 100
    assert set(given).isdisjoint(pod.ports)


@pytest.mark.parametrize("node", ["", "node-a"], ids=["pending", "bound"])
@pytest.mark.slow
def test_many_pods_with_all_host_ports_take_none_from_another_namespace(node: str) -> None:
    ports = known()
    for first in range(20000, 30000, 50):
        ports.changed(None, seen("attacker", node, *range(first, first + 50)))

    assert len({gives(ports, a_pod("ml")) for _ in range(1000)}) == 1000


def test_ports_that_yield_go_to_one_pod_each_also_while_those_pods_are_pending() -> None:
    ports = known(PortRange(20000, 20099))
    for first in (20000, 20050):
        ports.changed(None, seen("attacker", "node-a", *range(first, first + 50)))
    given = []
    for namespace in ("ml", "other") * 20:
        port = gives(ports, a_pod(namespace))
        ports.changed(None, seen(namespace, "", port, given=port))
        given.append(port)

    assert len(set(given)) == 40


def test_pods_in_the_mode_that_no_node_has_yield_to_a_namespace_with_fewer() -> None:
    ports = known(PortRange(20000, 20003))
    for port in range(20000, 20004):
        ports.changed(None, seen("attacker", "", port, given=port))

    assert [gives(ports, a_pod("ml")) for _ in range(2)] == [20000, 20001]
    with pytest.raises(NotReady, match="pods have 4 of 4"):
        ports.free_port(a_pod("attacker"))


def test_port_of_a_running_pod_that_a_review_gave_is_kept_from_all_others() -> None:
    ports = known(PortRange(20000, 20000))
    ports.changed(None, seen("ml", "node-a", 20000, given=20000))
    ports.changed(None, seen("attacker", "node-b", 20000))

    with pytest.raises(NotReady, match="pods have 1 of 1"):
        ports.free_port(a_pod("other"))


def test_port_that_a_pods_author_calls_given_is_one_port_and_one_of_the_pods() -> None:
    many = seen("attacker", "node-a", *range(20000, 30000), given=29999)
    none = seen("attacker", "node-a", 20000, given=20001)

    assert (many.kept_port, many.ports[0], none.kept_port) == (29999, 29999, None)


def test_what_is_kept_of_pods_that_have_gone_is_nothing() -> None:
    ports = known(PortRange(20000, 20099))
    pods = [seen("attacker", node, *range(20000, 20050), given=20000) for node in ("", "node-a", "node-b")]
    for pod in pods:
        ports.changed(None, pod)
    for pod in pods:
        ports.changed(pod, None)

    assert [ports._holders.used, ports._holders._kept, ports._holders._yielding] == [{}, {}, {}]

"""The host ports of one replica, and of two that see the cluster's pods some time after each other."""

import asyncio
from collections import deque
from collections.abc import Callable
from random import Random

import pytest

from railnet.admission.host_port_allocator import HostPorts
from railnet.admission.host_port_usage import Identity, SeenPod
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
    return SeenPod(name, ports, identity, names, replica=False)


def a_replica(name: str) -> SeenPod:
    return SeenPod(name, (), None, None, replica=True)


def known(
    ports: PortRange = RANGE, replicas: tuple[str, ...] = ("a",), me: str = "a", clock: Clock | None = None
) -> HostPorts:
    found = HostPorts(ports, me, clock or Clock())
    for name in replicas:
        found.changed(None, a_replica(name))
    found.listed()
    return found


def test_no_port_is_given_before_the_pods_are_listed() -> None:
    with pytest.raises(NotReady, match="not listed; try again"):
        HostPorts(RANGE, "a", Clock()).free_port(POD)


def test_port_of_a_seen_pod_is_not_given() -> None:
    ports = known(PortRange(20000, 20002))
    ports.changed(None, a_seen("p", 20000))

    assert ports.free_port(POD) == 20001


def test_port_that_the_pod_declares_itself_is_not_given() -> None:
    pod = Pod(
        "p", "ml", {}, {}, (Container("c", {}, False, {}, (ContainerPort("a", 9000), ContainerPort("b", 20000))),)
    )

    assert known().free_port(pod) == 20001


def test_port_of_two_pods_is_free_when_both_have_gone() -> None:
    """A pod of another maker may have the port, too: on another node, or declared only."""
    ports = known(PortRange(20000, 20000))
    first, second = a_seen("p", 20000), a_seen("q", 20000)
    for pod in (first, second):
        ports.changed(None, pod)
    ports.changed(first, None)
    with pytest.raises(NotReady):
        ports.free_port(POD)
    ports.changed(second, None)

    assert ports.free_port(POD) == 20000


def test_given_port_is_given_again_if_its_pod_was_never_made() -> None:
    clock = Clock()
    ports = known(PortRange(20000, 20000), clock=clock)
    ports.free_port(POD)
    clock.seconds = 89
    with pytest.raises(NotReady, match="pods have 0 of 1"):
        ports.free_port(POD)
    clock.seconds = 91

    assert ports.free_port(POD) == 20000


def test_pod_that_is_made_again_gets_another_port() -> None:
    ports = known(PortRange(20000, 20001))
    given = ports.free_port(POD)
    ports.changed(None, a_seen("mnist-worker-0", given))
    ports.changed(a_seen("mnist-worker-0", given), None)

    assert ports.free_port(POD) != given


@pytest.mark.slow
def test_replicas_have_ports_of_their_own() -> None:
    names = ("a", "b", "c")
    replicas = [known(replicas=names, me=name) for name in names]

    given = [[one.free_port(POD) for _ in range(1000)] for one in replicas]

    assert len({port for ports in given for port in ports}) == 3000


def test_replica_that_is_alone_has_the_whole_range() -> None:
    ports = known(PortRange(20000, 20009), ("a", "b"))
    ports.changed(a_replica("b"), None)

    assert {ports.free_port(POD) for _ in range(10)} == set(range(20000, 20010))


def test_replica_that_does_not_see_its_own_pod_has_the_whole_range() -> None:
    ports = known(PortRange(20000, 20001), ("b", "c"))

    assert {ports.free_port(POD) for _ in range(2)} == {20000, 20001}


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
                port = self._random.choice(self.replicas).free_port(POD)
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
        ports.free_port(POD)


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

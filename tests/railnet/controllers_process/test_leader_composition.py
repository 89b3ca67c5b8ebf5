"""What the leader does, with an API server in memory: it begins when all is known, and says what it waits for."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from railnet.apiserver import kubernetes_package_transport
from railnet.apiserver.request import Request, Verb
from railnet.backoff import Backoff
from railnet.configuration import Configuration, parse
from railnet.controllers import work_queue
from railnet.controllers_process.leader_composition import Leader
from railnet.controllers_process.metrics import ControllersMetrics, CountingApiServer
from tests.railnet.controllers.builders import pod
from tests.railnet.controllers.cluster_in_memory import Cluster, Refusal
from tests.railnet.controllers.gangs.gang_cluster import GangCluster
from tests.waiting import until

SECONDS = 20.0
DEFAULTS = Configuration()
SERVICE = "/api/v1/namespaces/ml/services/mnist-net1"
POD = "/api/v1/namespaces/ml/pods/w-0"


@contextmanager
def leading(cluster: Cluster, configuration: Configuration = DEFAULTS, *, gangs: bool = False) -> Iterator[Leader]:
    ended = threading.Event()
    api = CountingApiServer(cluster, lambda: "a-token", "test", ControllersMetrics())
    leader = Leader(api, ended, configuration, "railnet", places_gangs=gangs)
    thread = threading.Thread(target=leader.run)
    thread.start()
    try:
        yield leader
    finally:
        ended.set()
        thread.join(SECONDS)
        assert not thread.is_alive()


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.put(POD, pod("w-0", "10.56.0.1", root=None))
    return made


@pytest.mark.slow
def test_leader_makes_names_and_takes_them_back(cluster: Cluster) -> None:
    with leading(cluster) as leader:
        until(lambda: cluster.of("services") and cluster.of("endpointslices"), SECONDS, "the names")
        until(
            lambda: leader.objects() == {"pods": 1, "services": 1, "endpointslices": 1}, SECONDS, "the watches' reports"
        )
        cluster.remove(POD)
        until(lambda: not cluster.of("services") and not cluster.of("endpointslices"), SECONDS, "the names to go")
        assert list(leader.reasons()) == []
        assert leader.lost() == 0


@pytest.mark.parametrize(("minor", "warns"), [("29", True), ("30", False), ("29+", True)])
def test_leader_on_an_old_kubernetes_warns_once_and_works(
    cluster: Cluster, minor: str, *, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.minor = minor
    with leading(cluster) as leader:
        until(lambda: cluster.of("endpointslices"), SECONDS, "the names")
        until(lambda: cluster.requests["get version"], SECONDS, "the question for the version")
        assert list(leader.reasons()) == []

    words = "Kubernetes 1.29 is older than 1.30, which Railnet needs; 0.5.x is the last version for it"
    assert caplog.text.count(words) == warns
    assert cluster.requests["get version"] == 1


def test_leader_that_may_not_ask_for_the_version_works(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    refuse(cluster, lambda request: request.about.resource == "version", 403)
    with leading(cluster):
        until(lambda: cluster.of("endpointslices"), SECONDS, "the names")
        until(lambda: cluster.requests["get version"], SECONDS, "the question for the version")

    assert "does not know whether this Kubernetes is too old" in caplog.text


@pytest.mark.slow
def test_leader_that_cannot_list_deletes_nothing_and_says_why(cluster: Cluster) -> None:
    """Without the pods, all names would seem to be of jobs that have ended."""
    with leading(cluster):
        until(lambda: cluster.of("endpointslices"), SECONDS, "the names")
    refuse(cluster, lambda request: request.verb is Verb.LIST and request.about.resource == "pods")
    with leading(cluster) as leader:
        until(lambda: leader.objects().get("services"), SECONDS, "the Services to be known")
        reasons = until(lambda: list(leader.reasons()), SECONDS, "a reason")

        assert [reason for reason in reasons if "pods are not up to date: cannot list pods" in reason]
        assert until(leader.waiting, SECONDS, "the controller") == {"names on net1": 1, "rails of jobs": 0}
        time.sleep(0.5)  # for longer than changes gather
        assert leader.waiting() == {"names on net1": 1, "rails of jobs": 0}
        assert len(cluster.of("services")) == 1
    assert cluster.requests["delete services"] == 0


@pytest.mark.parametrize("status", [409, 410, 429, 503])
def test_write_that_is_refused_is_done_later(cluster: Cluster, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_queue, "_BACKOFF", Backoff(0.05, 60.0))
    left = [status] * 2

    def refused(request: Request) -> bool:
        return request.verb is Verb.CREATE and bool(left) and bool(left.pop())

    refuse(cluster, refused, status)
    with leading(cluster):
        until(lambda: cluster.of("services") and cluster.of("endpointslices"), SECONDS, "the names")

    assert left == []


def refuse(cluster: Cluster, refused: Callable[[Request], bool], status: int = 503) -> None:
    def interfere(request: Request) -> None:
        if refused(request):
            raise Refusal(status)

    cluster.interfere = interfere


@pytest.mark.parametrize("sticky", [False, True])
def test_table_of_addresses_is_read_only_where_a_network_has_addresses_that_stay(*, sticky: bool) -> None:
    cluster = Cluster()
    text = "networks: {staying: {ipam: {type: sticky, range: 10.58.0.0/16}}}" if sticky else ""
    with leading(cluster, parse(text, "node.yaml")) as leader:
        until(lambda: "names on net1" in leader.waiting() and not list(leader.reasons()), SECONDS, "all is listed")
        until(lambda: not sum(leader.waiting().values()), SECONDS, "nothing waits")
        titles = [title for title in leader.waiting() if "sticky" in title]

    assert len(titles) == 2 * sticky
    assert cluster.requests["get configmaps"] == sticky


def test_leader_places_a_gang_beside_its_other_work() -> None:
    cluster = GangCluster()
    cluster.add_node("a-0", "a")
    cluster.add_gang("bert", 1)
    with leading(cluster, gangs=True) as leader:
        until(lambda: not cluster.gated(), SECONDS, "the gate to be removed")
        until(lambda: cluster.of("events"), SECONDS, "the event")
        until(lambda: leader.gangs()["placed"] == 1, SECONDS, "the figures")
        asked = cluster.requests["patch pods"], cluster.requests["list pods"]
        assert list(leader.reasons()) == []

    assert cluster.leaves() == {"bert-0": "a"}
    assert asked == (1, 1)
    assert leader.gangs()["waiting"] == leader.gangs()["evictions"] == 0


def test_each_worker_and_each_watch_can_keep_its_connection(cluster: Cluster) -> None:
    """Beyond that, each request would begin a connection of its own."""
    configuration = parse("networks: {default: {ipam: {type: sticky, range: 10.58.0.0/16}}}", "node.yaml")
    leader = Leader(
        CountingApiServer(cluster, lambda: "a-token", "test", ControllersMetrics()),
        threading.Event(),
        configuration,
        cleans_up=True,
        places_gangs=True,
    )

    assert (
        sum(one.workers for one in leader._controllers) + len(leader._informers)
        <= kubernetes_package_transport._CONNECTIONS
    )
    assert len(leader._controllers) == 10

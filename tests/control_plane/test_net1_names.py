"""`railnet controllers`: names on net1 for the pods of jobs, through deaths, cuts and refusals."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.cluster.chart import CONTROLLERS
from tests.cluster.process import wait_until
from tests.control_plane.api import Api
from tests.control_plane.controllers import NODES, Controllers, Job, die_until
from tests.control_plane.manifests import applied
from tests.control_plane.nodes import node, some_nodes
from tests.control_plane.proxy import ApiProxy, refused
from tests.control_plane.server import ApiServer
from tests.control_plane.watched import Watched

_SECONDS = 180.0  # of a thousand pods, on a machine that does much else
_WRITES = ("create", "patch", "delete")
WRITTEN = ("services", "endpointslices")
TASK = {"railnet.io/names": "task"}


@pytest.fixture(scope="module")
def replica(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controllers]:
    with applied(server, CONTROLLERS), some_nodes(server.api, [node(name, pods="1000") for name in NODES]):
        yield Controllers(server, tmp_path_factory.mktemp("controllers"))


@pytest.fixture
def proxy(server: ApiServer) -> Iterator[ApiProxy]:
    with ApiProxy(server.api) as found:
        yield found


@pytest.fixture
def controllers(replica: Controllers) -> Iterator[Controllers]:
    replica.start()
    try:
        replica.wait()
        yield replica
    finally:
        replica.stop()


def address(number: int) -> str:
    return f"10.56.{number // 250}.{number % 250 + 1}"


def names(job: Job, count: int) -> dict[str, str]:
    return {f"{job.name}-{number}": address(number) for number in range(count)}


def test_members_have_names_from_their_annotation_until_they_end(server: ApiServer, controllers: Controllers) -> None:
    job = Job(server, "mnist")
    for number in range(3):
        job.add(number)
        job.attach(number, address(number))
    job.wait(names(job, 3), "three names")

    assert job.services() == ["mnist-net1"]
    assert list(job.slices()) == ["mnist-net1-0"]
    assert job.owners() == {job.root["metadata"]["uid"]}
    for number in range(3):
        job.end(number)
    wait_until(lambda: not job.services() and not job.slices(), _SECONDS, "all names to be free")
    assert job.events() == []


@pytest.mark.parametrize(
    "spec",
    [
        {"ports": [{"name": "ssh", "port": 22}]},
        {"externalIPs": ["10.96.7.9"]},
        {"publishNotReadyAddresses": False},
    ],
    ids="".join,
)
def test_service_that_a_tenant_edits_is_corrected(
    server: ApiServer, controllers: Controllers, spec: dict[str, object]
) -> None:
    job = Job(server, f"edited-{''.join(spec).lower()}")
    job.add(0)
    job.attach(0, address(0))
    job.wait(names(job, 1), "a name")
    service = f"{job.name}-net1"
    before = job.spec(service)
    job.edit_service(service, spec)

    wait_until(lambda: job.spec(service) == before, _SECONDS, "the Service to be as it was")
    assert job.names() == names(job, 1)
    job.remove([0])


def test_addresses_of_no_network_are_in_no_slice(server: ApiServer, controllers: Controllers) -> None:
    """The kind of CVE-2021-25740: the author of a pod writes its annotation, and the controllers write slices."""
    job = Job(server, "forged")
    for number, forged in enumerate(("10.96.0.1", "8.8.8.8")):
        job.add(number)
        job.attach(number, forged)
    job.add(2, {"railnet.io/net1-ip": "10.96.0.1/24"})
    job.add(3)
    job.attach(3, address(3))
    job.wait({"forged-3": address(3)}, "the name of the only member with an address of its network")
    wait_until(lambda: len(job.events()) == 3, _SECONDS, "an event of each of the other three")

    assert set(job.events()) == {("Pod", "Net1NameRefused")}
    assert job.names() == {"forged-3": address(3)}
    job.remove(range(4))


def test_task_without_a_rank_is_refused_and_causes_no_write_at_rest(
    server: ApiServer, controllers: Controllers
) -> None:
    """Its Service had the name of the job's own: each look wrote both, and the API server was asked without end."""
    job = Job(server, "rankless")
    job.add(0, TASK, labels={"railnet.io/rank": None, "railnet.io/role": "net1"})
    job.attach(0, address(0))
    job.wait(names(job, 1), "a name")
    wait_until(job.events, _SECONDS, "an event")
    before = controllers.requests(*_WRITES)
    # A change of another job is written after this job was looked at again.
    other = Job(server, "rankless-other")
    other.add(0)
    other.attach(0, address(1))
    other.wait({"rankless-other-0": address(1)}, "a name of another job")
    after = controllers.requests(*_WRITES)

    assert job.events() == [("Pod", "Net1NameRefused")]
    assert job.services() == ["rankless-net1"]
    written = {what: after[what] - before.get(what, 0) for what in after if after[what] != before.get(what, 0)}
    assert written == {"create services": 1, "create endpointslices": 1}
    job.remove([0])
    other.remove([0])


def test_service_that_is_changed_back_after_each_write_is_left_alone(
    server: ApiServer, controllers: Controllers
) -> None:
    job = Job(server, "contested")
    job.add(0)
    job.attach(0, address(0))
    job.wait(names(job, 1), "a name")
    before = job.spec("contested-net1")

    def change_back() -> bool:
        if job.spec("contested-net1") == before:
            job.edit_service("contested-net1", {"ports": [{"name": "ssh", "port": 22}]})
        return bool(job.events())

    wait_until(change_back, 4 * _SECONDS, "the event of a Service that is left alone")

    assert job.events() == [("Job", "Net1NameLeftAlone")]
    assert controllers.requests("patch")["patch services"] == 9
    assert "railnet_controllers_writes_left_out_total 0" not in controllers.asked("/metrics")
    assert job.names() == names(job, 1)
    job.remove([0])


def test_service_of_another_owner_stays_and_the_job_has_an_event(server: ApiServer, controllers: Controllers) -> None:
    job = Job(server, "taken")
    theirs = {"metadata": {"name": "taken-net1"}, "spec": {"clusterIP": "10.96.7.7", "ports": [{"port": 80}]}}
    made = server.api.create(f"/api/v1/namespaces/{job.name}/services", theirs).object
    job.add(0)
    job.attach(0, address(0))
    wait_until(job.events, _SECONDS, "an event")

    assert job.events() == [("Job", "Net1NameTaken")]
    assert job.slices() == {}
    assert server.api.get(f"/api/v1/namespaces/{job.name}/services/taken-net1").object == made
    job.remove([0])  # else each later leader of this file tries it again


def test_leader_that_is_killed_at_each_write_leaves_what_one_leader_makes(
    server: ApiServer, replica: Controllers, proxy: ApiProxy, measured: Callable[[str], None]
) -> None:
    job = Job(server, "mortal")
    for number in range(120):
        job.add(number, TASK if number == 7 else None)
        job.attach(number, address(number))
    made = die_until(replica, proxy, lambda: len(job.slices()) == 3 and len(job.names()) == 120, WRITTEN)
    slices = job.slices()

    assert job.services() == ["mortal-net1", "mortal-worker-7"]
    assert [len(slices[name]) for name in ("mortal-net1-0", "mortal-net1-1", "mortal-worker-7-0")] == [100, 20, 1]
    job.remove(range(120))
    gone = die_until(replica, proxy, lambda: not job.services() and not job.slices(), WRITTEN)
    measured(f"leaders killed at their first write: {made} until all names were made, {gone} until all were gone")
    # Five objects are made and deleted: each write was done once by a leader that died of it, and one died before it.
    assert made >= 10
    assert gone >= 10


def test_writes_that_are_refused_are_repeated(server: ApiServer, replica: Controllers, proxy: ApiProxy) -> None:
    job = Job(server, "refused")
    for number in range(120):
        job.add(number)
        job.attach(number, address(number))
    proxy.fault = refused(WRITTEN)
    replica.start(proxy)
    try:
        job.wait(names(job, 120), "all names")
    finally:
        replica.stop()

    assert job.services() == ["refused-net1"]
    assert sorted(map(len, job.slices().values())) == [20, 100]


def test_watch_that_is_cut_and_too_old_loses_nothing(server: ApiServer, replica: Controllers, proxy: ApiProxy) -> None:
    """While the leader watches nothing, pods change, and the API server forgets the versions from before."""
    job = Job(server, "cut")
    replica.start(proxy)
    try:
        replica.wait()
        for number in range(4):
            job.add(number)
            job.attach(number, address(number))
        job.wait(names(job, 4), "four names")
        lists = replica.requests("list")["list pods"]
        with proxy.without_watches():
            job.remove([0])
            job.attach(1, "10.56.99.1")
            job.add(4)
            job.attach(4, address(4))
            server.restart()
            assert set(job.names()) == set(names(job, 4))  # the leader has not heard of it

        expected = names(job, 5) | {"cut-1": "10.56.99.1"}
        del expected["cut-0"]
        job.wait(expected, "what changed meanwhile")
        assert replica.requests("list")["list pods"] > lists
    finally:
        replica.stop()


def test_thousand_members_have_one_service_and_ten_slices(
    server: ApiServer, controllers: Controllers, measured: Callable[[str], None]
) -> None:
    job, members = Job(server, "thousand"), 1000
    others = controllers.pods()
    for number in range(members):
        job.add(number)
    wait_until(lambda: controllers.pods() == others + members, _SECONDS, "all pods to be known")
    attached = dict.fromkeys(range(members), 0.0)
    before = controllers.requests(*_WRITES)
    began = time.monotonic()
    with Watched(server.api, f"/apis/discovery.k8s.io/v1/namespaces/{job.name}/endpointslices") as watched:
        annotate(job, attached, server.api)
        took = time.monotonic() - began
        wait_until(lambda: len(first_seen(watched)) >= members, _SECONDS, "the watch to report all names")
    assert job.names() == names(job, members)
    seen = first_seen(watched)
    late = sorted(seen[address(number)] - moment for number, moment in attached.items())
    sent = {what: count - before.get(what, 0) for what, count in controllers.requests(*_WRITES).items()}
    measured(
        f"1,000 members, annotated within {took:.1f} s: annotation to endpoint p50 {late[500]:.2f} s, p99 {late[990]:.2f} s, "
        f"slowest {late[-1]:.2f} s; requests that write: {sum(sent.values())} ({sent})"
    )

    assert job.services() == ["thousand-net1"]
    assert list(map(len, job.slices().values())) == [100] * 10
    assert sent["create services"] == 1
    assert sent["create endpointslices"] == 10
    assert sum(sent.values()) <= 11 + 3 * took / 0.5 + 3  # of the ten slices, two or three change in half a second
    rest = controllers.requests()
    time.sleep(12.0)
    assert controllers.requests() == rest


def first_seen(watched: Watched) -> dict[str, float]:
    """Return when each address was first in a slice."""
    found: dict[str, float] = {}
    for one in tuple(watched.reported):
        for end in one.object.get("endpoints") or ():
            found.setdefault(end["addresses"][0], one.at)
    return found


def annotate(job: Job, attached: dict[int, float], api: Api, threads: int = 4) -> None:
    def some(first: int) -> None:
        client = api.another()
        for number in range(first, len(attached), threads):
            job.attach(number, address(number), client)
            attached[number] = time.monotonic()
        client.close()

    running = [threading.Thread(target=some, args=(first,)) for first in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()

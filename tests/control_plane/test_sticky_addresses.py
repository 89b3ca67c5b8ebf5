"""`railnet controllers`: addresses that stay with a rank, by the annotation that nodes read."""

import time
from collections.abc import Callable, Iterator

import pytest

from tests.cluster.chart import ENABLED
from tests.cluster.process import wait_until
from tests.control_plane.controllers import NODES, Controllers, Job
from tests.control_plane.manifests import applied
from tests.control_plane.nodes import node, some_nodes
from tests.control_plane.server import ApiServer

_SECONDS = 180.0  # of a thousand pods, on a machine that does much else
VALUES = {"controllers": {**ENABLED, "stickyAddresses": {**ENABLED, "range": "10.58.0.0/16"}}}
STICKY = {"railnet.io/sticky": "true"}
TABLE = "/api/v1/namespaces/railnet/configmaps/railnet-sticky-addresses"
FEW = {**STICKY, "railnet.io/network": "few"}
CONFIGURATION = {
    "networks": {
        "staying": {"ipam": {"type": "sticky", "range": "10.58.0.0/16"}},
        "few": {"ipam": {"type": "sticky", "range": "10.59.0.0/28"}},
    },
    "limits": {"*": {"networks": ["default", "staying", "few"]}},
}


@pytest.fixture(scope="module", autouse=True)
def manifests(server: ApiServer) -> Iterator[None]:
    made = [node(name, rdma_ib_vf="1000", pods="1000") for name in NODES]
    with applied(server, VALUES), some_nodes(server.api, made):
        yield


@pytest.fixture
def controllers(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controllers]:
    found = Controllers(server, tmp_path_factory.mktemp("sticky"), CONFIGURATION)
    found.start()
    try:
        found.wait()
        yield found
    finally:
        found.stop()
        server.api.send("DELETE", TABLE)


def given(server: ApiServer, job: Job) -> dict[str, str]:
    """Return the address that each pod's annotation names."""
    items = server.api.get(job.pods).object["items"]
    found = {one["metadata"]["name"]: one["metadata"].get("annotations", {}).get("railnet.io/net1-ip") for one in items}
    return {name: text for name, text in found.items() if text}


def test_member_that_is_made_again_has_its_address_under_the_next_leader(
    server: ApiServer, controllers: Controllers
) -> None:
    job = Job(server, "again")
    for number in range(3):
        job.add(number, STICKY, 1)
    wait_until(lambda: len(given(server, job)) == 3, _SECONDS, "three addresses")
    first = given(server, job)
    controllers.stop()
    job.remove([0, 1, 2])
    job.add(1, STICKY, 1)
    controllers.start()
    wait_until(lambda: given(server, job), _SECONDS, "an address")
    again = given(server, job)
    server.api.send("DELETE", f"/apis/batch/v1/namespaces/{job.name}/jobs/{job.name}")
    job.remove([1])

    assert first == {f"again-{number}": f"10.58.0.{number + 1}/16" for number in range(3)}
    assert again == {"again-1": "10.58.0.2/16"}
    wait_until(lambda: not server.api.get(TABLE).object.get("data"), _SECONDS, "the addresses to be free")


def test_tenant_that_has_one_pod_at_a_time_takes_no_address_that_another_tenant_needs(
    server: ApiServer, controllers: Controllers
) -> None:
    hoard, needs = Job(server, "hoard"), Job(server, "needs")
    for number in range(14):
        hoard.add(number, FEW, 1)
        wait_until(lambda: given(server, hoard), _SECONDS, "an address of the tenant's only pod")
        hoard.remove([number])
    before = server.api.get(TABLE).object["data"]["few"]
    for number in range(5):
        needs.add(number, FEW, 1)
    wait_until(lambda: len(given(server, needs)) == 5, _SECONDS, "five addresses of another tenant's pods")
    after = given(server, needs)
    needs.remove(range(5))

    assert before.count("worker-") == 14
    assert len(set(after.values())) == 5
    assert needs.events() == []


def test_thousand_pods_have_addresses_and_names_before_any_of_them_starts(
    server: ApiServer, controllers: Controllers, measured: Callable[[str], None]
) -> None:
    job = Job(server, "many")
    began = time.monotonic()
    for number in range(1000):
        job.add(number, STICKY, 1)
    made = time.monotonic()
    wait_until(lambda: len(given(server, job)) == 1000, _SECONDS, "a thousand addresses")
    addressed = time.monotonic()
    plain = {name: text.partition("/")[0] for name, text in given(server, job).items()}
    wait_until(lambda: job.names() == plain, _SECONDS, "a thousand names")
    named = time.monotonic()
    requests = controllers.requests("create", "update", "patch")
    measured(
        f"1,000 sticky pods: created in {made - began:.1f} s; all have addresses {addressed - made:.2f} s and names "
        f"{named - made:.2f} s after the last; requests: {requests}"
    )

    assert len(set(plain.values())) == 1000
    assert requests["patch pods"] == 1000
    job.remove(range(1000))

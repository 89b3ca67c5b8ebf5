"""Prepare and Unprepare as kubelet calls them, by a socket."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from deviceplugin.allocation import PoolOffer
from deviceplugin.devices import Offers
from deviceplugin.pool_selection import DEFAULT
from railnet.apiserver.client import Absent, RequestFailed
from railnet.dra import cdi_spec
from railnet.dra.cdi_files import CdiFiles
from railnet.dra.claim import ClaimIdentity
from railnet.dra.device_metadata_files import DeviceMetadataFiles
from railnet.dra.prepared_claim_files import PreparedClaims
from railnet.dra.service import DraService, NodeFacts, address_of
from railnet.kernel.waiting import until
from railnet.kubelet.api import dra_pb2 as api
from railnet.kubelet.api import dra_pb2_grpc as grpc_api
from railnet.vf.pci_address import PciAddress
from railnet.vf.vf_table import Owner, VfTable
from tests.deviceplugin.builders import two_rails
from tests.railnet.dra.claims import FIRST, IDENTITY, NODE, THIRD, a_claim_object, a_result

OFFERED = Offers(DEFAULT, DEFAULT[0]).now(VfTable(two_rails()))
OTHER = ClaimIdentity("ml", "other", "c3d4")
_SECONDS = 20


class Host:
    """A node with a driver: what the API server and kubelet's files say of it, and what the driver has written."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "var/run").mkdir(parents=True)
        self.objects: dict[ClaimIdentity, dict[str, Any] | Exception] = {IDENTITY: a_claim_object()}
        self.attached: dict[PciAddress, Owner] = {}
        self.by_pods: dict[PciAddress, str] = {}
        self.by_claims: dict[PciAddress, str] = {}
        self.closed: str | None = None
        self.inactive: str | None = None
        self.reads: list[ClaimIdentity] = []
        self.release = threading.Event()
        self.release.set()
        self.changes = 0

    def claims(self) -> PreparedClaims:
        return PreparedClaims(self.root / "claims")

    def metadata(self) -> list[str]:
        folder = self.root / "device-metadata"
        return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.json"))

    def cdi(self) -> list[str]:
        folder = self.root / "var/run/cdi"
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []

    def service(self, seconds: float = 10.0) -> DraService:
        async def by_pods() -> dict[PciAddress, str]:
            return self.by_pods

        async def by_claims(_uid: str) -> dict[PciAddress, str]:
            return self.by_claims

        facts = NodeFacts(
            NODE,
            lambda: [PoolOffer(DEFAULT[0], OFFERED, {})],
            self.attached.get,
            by_pods,
            by_claims,
            dict,
            self.closed,
            lambda: self.inactive,
        )
        files = DeviceMetadataFiles(self.root / "device-metadata")
        cdi = CdiFiles(self.root, files.folder)
        return DraService(facts, self.claims(), cdi, files, self._read, self._change, read_seconds=seconds)

    def _change(self) -> None:
        self.changes += 1

    def _read(self, identity: ClaimIdentity) -> dict[str, Any]:
        self.reads.append(identity)
        assert self.release.wait(_SECONDS)
        answer = self.objects[identity]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


class Dialled:
    """Kubelet's connection to the driver."""

    def __init__(self, stub: grpc_api.DRAPluginStub) -> None:
        self._stub = stub

    async def prepare(self, *claims: ClaimIdentity) -> dict[str, api.NodePrepareResourceResponse]:
        request = api.NodePrepareResourcesRequest(claims=[_claim(identity) for identity in claims])
        return dict((await self._stub.NodePrepareResources(request, timeout=_SECONDS)).claims)

    async def unprepare(self, *claims: ClaimIdentity) -> dict[str, str]:
        request = api.NodeUnprepareResourcesRequest(claims=[_claim(identity) for identity in claims])
        answer = await self._stub.NodeUnprepareResources(request, timeout=_SECONDS)
        return {uid: response.error for uid, response in answer.claims.items()}


def _claim(identity: ClaimIdentity) -> api.Claim:
    return api.Claim(namespace=identity.namespace, name=identity.name, uid=identity.uid)


def during(host: Host, act: Callable[[Dialled], Awaitable[None]], seconds: float = 10.0) -> None:
    """Run `act` while a driver serves the host."""

    async def main() -> None:
        server = grpc.aio.server()
        host.service(seconds).serve_on(server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                await act(Dialled(grpc_api.DRAPluginStub(channel)))
        finally:
            await server.stop(None)

    asyncio.run(main())


def prepared(host: Host, identity: ClaimIdentity = IDENTITY, seconds: float = 10.0) -> api.NodePrepareResourceResponse:
    """Return the answer to one Prepare by a driver that has just started."""
    answers = []

    async def act(dialled: Dialled) -> None:
        answers.append((await dialled.prepare(identity))[identity.uid])

    during(host, act, seconds)
    return answers[0]


def unprepared(host: Host, identity: ClaimIdentity = IDENTITY) -> str:
    answers = []

    async def act(dialled: Dialled) -> None:
        answers.append((await dialled.unprepare(identity))[identity.uid])

    during(host, act)
    return answers[0]


@pytest.mark.parametrize("before", [False, True], ids=["new claim", "prepared claim"])
def test_no_claim_is_prepared_while_pods_would_start_without_their_rails(host: Host, *, before: bool) -> None:
    if before:
        prepared(host)
    recorded = host.claims().uids
    host.inactive = "the container runtime does not use /etc/cni/net.d/00-railnet.conflist"
    answer = prepared(host)
    host.inactive = None

    assert (answer.error, list(answer.devices)) == (
        "claim ml/train-vf is not prepared: the container runtime does not use /etc/cni/net.d/00-railnet.conflist; kubelet tries again",
        [],
    )
    assert host.claims().uids == recorded
    assert len(prepared(host).devices) == 1


def test_claim_is_recorded_and_has_a_cdi_device(host: Host) -> None:
    answer = prepared(host)

    (device,) = answer.devices
    assert (answer.error, list(device.request_names), device.pool_name, device.device_name) == (
        "",
        ["vf"],
        NODE,
        "pci-0000-03-00-1",
    )
    assert list(device.cdi_device_ids) == ["rdma.railnet.io/claim=a1b2-vf"]
    assert (host.claims().uids, host.cdi(), host.changes) == ({"a1b2"}, [cdi_spec.file_name("a1b2")], 1)


def test_request_with_several_vfs_has_one_cdi_device(host: Host) -> None:
    host.objects[IDENTITY] = a_claim_object(a_result(), a_result("pci-0000-83-00-1"))

    answer = prepared(host)

    assert [(device.device_name, len(device.cdi_device_ids)) for device in answer.devices] == [
        ("pci-0000-03-00-1", 1),
        ("pci-0000-83-00-1", 0),
    ]
    spec = json.loads((host.root / "var/run/cdi" / host.cdi()[0]).read_bytes())
    assert "NCCL_IB_HCA==mlx5_4:1,mlx5_2:1" in spec["devices"][0]["containerEdits"]["env"]


def test_container_gets_the_list_of_all_vfs_whichever_requests_it_names(host: Host) -> None:
    host.objects[IDENTITY] = a_claim_object(a_result("pci-0000-83-00-1", "b"), a_result(request="a"))

    answer = prepared(host)
    spec = json.loads((host.root / "var/run/cdi" / host.cdi()[0]).read_bytes())

    assert [(list(device.request_names), list(device.cdi_device_ids)) for device in answer.devices] == [
        (["b"], ["rdma.railnet.io/claim=a1b2-b"]),
        (["a"], ["rdma.railnet.io/claim=a1b2-a"]),
    ]
    assert all("NCCL_IB_HCA==mlx5_4:1,mlx5_2:1" in device["containerEdits"]["env"] for device in spec["devices"])


def test_prepare_is_idempotent_also_after_a_restart(host: Host) -> None:
    first = prepared(host)
    (host.root / "var/run/cdi" / host.cdi()[0]).unlink()
    (host.root / "device-metadata" / host.metadata()[0]).unlink()

    assert prepared(host) == first
    assert host.metadata() == ["a1b2/vf.json"]
    assert (host.cdi(), host.changes) == ([cdi_spec.file_name("a1b2")], 1)


def test_second_claim_for_the_same_vf_is_refused_until_the_first_is_unprepared(host: Host) -> None:
    host.objects[OTHER] = a_claim_object(uid="c3d4", name="other")
    answers = []

    async def act(dialled: Dialled) -> None:
        both = await dialled.prepare(IDENTITY, OTHER)
        answers.append({uid: answer.error for uid, answer in both.items()})
        await dialled.unprepare(IDENTITY)
        answers.append({uid: answer.error for uid, answer in (await dialled.prepare(OTHER)).items()})

    during(host, act)

    refused = [error for error in answers[0].values() if error]
    assert len(refused) == 1
    assert "which is not free: claim ml/" in refused[0]
    assert answers[1] == {"c3d4": ""}


@pytest.mark.parametrize("why", ["by_claims", "by_pods", "attached"])
def test_claim_is_refused_when_the_vf_is_given_away(host: Host, why: str) -> None:
    getattr(host, why)[FIRST] = Owner("c1", "eth0", "uid-9") if why == "attached" else "uid-9 has it"

    assert "which is not free" in prepared(host).error
    assert (host.claims().uids, host.cdi(), host.changes) == (set(), [], 0)


def test_claim_of_another_uid_is_refused(host: Host) -> None:
    asked = IDENTITY._replace(uid="e5f6")
    host.objects[asked] = a_claim_object()

    assert "has the UID a1b2 in the API server, and kubelet asks for e5f6" in prepared(host, asked).error


@pytest.mark.parametrize("uid", ["", "../../x"])
def test_uid_that_is_none_is_refused_in_both_calls(host: Host, uid: str) -> None:
    asked = IDENTITY._replace(uid=uid)

    assert "which is none" in prepared(host, asked).error
    assert "which is none" in unprepared(host, asked)
    assert host.reads == []


def test_recorded_claim_is_answered_while_the_api_server_is_away(host: Host) -> None:
    first = prepared(host)
    host.objects[IDENTITY] = RequestFailed("cannot get: connection refused")

    assert prepared(host) == first


def test_new_claim_is_refused_in_words_while_the_api_server_is_away(host: Host) -> None:
    host.objects[IDENTITY] = RequestFailed("cannot get: connection refused")

    error = prepared(host).error

    assert error.startswith("claim ml/train-vf cannot be read")
    assert "connection refused; kubelet tries again" in error


def test_new_claim_is_refused_in_words_when_the_api_server_is_slow(host: Host) -> None:
    host.release.clear()

    error = prepared(host, seconds=0.05).error
    host.release.set()

    assert "the API server did not answer within 0.05 s" in error


def test_claim_that_is_deleted_is_refused_even_if_it_is_recorded(host: Host) -> None:
    prepared(host)
    host.objects[IDENTITY] = Absent("cannot get: not found")

    assert "is not in the API server: it was deleted" in prepared(host).error


def test_other_choice_of_the_scheduler_replaces_the_record(host: Host) -> None:
    prepared(host)
    host.objects[IDENTITY] = a_claim_object(a_result("pci-0000-83-00-1"))

    (device,) = prepared(host).devices

    recorded = host.claims().get("a1b2")
    assert (device.device_name, recorded is not None and recorded.vfs) == ("pci-0000-83-00-1", (THIRD,))


def test_closed_node_prepares_no_new_claim_and_serves_those_that_it_has(host: Host) -> None:
    first = prepared(host)
    host.closed = "the node offers its VFs by the device plugin"
    host.objects[OTHER] = a_claim_object(a_result("pci-0000-83-00-1"), uid="c3d4", name="other")

    assert "claim ml/other is not prepared: the node offers its VFs by the device plugin" in prepared(host, OTHER).error
    assert prepared(host) == first
    assert (unprepared(host), host.claims().uids) == ("", set())


def test_unprepare_removes_what_prepare_wrote(host: Host) -> None:
    prepared(host)

    assert host.metadata() == ["a1b2/vf.json"]
    assert (unprepared(host), host.claims().uids, host.cdi(), host.changes) == ("", set(), [], 2)
    assert list((host.root / "device-metadata").iterdir()) == []
    assert unprepared(host) == ""


def test_claim_without_a_record_is_unprepared(host: Host) -> None:
    """After a reboot kubelet knows claims of which Railnet has no record."""
    assert (unprepared(host), host.changes) == ("", 0)


def test_unprepare_needs_no_api_server(host: Host) -> None:
    prepared(host)
    host.objects.clear()

    assert (unprepared(host), host.reads) == ("", [IDENTITY])


def test_unprepare_is_refused_while_a_sandbox_has_the_vf(host: Host) -> None:
    prepared(host)
    host.attached[FIRST] = Owner("c1", "eth0", "uid-1")

    assert "is attached to sandbox c1 of pod uid-1" in unprepared(host)
    assert (host.claims().uids, len(host.cdi())) == ({"a1b2"}, 1)


def test_disk_that_refuses_is_told_in_words_and_costs_no_other_claim(host: Host) -> None:
    host.objects[OTHER] = RequestFailed("cannot get: connection refused")
    (host.root / "var/run").rmdir()
    answers: dict[str, str] = {}

    async def act(dialled: Dialled) -> None:
        both = await dialled.prepare(IDENTITY, OTHER)
        answers.update({uid: answer.error for uid, answer in both.items()})

    during(host, act)

    assert "claim ml/train-vf is not prepared: [Errno 2] No such file" in answers["a1b2"]
    assert "connection refused" in answers["c3d4"]


def test_claims_are_read_at_the_same_time(host: Host) -> None:
    host.objects[OTHER] = a_claim_object(a_result("pci-0000-83-00-1"), uid="c3d4", name="other")
    host.release.clear()

    async def act(dialled: Dialled) -> None:
        call = asyncio.create_task(dialled.prepare(IDENTITY, OTHER))
        await until(lambda: len(host.reads) == 2, _SECONDS, 0.01)
        host.release.set()
        assert [answer.error for answer in (await call).values()] == ["", ""]

    during(host, act)


def test_claim_is_read_where_the_api_server_has_it() -> None:
    assert address_of(IDENTITY).path == "/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims/train-vf"


def test_driver_registers_as_what_kubelet_knows(host: Host) -> None:
    service = host.service()

    assert (service.kind, service.name, service.versions) == ("DRAPlugin", "rdma.railnet.io", ("v1.DRAPlugin",))
    assert service.watched

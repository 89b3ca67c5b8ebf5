"""Which VFs a pod has: the checkpoint answers; kubelet is asked only if the checkpoint cannot."""

import asyncio
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from cni import request as requests
from cni.host.errors import TRY_AGAIN, CniError
from cni.pod_devices import PodClaims, PodDevices
from railnet.errors import NotOurs, NotReady
from railnet.kernel.threads.file_reads import read_in_time
from railnet.kubelet.checkpointed_responses import ContainerAllocation
from railnet.kubelet.dra_driver_name import DRIVER
from railnet.kubelet.dra_manager_state_file import MOST_BYTES, DraManagerStateReads
from railnet.vf.pci_address import PciAddress
from railnet.vf.record import SandboxPod
from tests.cni.fake_executable import CONF, ENVIRON
from tests.railnet.kubelet.dra_state import a_claim, a_state

RAIL = "rdma/ib_vf"
POD = "K8S_POD_NAMESPACE=ml;K8S_POD_NAME=train-0"


class Kubelet:
    """Kubelet's state folder, and a pod-resources socket that counts connections and answers none."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.connections = 0
        self.prepared: dict[str, tuple[ContainerAllocation, ...]] = {}
        self.any_recorded = False

    def remember(self, *entries: tuple[str, str, object], raw: bytes | None = None) -> None:
        listed = [{"PodUID": uid, "ResourceName": name, "DeviceIDs": ids} for uid, name, ids in entries]
        self.never_allocated()
        path = self.folder / "device-plugins/kubelet_internal_checkpoint"
        path.write_bytes(raw if raw is not None else json.dumps({"Data": {"PodDeviceEntries": listed}}).encode())

    def socket(self) -> Path:
        return self.folder / "pod-resources/kubelet.sock"

    def never_allocated(self) -> None:
        (self.folder / "device-plugins").mkdir()

    def devices(self) -> PodDevices:
        state = self.folder / "dra_manager_state"
        claims = PodClaims(
            DraManagerStateReads(lambda: os.open(state, os.O_RDONLY), read_in_time, lambda: self.any_recorded),
            lambda uid: self.prepared.get(uid, ()),
            {PciAddress.parse("0000:03:00.1"): RAIL}.get,
            lambda: self.any_recorded,
        )
        return PodDevices(
            self.folder / "device-plugins",
            lambda: nullcontext(self.socket()),
            frozenset({RAIL}),
            0.3,
            claims=claims,
        )

    def claims(self, raw: bytes) -> None:
        """Have kubelet's `dra_manager_state`, a record of a claim, and a checkpoint without devices."""
        self.never_allocated()
        self.any_recorded = True
        (self.folder / "dra_manager_state").write_bytes(raw)

    def of(self, uid: str = "uid-1") -> list[tuple[str, str]]:
        """Ask for the devices of a pod, with their resources."""
        return asyncio.run(self.devices().of(SandboxPod("ml", "train-0", uid)))

    def vfs(self, args: str = f"{POD};K8S_POD_UID=uid-1") -> list[str]:
        """Ask which VFs the pod has."""
        request = requests.parse({**ENVIRON, b"CNI_ARGS": args.encode()}, CONF, None)

        async def main() -> list[str]:
            (self.folder / "pod-resources").mkdir()
            async with await asyncio.start_unix_server(self._hang_up, self.socket()):
                found = await self.devices().vfs(request.pod)
            return [str(vf) for vf in found]

        return asyncio.run(main())

    async def _hang_up(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        writer.close()


@pytest.fixture
def kubelet() -> Iterator[Kubelet]:
    """In a short path: a Unix socket's has at most 107 bytes, and pytest's folders take most of them."""
    with tempfile.TemporaryDirectory(prefix="kubelet-") as name:
        yield Kubelet(Path(name))


def test_vfs_are_the_checkpoints_and_kubelet_is_not_asked(kubelet: Kubelet) -> None:
    kubelet.remember(
        ("uid-1", RAIL, {"0": ["0000:83:00.1"]}),
        ("uid-1", RAIL, ["0000:03:00.1", "0000:83:00.1"]),
        ("uid-1", "nvidia.com/gpu", {"0": ["GPU-1"]}),
        ("uid-2", RAIL, {"0": ["0000:03:00.2"]}),
    )

    assert kubelet.vfs() == ["0000:03:00.1", "0000:83:00.1"]
    assert kubelet.connections == 0


def test_pod_that_is_not_listed_has_no_rail_while_another_pods_is_pending(kubelet: Kubelet) -> None:
    kubelet.remember(("uid-2", RAIL, {"0": ["0000:03:00.2"]}))

    assert (kubelet.vfs(), kubelet.connections) == ([], 0)


def test_no_pod_has_a_rail_where_kubelet_never_allocated(kubelet: Kubelet) -> None:
    kubelet.never_allocated()

    assert (kubelet.vfs(), kubelet.connections) == ([], 0)


def test_sandbox_that_is_no_pod_has_no_rail_and_kubelet_is_not_asked(kubelet: Kubelet) -> None:
    assert (kubelet.vfs(args="IgnoreUnknown=1"), kubelet.connections) == ([], 0)


def test_device_that_is_no_pci_address_is_not_ours(kubelet: Kubelet) -> None:
    kubelet.remember(("uid-1", RAIL, {"0": ["GPU-1"]}))

    with pytest.raises(NotOurs, match="'GPU-1' is not a PCI address"):
        kubelet.vfs()


UNANSWERED = {
    "no folder": (None, f"{POD};K8S_POD_UID=uid-1", "device-plugins is missing"),
    "empty": (b"", f"{POD};K8S_POD_UID=uid-1", "not understood"),
    "another shape that names the pod": (
        b'{"pods": {"uid-1": ["rdma/ib_vf"]}}',
        f"{POD};K8S_POD_UID=uid-1",
        "not understood",
    ),
    "nested deeply": (b"[" * 100_000, f"{POD};K8S_POD_UID=uid-1", "nested too deeply"),
    "no UID": (b'{"pods": {"uid-1": ["rdma/ib_vf"]}}', POD, "did not pass K8S_POD_UID"),
}


def test_pod_that_a_checkpoint_of_another_shape_does_not_name_has_no_rail_when_kubelet_does_not_answer(kubelet) -> None:
    kubelet.remember(raw=b'{"pods": {"uid-2": ["rdma/ib_vf"]}}')

    assert kubelet.vfs() == []


@pytest.mark.parametrize(("raw", "args", "why"), UNANSWERED.values(), ids=UNANSWERED.keys())
def test_pod_must_try_again_when_neither_checkpoint_nor_kubelet_answers(kubelet, raw, args: str, why: str) -> None:
    kubelet.remember(raw=raw) if raw is not None else None

    with pytest.raises(CniError, match="neither kubelet's files nor kubelet answer") as raised:
        kubelet.vfs(args)

    assert raised.value.code == TRY_AGAIN
    assert why in raised.value.details
    assert kubelet.connections > 0


@pytest.mark.parametrize(("looks", "watched"), [(1, True), (3, True), (1000, False)])
def test_kubelet_is_waited_for_until_it_watches_or_has_had_its_time(
    kubelet: Kubelet, looks: int, *, watched: bool
) -> None:
    left = iter([False] * (looks - 1) + [True])
    seen: list[bool] = []

    def look() -> bool:
        seen.append(next(left))
        return seen[-1]

    seconds = 60.0 if watched else 0.1
    asyncio.run(
        PodDevices(
            kubelet.folder / "device-plugins", lambda: nullcontext(kubelet.socket()), frozenset({RAIL}), seconds, look
        ).until_watched()
    )

    assert seen[-1] is watched


# Claims of DRA.


def test_devices_are_those_of_the_checkpoint_and_of_the_pods_claims(kubelet: Kubelet) -> None:
    kubelet.remember(("uid-1", RAIL, {"0": ["0000:83:00.1"]}))
    state = a_state(a_claim(), a_claim("claim-2", devices=("pci-0000-03-00-2",)), a_claim("claim-3", ("uid-2",)))
    (kubelet.folder / "dra_manager_state").write_bytes(state)

    assert kubelet.of() == [(RAIL, "0000:83:00.1"), (DRIVER, "0000:03:00.2"), (RAIL, "0000:03:00.1")]
    assert kubelet.connections == 0


def test_plain_pod_has_no_claim_of_another_pod(kubelet: Kubelet) -> None:
    kubelet.claims(a_state(a_claim()))

    assert (kubelet.of("uid-2"), kubelet.vfs(f"{POD};K8S_POD_UID=uid-2"), kubelet.connections) == ([], [], 0)


def test_pod_whose_claim_is_not_prepared_must_try_again(kubelet: Kubelet) -> None:
    kubelet.claims(a_state(a_claim(devices=())))

    with pytest.raises(CniError, match="claim ml/train-vf of this pod is not prepared") as raised:
        kubelet.vfs()

    assert (raised.value.code, kubelet.connections) == (TRY_AGAIN, 0)


def test_claim_with_a_device_of_another_driver_is_not_ours(kubelet: Kubelet) -> None:
    kubelet.claims(a_state(a_claim(devices=("gpu-0",))))

    with pytest.raises(NotOurs, match="'gpu-0' is not the name of a VF's device"):
        kubelet.vfs()


@pytest.mark.parametrize(
    "raw", [a_state(a_claim()).replace(b"train-vf", b"train-vg"), b'{"claims": ["uid-1 rdma.railnet.io"]}']
)
def test_pod_that_an_unreadable_file_of_claims_may_name_must_try_again(kubelet: Kubelet, raw: bytes) -> None:
    kubelet.claims(raw)

    with pytest.raises(CniError, match="unknown whether this pod asked for a rail") as raised:
        kubelet.vfs()

    assert "dra_manager_state is not understood" in raised.value.details
    assert raised.value.code == TRY_AGAIN


@pytest.mark.parametrize(
    "raw", [a_state(a_claim()).replace(b"train-vf", b"train-vg"), b'{"claims": ["uid-1 rdma.railnet.io"]}']
)
def test_plain_pod_starts_beside_an_unreadable_file_of_claims(kubelet: Kubelet, raw: bytes) -> None:
    kubelet.claims(raw)

    assert kubelet.vfs(f"{POD};K8S_POD_UID=uid-9") == []


def test_pod_with_a_device_keeps_it_beside_an_unreadable_file_of_claims(kubelet: Kubelet) -> None:
    kubelet.remember(("uid-9", RAIL, {"0": ["0000:83:00.1"]}))
    (kubelet.folder / "dra_manager_state").write_bytes(b'{"claims": ["uid-1 rdma.railnet.io"]}')

    assert kubelet.vfs(f"{POD};K8S_POD_UID=uid-9") == ["0000:83:00.1"]


def test_pod_must_try_again_when_the_claims_cannot_be_read_and_kubelet_does_not_answer(kubelet: Kubelet) -> None:
    kubelet.never_allocated()
    kubelet.any_recorded = True
    (kubelet.folder / "dra_manager_state").mkdir()

    with pytest.raises(CniError, match="unknown whether") as raised:
        kubelet.vfs()

    assert "Is a directory" in raised.value.details


UNREADABLE = {
    "empty": b"",
    "half-written": a_state(a_claim())[:-40],
    "another checksum": a_state(a_claim()).replace(b"train-vf", b"train-vg"),
    "huge": bytes(MOST_BYTES + 1),
}


@pytest.mark.parametrize("raw", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_no_pod_waits_for_an_unreadable_file_of_claims_where_none_is_recorded(kubelet: Kubelet, raw: bytes) -> None:
    kubelet.claims(raw)
    kubelet.any_recorded = False

    assert (kubelet.vfs(), kubelet.connections) == ([], 0)


def test_pod_must_try_again_when_the_file_of_claims_is_absent_although_one_is_recorded(kubelet: Kubelet) -> None:
    kubelet.claims(b"")
    (kubelet.folder / "dra_manager_state").unlink()

    with pytest.raises(CniError, match="unknown whether this pod asked for a rail") as raised:
        kubelet.vfs()

    assert "this file is not in its root folder" in raised.value.details


def test_file_of_claims_that_is_too_large_is_told(kubelet: Kubelet) -> None:
    kubelet.claims(UNREADABLE["huge"])

    with pytest.raises(CniError, match="unknown whether this pod asked for a rail") as raised:
        kubelet.vfs()

    assert f"is larger than {MOST_BYTES} bytes" in raised.value.details


def refuse(kubelet: Kubelet, holder: str) -> None:
    held = {PciAddress.parse("0000:03:00.1"): holder}
    asyncio.run(kubelet.devices().refuse_held_by_other_pods(SandboxPod("ml", "train-0", "uid-1"), held))


def test_second_pod_of_a_shared_claim_is_told_which_pod_has_the_vf(kubelet: Kubelet) -> None:
    kubelet.claims(a_state(a_claim(pods=("uid-1", "uid-2"))))

    with pytest.raises(
        NotReady, match=r"VF 0000:03:00\.1 is of claim ml/train-vf, which this pod shares with pod uid-2"
    ):
        refuse(kubelet, "uid-2")


def test_vf_that_kubelet_gives_again_is_refused_while_the_pod_that_has_it_has_its_claim(kubelet: Kubelet) -> None:
    kubelet.claims(a_state(a_claim(), a_claim("claim-2", ("uid-2",))))

    with pytest.raises(NotOurs, match=r"to this pod, and by claim ml/train-vf to pod uid-2, which has it"):
        refuse(kubelet, "uid-2")


@pytest.mark.parametrize(("holder", "pods"), [("uid-3", ("uid-1", "uid-2")), ("uid-1", ("uid-1", "uid-2"))])
def test_vf_of_a_pod_that_is_being_taken_down_is_waited_for(
    kubelet: Kubelet, holder: str, pods: tuple[str, ...]
) -> None:
    kubelet.claims(a_state(a_claim(pods=pods), a_claim("claim-2", devices=("gpu-0",))))

    refuse(kubelet, holder)


def test_containers_of_a_claim_got_what_was_prepared(kubelet: Kubelet) -> None:
    answer = ContainerAllocation(frozenset({"0000:03:00.1"}), frozenset({"/dev/infiniband/uverbs1"}), {})
    kubelet.prepared = {"claim-1": (answer,), "claim-2": (answer, answer)}
    kubelet.claims(a_state(a_claim(), a_claim("claim-3"), a_claim("claim-2", ("uid-2",))))

    assert asyncio.run(kubelet.devices().allocations(SandboxPod("ml", "train-0", "uid-1"))) == (answer,)

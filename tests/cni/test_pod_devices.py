"""Which VFs a pod has: the checkpoint answers; kubelet is asked only if the checkpoint cannot."""

import asyncio
import json
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from cni import request as requests
from cni.host.errors import TRY_AGAIN, CniError
from cni.pod_devices import PodDevices
from railnet.errors import NotOurs
from tests.cni.fake_executable import CONF, ENVIRON

RAIL = "rdma/ib_vf"
POD = "K8S_POD_NAMESPACE=ml;K8S_POD_NAME=train-0"


class Kubelet:
    """Kubelet's state folder, and a pod-resources socket that counts connections and answers none."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.connections = 0

    def remember(self, *entries: tuple[str, str, object], raw: bytes | None = None) -> None:
        listed = [{"PodUID": uid, "ResourceName": name, "DeviceIDs": ids} for uid, name, ids in entries]
        self.never_allocated()
        path = self.folder / "device-plugins/kubelet_internal_checkpoint"
        path.write_bytes(raw if raw is not None else json.dumps({"Data": {"PodDeviceEntries": listed}}).encode())

    def socket(self) -> Path:
        return self.folder / "pod-resources/kubelet.sock"

    def never_allocated(self) -> None:
        (self.folder / "device-plugins").mkdir()

    def vfs(self, args: str = f"{POD};K8S_POD_UID=uid-1") -> list[str]:
        """Ask which VFs the pod has."""
        request = requests.parse({**ENVIRON, b"CNI_ARGS": args.encode()}, CONF, None)

        async def main() -> list[str]:
            (self.folder / "pod-resources").mkdir()
            async with await asyncio.start_unix_server(self._hang_up, self.socket()):
                found = await PodDevices(
                    self.folder / "device-plugins", lambda: nullcontext(self.socket()), frozenset({RAIL}), 0.3
                ).vfs(request.pod)
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

    with pytest.raises(CniError, match="neither kubelet's checkpoint nor kubelet answers") as raised:
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

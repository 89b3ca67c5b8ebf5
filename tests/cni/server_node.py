"""A node's files with the daemon's server among them, for fake executables to connect to; its attachments change no kernel."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from cni import primary_configuration
from cni.delegate_slots import DelegateSlots
from cni.flannel_shortcut import FlannelDelegates
from cni.host.chain import Primary
from cni.pod_devices import PodDevices
from cni.rail_observers import AddRefused, RailsAttached
from cni.request import CniRequest
from cni.request_cancellation import TimeLimits
from cni.request_handler import RequestHandler
from cni.sandbox_locks import PerKey
from cni.server import Server
from cni.verbs.verb_dependencies import Parts
from railnet.vf.pci_address import PciAddress
from railnet.vf.record import Netns, Record, SandboxPod
from railnet.vf.vf_table import Owner
from tests.cni.fake_executable import PRIMARY, FakeExecutable
from tests.railnet.vf.builders import FIRST, a_record, an_attachment

RAIL = "rdma/ib_vf"
PATIENT = TimeLimits(delegate=20, add=20)


async def _at_once() -> None:
    pass


class FakeAttachments:
    """Attaches nothing; logs each call. `refuses` is what `attach` raises; `returning` is awaited by the late part of a DEL."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.refuses: Exception | None = None
        self.owner: Owner | None = None
        self.attaching: Callable[[], Awaitable[None]] = _at_once
        self.returning: Callable[[], Awaitable[None]] = _at_once
        self._record: Record | None = None

    def attached(self, vf: PciAddress) -> Owner | None:
        return self.owner

    def record(self, key: str) -> Record | None:
        return self._record

    def rebuilt(self, netns: Netns | None, ifname: str) -> None:
        return None

    def permit(self, pod: SandboxPod, resources: Collection[str]) -> None:
        """Permit everything: `test_network` and the node tier are about limits."""

    async def plan(self, request: CniRequest, vfs: tuple[object, ...], primary: Primary) -> Record:
        self.log.append("plan")
        self._record = a_record(an_attachment(vf=FIRST), primary=primary_configuration.as_recorded(primary, {}))
        return self._record

    async def attach(self, record: Record, netns_fd: int | None) -> None:
        self.log.append("attach")
        await self.attaching()
        if self.refuses is not None:
            raise self.refuses

    def confirm(self, record: Record) -> None:
        self.log.append("confirm")

    def announce(self, record: Record) -> None:
        self.log.append("announce")

    async def detach(self, record: Record, netns_fd: int | None) -> Record:
        self.log.append("detach" if netns_fd is not None else "detach by the record")
        return replace(record, attachments=())

    def addresses_may_be_elsewhere(self, record: Record) -> bool:
        return False

    def begin_detach(self, record: Record) -> Record:
        self.log.append("begin to detach")
        return replace(record, stage="detaching")

    async def detach_and_forget(self, detaching: Record, netns_fd: int | None) -> None:
        self.log.append("detach and forget" if netns_fd is not None else "detach and forget by the record")
        await self.returning()
        self._record = None

    async def take_back(self, record: Record) -> None:
        self.log.append("take back")
        self._record = None

    async def collect(self, valid: frozenset[str], younger_than: float, seconds: float) -> list[str]:
        self.log.append(f"collect all but {', '.join(valid)}")
        return []

    def forget(self, record: Record) -> None:
        self.log.append("forget")
        self._record = None


class FakePrimaryGc:
    """Reclaims nothing; logs each call."""

    def __init__(self, log: list[str]) -> None:
        self._log = log

    async def collect(self, primary: Primary, valid: frozenset[str], seconds: float) -> list[str]:
        self._log.append(f"collect of {primary.name} all but {', '.join(valid)}")
        return []


class CountedRequests:
    """Metrics that keep what is reported, without the times."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, int | None]] = []
        self.stages: list[tuple[str, str]] = []

    def served(self, verb: str, code: int | None, seconds: float) -> None:
        self.requests.append((verb, code))

    def stage(self, verb: str, name: str, seconds: float) -> None:
        self.stages.append((verb, name))


class Node:
    """A host's files, and the daemon's server on a socket among them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "run/cni.sock"
        self.attachments = FakeAttachments()
        self.primary_gc = FakePrimaryGc(self.attachments.log)
        self.events: list[RailsAttached | AddRefused] = []
        self.slots = DelegateSlots()
        self.metrics = CountedRequests()
        self.report = b'{"report": 1}'
        self.kubelet = folder / "kubelet"
        self.kubelet_knows()
        self.has_primary('{"cniVersion": "1.0.0", "name": "cbr0", "plugins": [{"type": "flannel"}]}')

    def has_primary(self, text: str) -> None:
        path = self.folder / PRIMARY.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def kubelet_knows(self, *entries: dict[str, object]) -> None:
        path = self.kubelet / "device-plugins/kubelet_internal_checkpoint"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"Data": {"PodDeviceEntries": entries}}))

    async def _told(self) -> bytes:
        return self.report

    def _pod_devices(self) -> PodDevices:
        socket = self.kubelet / "pod-resources/kubelet.sock"
        return PodDevices(self.kubelet / "device-plugins", lambda: nullcontext(socket), frozenset({RAIL}), 0.3)

    def serve(
        self, *plays: Callable[[FakeExecutable], Awaitable[object]], limits: TimeLimits = PATIENT
    ) -> list[object]:
        """Serve while fake executables play one after another. Return what each of them returned."""

        async def play_on_a_connection(play: Callable[[FakeExecutable], Awaitable[object]]) -> object:
            executable = await FakeExecutable.connected(self.socket)
            try:
                return await asyncio.wait_for(play(executable), 20)
            finally:
                executable.close()

        async def main() -> list[object]:
            ready = asyncio.Event()

            async def set_ready() -> None:
                ready.set()

            devices, attachments = self._pod_devices(), self.attachments
            parts = Parts(devices, attachments, PerKey(), attachments, self.primary_gc, self.folder, limits)
            handler = RequestHandler(parts, self.events.append, self.metrics)
            server = Server(handler, limits, self.slots, FlannelDelegates(self.folder), self._told)
            serving = asyncio.create_task(server.serve(self.socket, set_ready))
            await ready.wait()
            try:
                return [await play_on_a_connection(play) for play in plays]
            finally:
                serving.cancel()
                await asyncio.wait((serving,))

        return asyncio.run(main())

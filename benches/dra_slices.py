"""Measure the ResourceSlices of a node with 1,016 VFs: how many writes, how many bytes, and how long until the API server has them.

Run by `scripts/bench dra-slices`, inside scripts/with-control-plane: a real API server with the chart's rights and admission policies, and the token of
a daemon. The publisher is the daemon's own; its pauses are left out. The devices are 8 cards with 127 VFs each, with all attributes.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

from benches.gang_scale import Figures, report
from railnet.apiserver.client import Answer, ApiServer
from railnet.apiserver.node_transport import NodeTransport
from railnet.apiserver.request import Request, Verb
from railnet.apiserver.service_account import ServiceAccount
from railnet.backoff import Backoff
from railnet.dra.api_thread import ApiThread
from railnet.dra.devices import DraDevice
from railnet.dra.slice_publisher import PublisherPauses, SlicePublisher
from railnet.vf.pci_address import PciAddress
from tests.cluster.process import wait_until
from tests.control_plane.daemon_tokens import OF_NODE_A, daemons
from tests.control_plane.server import ApiServer as ControlPlane

CARDS, VFS = 8, 127
ROUNDS = 5
NODE = "node-a"
_SLICES = f"/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.nodeName={NODE},spec.driver=rdma.railnet.io"
_NO_PAUSES = PublisherPauses(0.0, 0.0, 0.0, 600.0, (), Backoff(1.0, 1.0))
_WRITES = (Verb.CREATE, Verb.UPDATE, Verb.DELETE)
_SECONDS = 120.0


@dataclass(slots=True)
class Counted:
    """A transport that counts the writes, and the bytes of their bodies."""

    transport: NodeTransport
    writes: int = 0
    sent: int = 0

    def exchange(self, request: Request, headers: Mapping[str, str], most_bytes: int) -> Answer:
        """Send a request."""
        answer = self.transport.exchange(request, headers, most_bytes)
        if request.verb in _WRITES:
            self.writes += 1
            self.sent += 0 if request.body is None else len(json.dumps(request.body))
        return answer


class Step(NamedTuple):
    """What a node's devices are next; `anew`: another daemon publishes them."""

    name: str
    devices: Sequence[DraDevice]
    anew: bool = False


class Node:
    """A node whose devices change; its publisher is that of a daemon that has just started."""

    def __init__(self, account: ServiceAccount) -> None:
        """Send with the rights of an account."""
        self._account = account
        self._devices: tuple[DraDevice, ...] = ()
        self.start()

    def start(self) -> None:
        """Begin as another daemon does, which knows nothing of what was written."""
        self.counted = Counted(NodeTransport(self._account))
        self._thread = ApiThread(ApiServer(self.counted, self._account.token, "railnet"))
        self._publisher = SlicePublisher(self._compute, _NO_PAUSES)

    async def publish(self, devices: Sequence[DraDevice]) -> tuple[int, int, float]:
        """Have these devices; return writes, bytes and milliseconds until the API server has them."""
        self._devices = tuple(devices)
        writes, sent, began = self.counted.writes, self.counted.sent, time.perf_counter()
        await self._publisher.step(self._thread, NODE)
        taken = (time.perf_counter() - began) * 1000
        if self._publisher.trouble is not None:
            raise RuntimeError(self._publisher.trouble)
        return self.counted.writes - writes, self.counted.sent - sent, taken

    async def _compute(self) -> tuple[DraDevice, ...]:
        return self._devices


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="scripts/bench dra-slices", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds ({ROUNDS})")
    arguments = parser.parse_args()
    with (
        ControlPlane() as server,
        daemons(server, {"offer": "dra"}) as tokens,
        tempfile.TemporaryDirectory() as folder,
    ):
        account = account_of(server, tokens[OF_NODE_A], Path(folder))
        figures = asyncio.run(measure(server, account, arguments.rounds))
    report(figures, arguments.json)


def account_of(server: ControlPlane, token: str, folder: Path) -> ServiceAccount:
    """Return the account of a daemon, with the files that kubelet would mount."""
    (folder / "token").write_text(token)
    (folder / "ca.crt").write_bytes(server.api.authority.read_bytes())
    return ServiceAccount(server.api.host, 443, folder)


async def measure(server: ControlPlane, account: ServiceAccount, rounds: int) -> Figures:
    """Return the medians of the rounds."""
    every = vfs()
    tainted = [replace(device, reason="the port of its card is DOWN") for device in every]
    steps = [  # one after the other, from no slice at all
        Step("the first time", every),
        Step("nothing has changed, a daemon starts anew", every, anew=True),
        Step("one VF becomes unhealthy", [tainted[0], *every[1:]]),
        Step("all VFs of its card are unhealthy", [*tainted[:VFS], *every[VFS:]]),
        Step("all are healthy again", every),
        Step("one VF is gone", every[1:]),
    ]
    taken: dict[str, list[tuple[int, int, float]]] = {step.name: [] for step in steps}
    node = Node(account)
    wait_until(
        lambda: server.api.get(_SLICES, account.token()).status == HTTPStatus.OK, _SECONDS, "the right to read slices"
    )
    for _ in range(rounds):
        node.start()
        for step in steps:
            if step.anew:
                node.start()
            taken[step.name].append(await node.publish(step.devices))
        await node.publish([])
    figures: Figures = {}
    for name, measured in taken.items():
        writes, sent, milliseconds = (statistics.median(column) for column in zip(*measured, strict=True))
        figures |= {f"{name}: writes": writes, f"{name}: kB": sent / 1000, f"{name}: ms": milliseconds}
    return figures


def vfs() -> list[DraDevice]:
    """Return the devices of all VFs, in their order."""
    return [a_vf(card, number) for card in range(CARDS) for number in range(VFS)]


def a_vf(card: int, number: int) -> DraDevice:
    """Return the device of a VF, with the attributes that a card in operation has."""
    function = number + 1
    address = PciAddress(0, 3 + 0x10 * card, function // 8, function % 8)
    attributes: dict[str, bool | int | str] = {
        "guid": f"b8:59:9f:03:{card:02x}:00:00:{number:02x}",
        "leaf": "b8599f0300f98f86",
        "linkType": "infiniband",
        "mtu": 4092,
        "pf": f"0000:{3 + 0x10 * card:02x}:00.0",
        "portState": "ACTIVE",
        "rail": card,
        "rate": "400",
        "rdma": True,
        "resource": "rdma/ib_vf",
        "resource.kubernetes.io/numaNode": card // 4,
        "resource.kubernetes.io/pciBusID": str(address),
        "resource.kubernetes.io/pcieRoot": f"pci0000:{0x10 * card:02x}",
    }
    return DraDevice(address, card, tuple(sorted(attributes.items())))


if __name__ == "__main__":
    main()

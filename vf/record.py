"""The journal's record: what one sandbox has of ours, as kept on disk. Values and their JSON; no files."""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from ipaddress import ip_address, ip_interface, ip_network
from typing import Any, Literal, NamedTuple

from vf.address import PciAddress
from vf.function import DeviceNode, LinkLayer
from vf.guid import Guid
from vf.step import IpInterface, Route

_VERSION = 2  # raised whenever a key comes or goes

# planned: written, perhaps begun. attached: all of it is there. detaching: begun to be taken back.
Stage = Literal["planned", "attached", "detaching"]


class Unreadable(ValueError):
    """A record's bytes are not what was written: truncated, changed, or of another version."""


class Netns(NamedTuple):
    """A sandbox's network namespace: where it is bound, and the device and inode that make sure it is the same one."""

    path: str
    dev: int
    inode: int


class Pod(NamedTuple):
    """The pod as the runtime named it; each part may be ""."""

    namespace: str
    name: str
    uid: str


class Ipam(NamedTuple):
    """An IPAM plugin's network configuration, the interfaces it is asked for one by one, and the CNI_PATH it is in."""

    conf: dict[str, Any]
    ifnames: tuple[str, ...]
    path: str


@dataclass(frozen=True, slots=True)
class Attachment:
    """One rail of one sandbox: which VF is there as `ifname`, and what its netdev was called on the node.

    `mtu` is in bytes. `guid`, `rdma` and `uverbs` are of the VF's RDMA device, None where it has none.
    """

    ifname: str
    vf: PciAddress
    rail: int
    link_layer: LinkLayer
    guid: Guid | None
    mtu: int
    addresses: tuple[IpInterface, ...]
    host_ifname: str
    rdma: str | None
    uverbs: DeviceNode | None
    routes: tuple[Route, ...] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """Everything needed to take a sandbox's rails back, whoever has died in between.

    `primary` is the primary's configuration as it was at ADD (`conf`), with the `runtimeConfig` it was run with. `network`
    names the rails' network; `ipam` is what its IPAM plugin was configured with, None where there is none.
    """

    container_id: str
    ifname: str
    netns: Netns
    pod: Pod
    stage: Stage
    attachments: tuple[Attachment, ...]
    primary: dict[str, Any] = field(default_factory=dict)
    network: str = ""
    ipam: Ipam | None = None

    @property
    def key(self) -> str:
        """Name it, as its file and its lock are named."""
        return f"{self.container_id}@{self.ifname}"


def encode(record: Record) -> bytes:
    """Spell a record as JSON that ends in the SHA-256 of all before it."""
    body: dict[str, Any] = {
        "version": _VERSION,
        "id": record.container_id,
        "ifname": record.ifname,
        "netns": record.netns._asdict(),
        "pod": record.pod._asdict(),
        "stage": record.stage,
        "attachments": [_encode_attachment(attachment) for attachment in record.attachments],
        "primary": record.primary,
        "network": record.network,
        "ipam": None if record.ipam is None else record.ipam._asdict(),
    }
    return json.dumps({**body, "sha256": _digest(body)}, indent=1).encode() + b"\n"


def decode(raw: bytes) -> Record:
    """Read what `encode` wrote.

    Raises:
        Unreadable: it is not that.
    """
    try:
        body = json.loads(raw)
        digest = body.pop("sha256")
        if body["version"] != _VERSION:
            raise Unreadable(f"version {body['version']!r}; this Railnet reads {_VERSION}")
        if digest != _digest(body):
            raise Unreadable("its SHA-256 is another")
        return Record(
            container_id=body["id"],
            ifname=body["ifname"],
            netns=Netns(**body["netns"]),
            pod=Pod(**body["pod"]),
            stage=body["stage"],
            attachments=tuple(_decode_attachment(attachment) for attachment in body["attachments"]),
            primary=body["primary"],
            network=body["network"],
            ipam=None if body["ipam"] is None else _decode_ipam(body["ipam"]),
        )
    except Unreadable:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Unreadable(f"{type(error).__name__}: {error}") from None


def _decode_ipam(body: dict[str, Any]) -> Ipam:
    return Ipam(body["conf"], tuple(body["ifnames"]), body["path"])


def _encode_attachment(attachment: Attachment) -> dict[str, Any]:
    return {
        **asdict(attachment),
        "vf": str(attachment.vf),
        "guid": None if attachment.guid is None else str(attachment.guid),
        "addresses": [str(address) for address in attachment.addresses],
        "uverbs": None if attachment.uverbs is None else attachment.uverbs._asdict(),
        "routes": [
            {"dst": str(destination), "gw": None if gateway is None else str(gateway)}
            for destination, gateway in attachment.routes
        ],
    }


def _decode_attachment(body: dict[str, Any]) -> Attachment:
    return Attachment(
        ifname=body["ifname"],
        vf=PciAddress.parse(body["vf"]),
        rail=body["rail"],
        link_layer=body["link_layer"],
        guid=None if body["guid"] is None else Guid.parse(body["guid"]),
        mtu=body["mtu"],
        addresses=tuple(ip_interface(address) for address in body["addresses"]),
        host_ifname=body["host_ifname"],
        rdma=body["rdma"],
        uverbs=None if body["uverbs"] is None else DeviceNode(**body["uverbs"]),
        routes=tuple(
            Route(ip_network(route["dst"]), None if route["gw"] is None else ip_address(route["gw"]))
            for route in body["routes"]
        ),
    )


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()

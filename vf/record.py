"""The journal's record: what one sandbox has of ours, as kept on disk. Values and their JSON; no files."""

import hashlib
import json
import re
from dataclasses import asdict, dataclass, field
from ipaddress import ip_address, ip_interface, ip_network
from typing import Any, Literal, NamedTuple, get_args

from vf.address import PciAddress
from vf.guid import Guid
from vf.inventory import DeviceNode, LinkLayer
from vf.steps import IpInterface, Route

UNKNOWN = "unknown-"  # of a namespace's inode: the container id of a sandbox that nothing names
_VERSION = 3  # raised whenever a key comes or goes
_BEFORE_BOOT = 2  # the one before, which lacks `boot`: sandboxes live over an upgrade of the daemon

# What a runtime may call a container and its interface (libcni, pkg/utils/utils.go; the kernel's IFNAMSIZ), here of a file's name.
_KEY = re.compile(r"([a-zA-Z0-9][\w.-]{0,200})@([^/\s]{1,15})", re.ASCII)
_NETNS = re.compile(rb'"netns":\s*(\{[^{}]*\})')
_POD = re.compile(rb'"pod":\s*(\{[^{}]*\})')

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
    names the rails' network; `ipam` is what its IPAM plugin was configured with, None where there is none. `boot` is the
    boot that the namespace is of, as the kernel's random/boot_id says it; "" is not known.
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
    boot: str = ""

    @property
    def adopted(self) -> bool:
        """Whether it was made again from what the kernel shows: what ADD had written was lost."""
        return not self.primary

    @property
    def named(self) -> bool:
        """Whether its container id is the runtime's; that of an adopted record may be made up."""
        return not (self.adopted and self.container_id.startswith(UNKNOWN))

    @property
    def key(self) -> str:
        """Name it, as its file and its lock are named."""
        return f"{self.container_id}@{self.ifname}"


class Trace(NamedTuple):
    """Whose an unreadable record was; `netns` is None and the pod's parts are "" where it does not say it any more."""

    container_id: str
    ifname: str
    netns: Netns | None
    pod: Pod


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
        "boot": record.boot,
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
        if body["version"] not in (_VERSION, _BEFORE_BOOT):
            raise Unreadable(f"version {body['version']!r:.40}; this Railnet reads {_BEFORE_BOOT} and {_VERSION}")
        if digest != _digest(body):
            raise Unreadable("its SHA-256 is another")
        return Record(
            container_id=_file_name(body["id"]),
            ifname=_file_name(body["ifname"]),
            netns=_decode_netns(body["netns"]),
            pod=Pod(*map(_text, Pod(**body["pod"]))),
            stage=_one_of(get_args(Stage), body["stage"]),
            attachments=tuple(_decode_attachment(attachment) for attachment in body["attachments"]),
            primary=_object(body["primary"]),
            network=_text(body["network"]),
            ipam=None if body["ipam"] is None else _decode_ipam(body["ipam"]),
            boot="" if body["version"] == _BEFORE_BOOT else _text(body["boot"]),
        )
    except Unreadable:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Unreadable(f"{type(error).__name__}: {error!s:.200}") from None


def _decode_netns(body: dict[str, Any]) -> Netns:
    netns = Netns(**body)
    return Netns(_text(netns.path), _number(netns.dev), _number(netns.inode))


def trace(name: str, raw: bytes) -> Trace | None:
    """Read of an unreadable record whose it was; None if its file's name has no container id.

    Nothing that it says is taken for true but this, and this only where the kernel shows the same namespace: the
    digest did not match, or the end is missing.
    """
    match = _KEY.fullmatch(name.removesuffix(".json"))
    if match is None:
        return None
    netns = _part(_NETNS, raw, {"path": str, "dev": int, "inode": int})
    pod = _part(_POD, raw, {"namespace": str, "name": str, "uid": str})
    return Trace(
        match[1], match[2], None if netns is None else Netns(**netns), Pod("", "", "") if pod is None else Pod(**pod)
    )


def _part(form: re.Pattern[bytes], raw: bytes, kinds: dict[str, type]) -> dict[str, Any] | None:
    """Read an object that has exactly these keys, with values of these kinds."""
    found = form.search(raw)
    try:
        part = {} if found is None else json.loads(found[1])
    except (ValueError, RecursionError):
        return None
    return part if {key: type(value) for key, value in part.items()} == kinds else None


def _decode_ipam(body: dict[str, Any]) -> Ipam:
    return Ipam(_object(body["conf"]), tuple(_text(ifname) for ifname in body["ifnames"]), _text(body["path"]))


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
        ifname=_text(body["ifname"]),
        vf=PciAddress.parse(body["vf"]),
        rail=_number(body["rail"]),
        link_layer=_one_of(get_args(LinkLayer), body["link_layer"]),
        guid=None if body["guid"] is None else Guid.parse(body["guid"]),
        mtu=_number(body["mtu"]),
        addresses=tuple(ip_interface(_text(address)) for address in body["addresses"]),
        host_ifname=_text(body["host_ifname"]),
        rdma=None if body["rdma"] is None else _text(body["rdma"]),
        uverbs=None if body["uverbs"] is None else _decode_device_node(body["uverbs"]),
        routes=tuple(
            Route(ip_network(_text(route["dst"])), None if route["gw"] is None else ip_address(_text(route["gw"])))
            for route in body["routes"]
        ),
    )


def _decode_device_node(body: dict[str, Any]) -> DeviceNode:
    node = DeviceNode(**body)
    return DeviceNode(_text(node.name), _number(node.major), _number(node.minor))


# A record whose checksum is right was written by some Railnet; these make sure that it was one that writes what this reads.


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is where text should be")
    return value


def _file_name(value: Any) -> str:
    if set(_text(value)) & set("/\0") or value.startswith("."):
        raise ValueError(f"{value!r:.40} cannot be part of a file's name")
    return str(value)


def _number(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r:.40} is where a number should be")
    return value


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r:.40} is where an object should be")
    return value


def _one_of(known: tuple[Any, ...], value: Any) -> Any:
    if value not in known:
        raise ValueError(f"{value!r:.40} is not one of {', '.join(known)}")
    return value


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()

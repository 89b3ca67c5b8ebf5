"""The journal's record: what Railnet gave to one sandbox. Values, and their JSON on disk; no files, which are `cni.attachment.journal`'s."""

import hashlib
import json
import re
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_interface, ip_network
from typing import Any, Literal, NamedTuple, get_args

from railnet.vf import restored_link_settings
from railnet.vf.guid import Guid
from railnet.vf.inventory import DeviceNode, LinkLayer
from railnet.vf.pci_address import PciAddress
from railnet.vf.restored_link_settings import Settings
from railnet.vf.steps import IpInterface, Ipv4Settings, RailRouting, Route

UNKNOWN = "unknown-"  # with a namespace's inode: the container id of a sandbox whose own is not known
_VERSION = 3  # raised whenever a key comes or goes
_BEFORE_BOOT = 2  # the version before, which lacks `boot`: sandboxes outlive an upgrade of the daemon

# A record's file name without its suffix: container id (libcni, pkg/utils/utils.go), then interface name (the kernel's IFNAMSIZ).
_KEY = re.compile(r"([a-zA-Z0-9][\w.-]{0,200})@([^/\s]{1,15})", re.ASCII)
_NETNS = re.compile(rb'"netns":\s*(\{[^{}]*\})')
_POD = re.compile(rb'"pod":\s*(\{[^{}]*\})')

# planned: ADD has written the record and perhaps changed the kernel. attached: ADD is done. detaching: taking back has begun.
Stage = Literal["planned", "attached", "detaching"]


class UnreadableRecord(ValueError):
    """A record's bytes are truncated, changed, or of another version."""


class Netns(NamedTuple):
    """A sandbox's network namespace: its path on the host, and the device and inode that identify it."""

    path: str
    dev: int
    inode: int


class SandboxPod(NamedTuple):
    """The pod as the runtime names it; each part may be ""."""

    namespace: str
    name: str
    uid: str


class RecordedIpam(NamedTuple):
    """The IPAM plugin of a sandbox's rails: its network configuration, the interfaces it is run for, and CNI_PATH."""

    conf: dict[str, Any]
    ifnames: tuple[str, ...]
    path: str


@dataclass(frozen=True, slots=True)
class Attachment:
    """One rail of one sandbox: the VF that is there as `ifname`; `host_ifname` is its netdev's name on the node.

    `mtu` is in bytes. `guid`, `rdma` and `uverbs` describe the VF's RDMA device, None if it has none. `before` has the
    netdev's settings on the node before it was attached; None until the stage is attached, and in
    records of older versions. `routing` keeps the rail apart from the sandbox's other rails; None if nothing does.
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
    before: Settings | None = None
    routing: RailRouting | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """Everything that is needed to take a sandbox's rails back, also after a crash of runtime, executable or daemon.

    `primary` is the primary's configuration at ADD (`conf`), with the `runtimeConfig` of that ADD. `network` names the
    rails' network; `ipam` is that network's IPAM plugin, None if it has none. `boot` identifies the boot in which the
    namespace was made, by the kernel's random/boot_id; "" if it is not known.
    """

    container_id: str
    ifname: str
    netns: Netns
    pod: SandboxPod
    stage: Stage
    attachments: tuple[Attachment, ...]
    primary: dict[str, Any] = field(default_factory=dict)
    network: str = ""
    ipam: RecordedIpam | None = None
    boot: str = ""

    @property
    def rebuilt(self) -> bool:
        """Return whether the record was rebuilt from what the kernel shows, because the one that ADD wrote was lost."""
        return not self.primary

    @property
    def named(self) -> bool:
        """Return whether the container id is the runtime's; that of a rebuilt record may be made up."""
        return not (self.rebuilt and self.container_id.startswith(UNKNOWN))

    @property
    def key(self) -> str:
        """Return the name of the record's file and of the sandbox's lock."""
        return f"{self.container_id}@{self.ifname}"

    def is_of_older_boot(self, boot: str) -> bool:
        """Return whether the record is surely of a boot before `boot`, whose namespaces are all gone; "" is not known."""
        return "" not in (self.boot, boot) and self.boot != boot


class LostRecord(NamedTuple):
    """The readable rest of an unreadable record: its sandbox; `netns` is None and the pod's parts are "" if they are not readable."""

    container_id: str
    ifname: str
    netns: Netns | None
    pod: SandboxPod


def encode(record: Record) -> bytes:
    """Return a record as JSON that ends in the SHA-256 of all before it, for a human reader: a line for each value."""
    # Not with `indent`: then Python's `json` does not use its C code, and every ADD waits for two records.
    return json.dumps(_signed(record), separators=(",\n ", ": ")).encode() + b"\n"


def encode_compactly(record: Record) -> bytes:
    """Return what `encode` returns, without white space: shorter than every earlier `encode` of a record with the same addresses."""
    return json.dumps(_signed(record), separators=(",", ":")).encode()


def _signed(record: Record) -> dict[str, Any]:
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
    return {**body, "sha256": _digest(body)}


def decode(raw: bytes) -> Record:
    """Parse what `encode` wrote.

    Raises:
        UnreadableRecord: the bytes are something else.
    """
    try:
        body = json.loads(raw)
        digest = body.pop("sha256")
        if body["version"] not in (_VERSION, _BEFORE_BOOT):
            raise UnreadableRecord(f"version {body['version']!r:.40}; this Railnet reads {_BEFORE_BOOT} and {_VERSION}")
        if digest != _digest(body):
            raise UnreadableRecord("its SHA-256 is another")
        return Record(
            container_id=_file_name(body["id"]),
            ifname=_file_name(body["ifname"]),
            netns=_decode_netns(body["netns"]),
            pod=SandboxPod(*map(_text, SandboxPod(**body["pod"]))),
            stage=_one_of(get_args(Stage), body["stage"]),
            attachments=tuple(_decode_attachment(attachment) for attachment in body["attachments"]),
            primary=_object(body["primary"]),
            network=_text(body["network"]),
            ipam=None if body["ipam"] is None else _decode_ipam(body["ipam"]),
            boot="" if body["version"] == _BEFORE_BOOT else _text(body["boot"]),
        )
    except UnreadableRecord:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnreadableRecord(f"{type(error).__name__}: {error!s:.200}") from None


def _decode_netns(body: dict[str, Any]) -> Netns:
    netns = Netns(**body)
    return Netns(_text(netns.path), _number(netns.dev), _number(netns.inode))


def find_lost(name: str, raw: bytes) -> LostRecord | None:
    """Find in an unreadable record which sandbox it belonged to; return None if its file's name has no container id.

    Nothing else in the record is used, and this only if the kernel shows the same namespace: the digest did not match, or
    the end of the file is missing.
    """
    match = _KEY.fullmatch(name.removesuffix(".json"))
    if match is None:
        return None
    netns = _part(_NETNS, raw, {"path": str, "dev": int, "inode": int})
    pod = _part(_POD, raw, {"namespace": str, "name": str, "uid": str})
    return LostRecord(
        match[1],
        match[2],
        None if netns is None else Netns(**netns),
        SandboxPod("", "", "") if pod is None else SandboxPod(**pod),
    )


def _part(form: re.Pattern[bytes], raw: bytes, kinds: dict[str, type]) -> dict[str, Any] | None:
    """Find an object that has exactly these keys, with values of these types."""
    match = form.search(raw)
    try:
        part = {} if match is None else json.loads(match[1])
    except (ValueError, RecursionError):
        return None
    return part if {key: type(value) for key, value in part.items()} == kinds else None


def _decode_ipam(body: dict[str, Any]) -> RecordedIpam:
    return RecordedIpam(_object(body["conf"]), tuple(_text(ifname) for ifname in body["ifnames"]), _text(body["path"]))


def _encode_attachment(attachment: Attachment) -> dict[str, Any]:
    # By hand: `asdict` copies each value, and every ADD waits for it. A key that is not needed is left out; older versions ignore the
    # last two.
    return {
        "ifname": attachment.ifname,
        "vf": str(attachment.vf),
        "rail": attachment.rail,
        "link_layer": attachment.link_layer,
        "guid": None if attachment.guid is None else str(attachment.guid),
        "mtu": attachment.mtu,
        "addresses": [str(address) for address in attachment.addresses],
        "host_ifname": attachment.host_ifname,
        "rdma": attachment.rdma,
        "uverbs": None if attachment.uverbs is None else attachment.uverbs._asdict(),
        "routes": _encode_routes(attachment.routes),
        **({} if attachment.before is None else {"before": dict(attachment.before)}),
        **({} if attachment.routing is None else {"routing": _encode_routing(attachment.routing)}),
    }


def _encode_routing(routing: RailRouting) -> dict[str, Any]:
    return {
        "ipv4": routing.ipv4._asdict(),
        "table": routing.table,
        "sources": [str(source) for source in routing.sources],
        "routes": _encode_routes(routing.routes),
    }


def _encode_routes(routes: tuple[Route, ...]) -> list[dict[str, Any]]:
    return [
        {"dst": str(destination), "gw": None if gateway is None else str(gateway)} for destination, gateway in routes
    ]


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
        routes=_decode_routes(body["routes"]),
        before=None if body.get("before") is None else restored_link_settings.decode(_object(body["before"])),
        routing=None if body.get("routing") is None else _decode_routing(_object(body["routing"])),
    )


def _decode_routing(body: dict[str, Any]) -> RailRouting:
    return RailRouting(
        Ipv4Settings(**{name: _number(value) for name, value in _object(body["ipv4"]).items()}),
        _table(body["table"]),
        tuple(ip_address(_text(source)) for source in body["sources"]),
        _decode_routes(body["routes"]),
    )


def _decode_routes(body: list[dict[str, Any]]) -> tuple[Route, ...]:
    return tuple(
        Route(ip_network(_text(route["dst"])), None if route["gw"] is None else ip_address(_text(route["gw"])))
        for route in body
    )


def _decode_device_node(body: dict[str, Any]) -> DeviceNode:
    node = DeviceNode(**body)
    return DeviceNode(_text(node.name), _number(node.major), _number(node.minor))


# A record whose digest is right was written by some version of Railnet; these make sure that this version can use its values.


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


def _table(value: Any) -> int:
    if not 0 < _number(value) < 1 << 32:
        raise ValueError(f"{value!r:.40} is no number of a routing table")
    return int(value)


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

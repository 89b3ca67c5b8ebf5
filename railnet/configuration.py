"""The node's configuration file: strict, parsed once, frozen. An unknown key or a bad value names its path."""

import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from cni.host.chain import OURSELVES
from cni.host.netconf import MAX_SECONDS
from deviceplugin.pools import DEFAULT, LinkType, Pool, Selector, link_layers
from railnet import strict_yaml
from vf.address import PciAddress
from vf.address_slice import IpNetwork
from vf.errors import Misconfigured
from vf.inventory import LinkLayer
from vf.network import (
    DEFAULT as DEFAULT_NETWORK,
)
from vf.network import (
    EVERYWHERE,
    Ipam,
    Limit,
    Network,
    Networks,
    NoIpam,
    PluginIpam,
    SliceIpam,
    StaticIpam,
)
from vf.provision import Provision

_Value = TypeVar("_Value")
_Reader = Callable[[Any, str], _Value]

_API_VERSION = "railnet.io/v1alpha1"
_KIND = "NodeConfiguration"
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m)")
_NETWORK = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # also a folder's name, of host-local
_NAMESPACE = re.compile(r"\*|[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_PLUGIN = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_.]*")
_PKEY = re.compile(r"0x[0-9a-fA-F]{4}")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0}
_RESOURCE = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class HostPaths:
    """Where the daemon finds the host's things.

    `root` is the host's mount namespace, and `cri`, the runtime's socket, is a path in it; the rest are the daemon's paths.
    """

    sysfs: Path = Path("/sys")
    kubelet: Path = Path("/var/lib/kubelet")
    flannel: Path = Path("/run/flannel/subnet.env")
    root: Path = Path("/proc/1/root")
    cri: Path = Path("/run/containerd/containerd.sock")


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds: one delegate; a whole request; how long an ADD waits for the daemon or for a DEL; kubelet's answers."""

    delegate: float = 30.0
    add: float = 60.0
    daemon: float = 5.0
    kubelet: float = 2.0


@dataclass(frozen=True, slots=True)
class Publish:
    """What the API server is told of pods with rails, where the daemon has a service account's token."""

    network_status: bool = True
    events: bool = True


@dataclass(frozen=True, slots=True)
class Configuration:
    """Everything the node daemon is told.

    `primary` is None for `auto`: the first configuration that is not ours. `rails` names PFs in rail order, None for
    `auto`: all that have one of the `link_layers`, in PCI order.
    """

    host: HostPaths = HostPaths()
    primary: str | None = None
    rails: tuple[PciAddress, ...] | None = None
    pools: tuple[Pool, ...] = DEFAULT
    provision: tuple[Provision, ...] = ()
    networks: Networks = field(default_factory=Networks)
    timeouts: Timeouts = field(default_factory=Timeouts)
    publish: Publish = Publish()

    @property
    def resources(self) -> frozenset[str]:
        """The extended resources whose devices are rails."""
        return frozenset(pool.resource for pool in self.pools)

    @property
    def link_layers(self) -> frozenset[LinkLayer]:
        """What a rail's port may speak where `rails` names none."""
        return link_layers(self.pools)


def load(path: Path) -> Configuration:
    """Read a configuration file; an absent one means all defaults.

    Raises:
        Misconfigured: it cannot be read, is no YAML, or has a key or value that is not understood.
    """
    try:
        text = path.read_bytes().decode()
    except FileNotFoundError:
        return Configuration()
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(f"{path} cannot be read: {error!s:.200}") from None
    return parse(text, str(path))


def parse(text: str, source: str) -> Configuration:
    """Read a configuration.

    Raises:
        Misconfigured: as `load`; the message begins with `source`.
    """
    try:
        return _configuration(strict_yaml.read(text))
    except RecursionError:
        raise Misconfigured(f"{source} is nested too deeply") from None
    except Misconfigured as error:
        raise Misconfigured(f"{source}: {error!s:.1000}") from None


def _configuration(found: Any) -> Configuration:
    read: dict[str, _Reader[Any]] = {
        "apiVersion": _exactly(_API_VERSION),
        "kind": _exactly(_KIND),
        "host": lambda value, path: HostPaths(
            **_fields(value, path, dict.fromkeys(("sysfs", "kubelet", "flannel", "root", "cri"), _path))
        ),
        "primary": lambda value, path: None if value == "auto" else str(_path(value, path)),
        "rails": lambda value, path: None if value == "auto" else _list(_pci_address)(value, path),
        "pools": lambda value, path: _distinct(_list(_pool)(value, path), path),
        "provision": lambda value, path: _once(_list(_provision)(value, path), path),
        "rdma": lambda value, path: _fields(value, path, {"netns": _exactly("shared")}),
        "networks": _named(_NETWORK, "network", _network),
        "limits": _named(_NAMESPACE, "namespace", _limit),
        "timeouts": lambda value, path: Timeouts(
            **_fields(value, path, dict.fromkeys(("delegate", "add", "daemon", "kubelet"), _seconds))
        ),
        "publish": _publish,
    }
    values = _fields(found, "", read)
    values["networks"] = _networks(values.get("networks", {}), values.get("limits", {}))
    _check_pools(values.get("limits", {}), values.get("pools", DEFAULT))
    return Configuration(
        **{name: value for name, value in values.items() if name in Configuration.__dataclass_fields__}
    )


def _pool(value: Any, path: str) -> Pool:
    fields = _fields(
        value, path, {"resource": _resource, "select": _selector, "rdma": _boolean, "management": _boolean}
    )
    if "resource" not in fields:
        raise Misconfigured(f"{path}.resource is missing; it should be a name like rdma/ib_vf")
    return Pool(fields.pop("resource"), fields.pop("select", Selector()), **fields)


def _selector(value: Any, path: str) -> Selector:
    read = {
        "linkType": ("link_type", _list(_link_type)),
        "vendor": ("vendor", _list(_text)),
        "device": ("device", _list(_text)),
        "pfDevice": ("pf_device", _list(_text)),
        "driver": ("driver", _list(_text)),
        "pf": ("pf", _list(_pci_address)),
        "pciAddress": ("pci_address", _list(_pci_address)),
    }
    fields = _fields(value, path, {key: reader for key, (_, reader) in read.items()})
    return Selector(**{read[key][0]: entry for key, entry in fields.items()})


def _provision(value: Any, path: str) -> Provision:
    fields = _fields(value, path, {"pf": _pci_address, "vfs": _positive, "guid": _exactly("derived")})
    missing = [key for key in ("pf", "vfs") if key not in fields]
    if missing:
        raise Misconfigured(f"{path}.{missing[0]} is missing")
    return Provision(fields["pf"], fields["vfs"])


def _networks(networks: dict[str, Network], limits: dict[str, Limit]) -> Networks:
    by_name = {DEFAULT_NETWORK: Network(), **networks}
    for namespace, limit in limits.items():
        unknown = next((name for name in limit.networks if name not in by_name), None)
        if unknown is not None:
            raise Misconfigured(
                f"limits.{namespace}.networks names {unknown!r:.80}; 'networks' has: {', '.join(sorted(by_name))}"
            )
    _disjoint({name: network.ipam for name, network in by_name.items()})
    return Networks(by_name, {EVERYWHERE: Limit(), **limits})


def _check_pools(limits: dict[str, Limit], pools: tuple[Pool, ...]) -> None:
    known = [pool.resource for pool in pools]
    for namespace, limit in limits.items():
        unknown = next((name for name in limit.pools or () if name not in known), None)
        if unknown is not None:
            raise Misconfigured(f"limits.{namespace}.pools names {unknown!r:.80}; 'pools' has: {', '.join(known)}")


def _disjoint(ipams: dict[str, Ipam]) -> None:
    """Make sure that no two networks give the same addresses: each slices its range in its own way, and pods name any."""
    for (one, first), (other, second) in itertools.combinations(ipams.items(), 2):
        if isinstance(first, StaticIpam) and isinstance(second, StaticIpam):
            continue  # pods' authors divide those
        one_range, other_range = _range_of(first), _range_of(second)
        if one_range is not None and other_range is not None and one_range.overlaps(other_range):
            raise Misconfigured(
                f"networks.{one}.ipam.range {one_range} and networks.{other}.ipam.range {other_range} overlap; "
                f"the default network has {SliceIpam().range} where nothing else is said"
            )


def _range_of(ipam: Ipam) -> IpNetwork | None:
    return ipam.range if isinstance(ipam, SliceIpam | StaticIpam) else None


def _network(value: Any, path: str) -> Network:
    fields = _fields(value, path, {"mtu": _mtu, "wait": _seconds, "pkey": _pkey, "ipam": _ipam})
    return Network(path.rpartition(".")[2], **fields)


def _ipam(value: Any, path: str) -> Ipam:
    kind = value.get("type") if isinstance(value, dict) else None
    if kind in _OWN_IPAM:
        make, read = _OWN_IPAM[kind]
        fields = _fields(value, path, {"type": _text, **read})
        return make(**{key: entry for key, entry in fields.items() if key != "type"})
    should_be = f"a mapping whose type is one of {', '.join(_OWN_IPAM)}, or the file name of a CNI IPAM plugin"
    _checked(
        value, path, isinstance(kind, str) and _PLUGIN.fullmatch(kind) is not None and kind != OURSELVES, should_be
    )
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:  # YAML knows dates and sets
        raise Misconfigured(f"{path} cannot be given to plugin {kind!r:.80} as JSON: {error!s:.200}") from None
    return PluginIpam(value)


def _publish(value: Any, path: str) -> Publish:
    fields = _fields(value, path, {"networkStatus": _boolean, "events": _boolean})
    return Publish(fields.get("networkStatus", True), fields.get("events", True))


def _limit(value: Any, path: str) -> Limit:
    return Limit(**_fields(value, path, {"networks": _list(_text), "static": _boolean, "pools": _list(_resource)}))


def _named(pattern: re.Pattern[str], what: str, read: _Reader[_Value]) -> _Reader[dict[str, _Value]]:
    """Read a mapping from names, which the pattern describes, to values."""

    def read_named(value: Any, path: str) -> dict[str, _Value]:
        _checked(value, path, isinstance(value, dict), f"a mapping with the name of a {what} as each key")
        for name in value:
            if not isinstance(name, str) or pattern.fullmatch(name) is None:
                raise Misconfigured(f"{path} has the key {name!r:.80}, which cannot be the name of a {what}")
        return {name: read(entry, f"{path}.{name}") for name, entry in value.items()}

    return read_named


def _fields(value: Any, path: str, read: Mapping[str, _Reader[Any]]) -> dict[str, Any]:
    """Read an object key by key."""
    if not isinstance(value, dict):
        raise Misconfigured(f"{path or 'the document'} is {value!r:.60}; it should be a mapping")
    fields = {}
    for key, entry in value.items():
        where = f"{path}.{key!s:.80}" if path else f"{key!s:.80}"
        if key not in read:
            raise Misconfigured(f"{where} is an unknown key; known here: {', '.join(read)}")
        fields[key] = read[key](entry, where)
    return fields


def _list(read: _Reader[_Value]) -> _Reader[tuple[_Value, ...]]:
    def read_list(value: Any, path: str) -> tuple[_Value, ...]:
        if not isinstance(value, list):
            raise Misconfigured(f"{path} is {value!r:.60}; it should be a list")
        return tuple(read(entry, f"{path}[{position}]") for position, entry in enumerate(value))

    return read_list


def _exactly(expected: str) -> _Reader[str]:
    def read(value: Any, path: str) -> str:
        if value != expected:
            raise Misconfigured(f"{path} is {value!r:.60}; this version knows only {expected!r}")
        return expected

    return read


def _distinct(pools: tuple[Pool, ...], path: str) -> tuple[Pool, ...]:
    names = [pool.resource for pool in pools]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None or not names:
        raise Misconfigured(f"{path}: {'there is no pool' if twice is None else f'resource {twice!r} is listed twice'}")
    return pools


def _once(provisions: tuple[Provision, ...], path: str) -> tuple[Provision, ...]:
    pfs = [provision.pf for provision in provisions]
    twice = next((pf for pf in pfs if pfs.count(pf) > 1), None)
    if twice is not None:
        raise Misconfigured(f"{path}: PF {twice} is listed twice")
    return provisions


def _checked(value: Any, path: str, right: bool, should_be: str) -> None:
    if not right:
        raise Misconfigured(f"{path} is {value!r:.60}; it should be {should_be}")


def _text(value: Any, path: str) -> str:
    _checked(value, path, isinstance(value, str) and bool(value), "a string (quote numbers)")
    return str(value)


def _path(value: Any, path: str) -> Path:
    _checked(value, path, isinstance(value, str) and value.startswith("/") and "\0" not in value, "an absolute path")
    return Path(value)


def _resource(value: Any, path: str) -> str:
    right = isinstance(value, str) and _RESOURCE.fullmatch(value) is not None
    _checked(value, path, right, "an extended resource's name, such as rdma/ib_vf")
    return str(value)


def _link_type(value: Any, path: str) -> LinkType:
    known: Iterable[LinkType] = get_args(LinkType)
    _checked(value, path, value in known, f"one of {', '.join(known)}")
    found: LinkType = value
    return found


def _pci_address(value: Any, path: str) -> PciAddress:
    try:
        return PciAddress.parse(_text(value, path))
    except ValueError as error:
        raise Misconfigured(f"{path}: {error}") from None


def _positive(value: Any, path: str) -> int:
    _checked(value, path, type(value) is int and value > 0, "a number above 0")
    return int(value)


def _boolean(value: Any, path: str) -> bool:
    _checked(value, path, type(value) is bool, "true or false")
    return bool(value)


def _mtu(value: Any, path: str) -> int | Literal["pf"]:
    return "pf" if value == "pf" else _positive(value, path)


def _pkey(value: Any, path: str) -> int:
    text = f"0x{value:04x}" if type(value) is int else value  # YAML reads 0xffff as a number
    right = isinstance(text, str) and _PKEY.fullmatch(text) is not None and int(text, 16) & 0x7FFF != 0
    _checked(value, path, right, 'a PKey from "0x0001" to "0xffff"')
    return int(text, 16)


def _range(value: Any, path: str) -> IpNetwork:
    try:
        return ip_network(_text(value, path))
    except ValueError as error:
        raise Misconfigured(f"{path}: {error}; it should be a network like 10.56.0.0/16") from None


def _seconds(value: Any, path: str) -> float:
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    seconds = 0.0 if match is None else float(match[1]) * _SECONDS[match[2]]
    _checked(value, path, 0 < seconds <= MAX_SECONDS, "a duration like 500ms, 5s or 2m, an hour at most")
    return seconds


_OWN_IPAM: dict[str, tuple[Callable[..., Ipam], dict[str, _Reader[Any]]]] = {
    "slice": (SliceIpam, {"range": _range, "rails": _positive}),
    "none": (NoIpam, {}),
    "static": (StaticIpam, {"range": _range}),
}

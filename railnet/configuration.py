"""The node's configuration file: its types, its keys, and the checks of values that depend on each other.

A program reads the file once, when the program starts. The message about a wrong key or value names the path of that key or
value. Not here: YAML (`railnet.strict_yaml`), and how a value of each kind is read (`railnet.value_readers`).
"""

import itertools
import json
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from cni.host.chain import OURSELVES
from cni.host.netconf import DEFAULT_CONFLIST, DEFAULT_DEVICE_PLUGINS
from deviceplugin.pool_selection import DEFAULT, LinkType, Pool, Selector, link_layers
from railnet.configuration_path import DEFAULT_PATH
from railnet.errors import Misconfigured
from railnet.value_readers import (
    ABSOLUTE_PATH,
    BOOLEAN,
    IP_NETWORK,
    MTU,
    NAMESPACE_NAME,
    NETWORK_NAME,
    PCI_ADDRESS,
    PKEY,
    POSITIVE,
    PRIORITY_CLASS,
    RESOURCE,
    SECONDS,
    TEXT,
    Reader,
    Scalar,
    an_object,
    by_name,
    list_of,
    one_of,
    shown,
    word_or,
    wrong,
)
from railnet.vf.inventory import LinkLayer
from railnet.vf.pci_address import PciAddress
from railnet.vf.permitted_networks import DEFAULT as DEFAULT_NETWORK
from railnet.vf.permitted_networks import (
    EVERYWHERE,
    Limit,
    Network,
    NetworkIpam,
    Networks,
    NoIpam,
    PluginIpam,
    Routing,
    SliceIpam,
    StaticIpam,
    StickyIpam,
)
from railnet.vf.provision import Provision

Offer = Literal["device-plugin", "dra"]

_MOST_BYTES = (
    4 << 20
)  # the most characters that `strict_yaml` takes, of four bytes each; a device would be read without end
_PLUGIN = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_.]*")
# The executable's first line names its interpreter below this folder: the kernel reads 255 bytes of it (BINPRM_BUF_SIZE, Linux 5.1), and
# ends the path at white space (fs/binfmt_script.c). CNI_PATH has ':' between folders.
_LONGEST_PLUGIN_FOLDER = 160
_PLUGIN_FOLDER_TEXT = re.compile(rf"/[!-9;-~]{{0,{_LONGEST_PLUGIN_FOLDER - 1}}}")


@dataclass(frozen=True, slots=True)
class HostConfiguration:
    """Paths of the host's files.

    `root` is the host's mount namespace. `kubelet`, its root folder, `cri`, the runtime's socket, `cni_conf`, `cni_bin` and `flannel` are
    paths in that namespace; a `flannel` that is absent there is looked for in the daemon's own. The other paths are in the daemon's mount namespace.
    A `kubelet` of None is where the running kubelet says. `device_plugins` has the same path for every kubelet.
    `cni_conf` is the folder in which the runtime looks for CNI configurations, `cni_bin` the one in which it looks for plugins.
    """

    sysfs: Path = Path("/sys")
    kubelet: Path | None = None
    device_plugins: Path = Path(DEFAULT_DEVICE_PLUGINS)
    flannel: Path = Path("/run/flannel/subnet.env")
    root: Path = Path("/proc/1/root")
    cri: Path = Path("/run/containerd/containerd.sock")
    cni_conf: Path = Path(DEFAULT_CONFLIST).parent
    cni_bin: Path = Path("/opt/cni/bin")


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds that each kind of work may take.

    Attributes:
        delegate: one delegate plugin.
        add: a whole ADD.
        daemon: how long an ADD waits for the daemon, or for a DEL of the same sandbox.
        kubelet: one answer of kubelet.
    """

    delegate: float = 30.0
    add: float = 60.0
    daemon: float = 5.0
    kubelet: float = 2.0


@dataclass(frozen=True, slots=True)
class Publish:
    """What the daemon reports to the API server, if the daemon has the token of a service account.

    Attributes:
        network_status: each pod's networks, as an annotation of the pod.
        events: why a pod did not get its rails.
        topology_labels: the leaf switches of the node's rails, as labels of the node.
        rails_condition: whether every rail is ACTIVE, as a condition of the node.
        rails_taint: a taint of the node while the condition is False.
    """

    network_status: bool = True
    events: bool = True
    topology_labels: bool = False
    rails_condition: bool = False
    rails_taint: bool = False


@dataclass(frozen=True, slots=True)
class Admission:
    """What the admission helper adds to training pods beside their rails.

    Attributes:
        priority_class: the PriorityClass of training pods that have none; None for none. The cluster must have the class.
        environment: whether pods get the variables that name net1, unless their annotation says otherwise.
    """

    priority_class: str | None = None
    environment: bool = True


@dataclass(frozen=True, slots=True)
class Configuration:
    """The whole configuration of a node.

    Attributes:
        primary: path of the primary network's configuration; None for the first configuration that is not Railnet's.
        rails: PCI addresses of the PFs in rail order; None for all PFs of the `link_layers`, in PCI order.
        pools: the resources that kubelet knows.
        offer: how kubelet and the scheduler learn of the node's VFs: by the device plugin, or by ResourceSlices.
        networks: the networks that pods may have, and each namespace's limit.
        timeouts: seconds that each kind of work may take.
        publish: what the API server is sent about pods, and about the node.
        admission: what the admission helper adds to training pods beside their rails.
    """

    host: HostConfiguration = HostConfiguration()
    primary: str | None = None
    rails: tuple[PciAddress, ...] | None = None
    pools: tuple[Pool, ...] = DEFAULT
    offer: Offer = "device-plugin"
    provision: tuple[Provision, ...] = ()
    networks: Networks = field(default_factory=Networks)
    timeouts: Timeouts = field(default_factory=Timeouts)
    publish: Publish = Publish()
    admission: Admission = Admission()

    @property
    def resources(self) -> frozenset[str]:
        """Return the extended resources whose devices are VFs of rails."""
        return frozenset(pool.resource for pool in self.pools)

    @property
    def link_layers(self) -> frozenset[LinkLayer]:
        """Return the link layers that a PF must have to be a rail, if `rails` lists no PFs."""
        return link_layers(self.pools)


def load(path: Path) -> Configuration:
    """Read a configuration file. Only `DEFAULT_PATH` may be absent: then return the defaults.

    Raises:
        Misconfigured: the file cannot be read, is not YAML, or has a wrong key or value.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        if path == DEFAULT_PATH and not os.path.lexists(path):  # a link to nothing is a file that was lost
            return Configuration()
        raise Misconfigured(
            f"the node configuration {path} does not exist; name an existing file with --config, or leave --config out"
        ) from None
    except OSError as error:
        raise Misconfigured(f"{path} cannot be read: {error.strerror or error!s:.200}") from None
    if len(content) > _MOST_BYTES:
        raise Misconfigured(f"{path} has more than {_MOST_BYTES >> 20} MiB, so it is no node configuration")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise Misconfigured(f"{path} cannot be read: {error!s:.200}") from None
    return parse(text, str(path))


def parse(text: str, source: str) -> Configuration:
    """Read a configuration from a text.

    Raises:
        Misconfigured: as `load`; the message begins with `source`.
    """
    try:
        return _configuration(_document(text))
    except RecursionError:
        raise Misconfigured(f"{source} is nested too deeply") from None
    except Misconfigured as error:
        raise Misconfigured(f"{source}: {error!s:.1000}") from None


def _document(text: str) -> Any:
    from railnet import strict_yaml  # noqa: PLC0415 - the node's daemon has a configuration and no PyYAML (railnet/daemon_process.py)

    return strict_yaml.read(text)


def _configuration(document: Any) -> Configuration:
    read = _DOCUMENT(document, "")
    pools, limits = read.get("pools", DEFAULT), read.pop("limits", {})
    written = {name: replace(network, name=name) for name, network in read.pop("networks", {}).items()}
    networks = {DEFAULT_NETWORK: Network(), **written}
    _check_pools(pools)
    _check_provision(read.get("provision", ()))
    _check_publish(read.get("publish", Publish()))
    _check_ranges(networks)
    _check_limits(limits, networks, [pool.resource for pool in pools])
    read.pop("rdma", None)  # none of its keys has a choice yet
    return Configuration(networks=Networks(networks, {EVERYWHERE: Limit(), **limits}), **read)


def _pool(resource: str, select: Selector | None = None, **switches: bool) -> Pool:
    return Pool(resource, select or Selector(), **switches)


def _read_ipam(value: Any, path: str) -> NetworkIpam:
    kind = value.get("type") if isinstance(value, dict) else None
    if isinstance(kind, str) and kind in _OWN_IPAM:
        return _OWN_IPAM[kind](value, path)
    if not isinstance(kind, str) or _PLUGIN.fullmatch(kind) is None or kind == OURSELVES:
        own = ", ".join(_OWN_IPAM)
        raise wrong(value, path, f"a mapping whose type is {own}, or the file name of a CNI IPAM plugin")
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:  # YAML has dates and sets
        raise Misconfigured(
            f"{path} cannot be given to plugin {kind!r:.80} as JSON: {error!s:.200}; "
            "it should have only strings, numbers, true, false, null, lists and mappings"
        ) from None
    return PluginIpam(value)


def _plugin_folder(value: Any) -> Path:
    if not isinstance(value, str) or _PLUGIN_FOLDER_TEXT.fullmatch(value) is None:
        raise ValueError(value)
    return Path(value)


# One table for each object of the document: its keys, and the reader of each key's value.

_CONFLIST = Scalar("auto, or the absolute path of a CNI configuration", lambda value: str(ABSOLUTE_PATH.convert(value)))
_FOLDER_OR_AUTO = Scalar("auto, or an absolute path", ABSOLUTE_PATH.convert)
_PLUGIN_FOLDER = Scalar(
    f"an absolute path of at most {_LONGEST_PLUGIN_FOLDER} characters without white space and ':'", _plugin_folder
)
_HOST = an_object(
    HostConfiguration,
    {
        **dict.fromkeys(("sysfs", "devicePlugins", "flannel", "root", "cri"), ABSOLUTE_PATH),
        "kubelet": word_or("auto", None, _FOLDER_OR_AUTO),
        "cniConf": ABSOLUTE_PATH,
        "cniBin": _PLUGIN_FOLDER,
    },
)
_SELECT = an_object(
    Selector,
    {
        "linkType": list_of(one_of(get_args(LinkType))),
        "vendor": list_of(TEXT),
        "device": list_of(TEXT),
        "pfDevice": list_of(TEXT),
        "driver": list_of(TEXT),
        "pf": list_of(PCI_ADDRESS),
        "pciAddress": list_of(PCI_ADDRESS),
    },
)
_POOL = an_object(
    _pool,
    {"select": _SELECT, "rdma": BOOLEAN, "management": BOOLEAN, "ncclRails": BOOLEAN},
    required={"resource": RESOURCE},
)
_PROVISION = an_object(Provision, {}, required={"pf": PCI_ADDRESS, "vfs": POSITIVE}, fixed={"guid": "derived"})
_OWN_IPAM: dict[str, Reader[NetworkIpam]] = {
    "slice": an_object(SliceIpam, {"range": IP_NETWORK, "rails": POSITIVE}, fixed={"type": "slice"}),
    "none": an_object(NoIpam, {}, fixed={"type": "none"}),
    "static": an_object(StaticIpam, {"range": IP_NETWORK}, fixed={"type": "static"}),
    "sticky": an_object(StickyIpam, {"rails": POSITIVE}, required={"range": IP_NETWORK}, fixed={"type": "sticky"}),
}
_NETWORK = an_object(
    Network, {"mtu": MTU, "wait": SECONDS, "pkey": PKEY, "ipam": _read_ipam, "routing": one_of(get_args(Routing))}
)
_LIMIT = an_object(Limit, {"networks": list_of(TEXT), "static": BOOLEAN, "pools": list_of(RESOURCE)})
_TIMEOUTS = an_object(Timeouts, dict.fromkeys(("delegate", "add", "daemon", "kubelet"), SECONDS))
_PUBLISH = an_object(
    Publish, dict.fromkeys(("networkStatus", "events", "topologyLabels", "railsCondition", "railsTaint"), BOOLEAN)
)
_ADMISSION = an_object(Admission, {"priorityClass": PRIORITY_CLASS, "environment": BOOLEAN})
_DOCUMENT: Reader[dict[str, Any]] = an_object(
    dict,
    {
        "host": _HOST,
        "primary": word_or("auto", None, _CONFLIST),
        "rails": word_or("auto", None, list_of(PCI_ADDRESS, "auto, or a list of the PCI addresses of PFs")),
        "pools": list_of(_POOL),
        "offer": one_of(get_args(Offer)),
        "provision": list_of(_PROVISION),
        "rdma": an_object(dict, {}, fixed={"netns": "shared"}),
        "networks": by_name(NETWORK_NAME, _NETWORK),
        "limits": by_name(NAMESPACE_NAME, _LIMIT),
        "timeouts": _TIMEOUTS,
        "publish": _PUBLISH,
        "admission": _ADMISSION,
    },
    fixed={"apiVersion": "railnet.io/v1alpha1", "kind": "NodeConfiguration"},
)


def _check_pools(pools: tuple[Pool, ...]) -> None:
    if not pools:
        raise wrong([], "pools", "a list of at least one pool (leave the key out for the default pool)")
    _check_distinct("pools", "resource", [pool.resource for pool in pools])


def _check_provision(provision: tuple[Provision, ...]) -> None:
    _check_distinct("provision", "pf", [str(provisioning.pf) for provisioning in provision])


def _check_publish(publish: Publish) -> None:
    if publish.rails_taint and not publish.rails_condition:
        raise Misconfigured(
            "publish.railsTaint is true; publish.railsCondition should be true, too: the taint follows the condition"
        )


def _check_distinct(path: str, key: str, values: list[str]) -> None:
    positions: dict[str, int] = {}
    for position, value in enumerate(values):
        first = positions.setdefault(value, position)
        if first != position:
            raise Misconfigured(
                f"{path}[{position}].{key} is {shown(value)}, as {path}[{first}].{key} is; it should be listed once"
            )


def _check_limits(limits: Mapping[str, Limit], networks: Collection[str], resources: Collection[str]) -> None:
    for namespace, limit in limits.items():
        _check_known(f"limits.{namespace}.networks", limit.networks, "networks", sorted(networks))
        _check_known(f"limits.{namespace}.pools", limit.pools or (), "pools", resources)


def _check_known(path: str, names: Collection[str], defined_by: str, known: Collection[str]) -> None:
    for position, name in enumerate(names):
        if name not in known:
            raise wrong(name, f"{path}[{position}]", f"a name that '{defined_by}' defines: {', '.join(known)}")


def _check_ranges(networks: Mapping[str, Network]) -> None:
    """Make sure that no two networks give the same addresses: each network divides its range in its own way."""
    for network in networks.values():
        if isinstance(network.ipam, StickyIpam):
            _check_parts(network.name, network.ipam)
    for network, other in itertools.combinations(networks.values(), 2):
        if isinstance(network.ipam, StaticIpam) and isinstance(other.ipam, StaticIpam):
            continue  # the authors of pods divide these ranges
        first, second = (getattr(ipam, "range", None) for ipam in (network.ipam, other.ipam))
        if first is not None and second is not None and first.overlaps(second):
            raise Misconfigured(
                f"networks.{network.name}.ipam.range {first} and networks.{other.name}.ipam.range {second} overlap; "
                f"they should not (a network without `range` has {SliceIpam().range})"
            )


def _check_parts(name: str, ipam: StickyIpam) -> None:
    bits = (ipam.rails - 1).bit_length()
    if ipam.range.max_prefixlen - ipam.range.prefixlen - bits < 2:  # noqa: PLR2004 - the first and last address are no host's
        raise Misconfigured(
            f"networks.{name}.ipam.range {ipam.range} is too small for {ipam.rails} rails: it should leave 2 bits for addresses at least"
        )

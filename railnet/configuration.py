"""The node's configuration file: its types and its keys.

A program reads the file once, when the program starts. The message about a wrong key or value names the path of that key or
value. Not here: YAML (`railnet.strict_yaml`), values that disagree with each other (`railnet.configuration_conflicts`), and how a value of each kind is read (`railnet.value_readers`).
"""

import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, Literal, get_args

from cni.host.chain import OURSELVES
from cni.host.netconf import DEFAULT_CONFLIST, DEFAULT_DEVICE_PLUGINS
from deviceplugin.pool_selection import DEFAULT, Pool, Selector, link_layers
from railnet.configuration_conflicts import conflicts
from railnet.configuration_path import DEFAULT_PATH
from railnet.errors import Misconfigured
from railnet.fabric.port_counter_thresholds import COUNTERS, PortThresholds, Threshold
from railnet.value_readers import (
    ABSOLUTE_PATH,
    BOOLEAN,
    BYTES,
    IP_NETWORK,
    MTU,
    NAMESPACE_NAME,
    NETWORK_NAME,
    NUMA_NODE,
    PCI_ADDRESS,
    PCI_FUNCTION,
    PKEY,
    POSITIVE,
    PRIORITY_CLASS,
    RESOURCE,
    SECONDS,
    TEXT,
    UNLIMITED,
    Fault,
    Faults,
    Reader,
    Scalar,
    an_object,
    by_name,
    faults_of,
    list_of,
    one_of,
    raise_any,
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
from railnet.vf.pf_selector import LinkType, PfSelector
from railnet.vf.provision import Provision, ProvisionBySelector

Offer = Literal["device-plugin", "dra"]

_MOST_BYTES = (
    4 << 20
)  # the most characters that `strict_yaml` takes, of four bytes each; a device would be read without end
_FIRST_KEY = re.compile(r"[.\[]")  # what ends the first key of a path
_EVENTS = re.compile(r"[0-9]{1,9}")
_SHORTEST_WINDOW = (
    10.0  # of a threshold: the ports are read each ten seconds (railnet/daemon/node_object/rail_errors.py)
)
_PLUGIN = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_.]*")
# The executable's first line names its interpreter below this folder: the kernel reads 255 bytes of it (BINPRM_BUF_SIZE, Linux 5.1), and
# ends the path at white space (fs/binfmt_script.c). CNI_PATH has ':' between folders.
_LONGEST_PLUGIN_FOLDER = 160
_PLUGIN_FOLDER_TEXT = re.compile(rf"/[!-9;-~]{{0,{_LONGEST_PLUGIN_FOLDER - 1}}}")


@dataclass(frozen=True, slots=True)
class HostConfiguration:
    """Paths of the host's files.

    `root` is the host's mount namespace. `kubelet`, its root folder, `cri` and `nri`, the runtime's sockets, `cni_conf`, `cni_bin` and `flannel` are
    paths in that namespace; a `flannel` that is absent there is looked for in the daemon's own. The other paths are in the daemon's mount namespace,
    also `kernel_log`, the device of the kernel's log.
    A `kubelet` of None is where the running kubelet says. `device_plugins` has the same path for every kubelet.
    `cni_conf` is the folder in which the runtime looks for CNI configurations, `cni_bin` the one in which it looks for plugins.
    """

    sysfs: Path = Path("/sys")
    kubelet: Path | None = None
    device_plugins: Path = Path(DEFAULT_DEVICE_PLUGINS)
    flannel: Path = Path("/run/flannel/subnet.env")
    root: Path = Path("/proc/1/root")
    cri: Path = Path("/run/containerd/containerd.sock")
    nri: Path = Path(
        "/run/nri/nri.sock"
    )  # of containerd, CRI-O and NRI itself (containerd/nri pkg/api/plugin.go, DefaultSocketPath)
    cni_conf: Path = Path(DEFAULT_CONFLIST).parent
    cni_bin: Path = Path("/opt/cni/bin")
    kernel_log: Path = Path("/dev/kmsg")


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
        kernel_messages: what the kernel's log says of cards, in that condition.
    """

    network_status: bool = True
    events: bool = True
    topology_labels: bool = False
    rails_condition: bool = False
    rails_taint: bool = False
    kernel_messages: bool = False


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
        rail_select: the conditions for these PFs, if `rails` is None; None for no condition.
        pools: the resources that kubelet knows.
        offer: how kubelet and the scheduler learn of the node's VFs: by the device plugin, or by ResourceSlices.
        networks: the networks that pods may have, and each namespace's limit.
        timeouts: seconds that each kind of work may take.
        publish: what the API server is sent about pods, and about the node.
        admission: what the admission helper adds to training pods beside their rails.
        port_thresholds: how many errors of a rail's port are too many for the node's condition.
        memlock: bytes that a container with a rail may lock; `UNLIMITED`, or None for the container runtime's limit.
    """

    host: HostConfiguration = HostConfiguration()
    primary: str | None = None
    rails: tuple[PciAddress, ...] | None = None
    rail_select: PfSelector | None = None
    pools: tuple[Pool, ...] = DEFAULT
    offer: Offer = "device-plugin"
    provision: tuple[Provision | ProvisionBySelector, ...] = ()
    networks: Networks = field(default_factory=Networks)
    timeouts: Timeouts = field(default_factory=Timeouts)
    publish: Publish = Publish()
    admission: Admission = Admission()
    port_thresholds: PortThresholds = field(default_factory=PortThresholds)
    memlock: int | None = None

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
            text = text_of(file, str(path))
    except FileNotFoundError:
        if path == DEFAULT_PATH and not os.path.lexists(path):  # a link to nothing is a file that was lost
            return Configuration()
        raise Misconfigured(
            f"the node configuration {path} does not exist; name an existing file with --config, or leave --config out"
        ) from None
    except OSError as error:
        raise Misconfigured(f"{path} cannot be read: {error.strerror or error!s:.200}") from None
    return parse(text, str(path))


def text_of(file: BinaryIO, source: str) -> str:
    """Return the text of an open file. A file without an end is read only to the largest size that a configuration may have.

    Raises:
        Misconfigured: the file is too long, or is no text. OSError: it cannot be read.
    """
    content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise Misconfigured(f"{source} has more than {_MOST_BYTES >> 20} MiB, so it is no node configuration")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise Misconfigured(
            f"{source} cannot be read: it is no text in UTF-8 from byte {error.start} on; save it as UTF-8"
        ) from None


def parse(text: str, source: str) -> Configuration:
    """Read a configuration from a text.

    Raises:
        Misconfigured: as `load`; the message begins with `source`.
    """
    try:
        return read_document(_document(text))
    except RecursionError:
        raise Misconfigured(f"{source} is nested too deeply") from None
    except Misconfigured as error:
        others = len(faults_of(error)) - 1
        more = f"; `railnet config check` shows {others} more" if others else ""
        raise Misconfigured(f"{source}: {error!s:.1000}{more}") from None


def _document(text: str) -> Any:
    from railnet import strict_yaml  # noqa: PLC0415 - the node's daemon has a configuration and no PyYAML (railnet/daemon_process.py)

    return strict_yaml.read(text)


def read_document(document: Any) -> Configuration:
    """Read a configuration from what a YAML document holds.

    Raises:
        Misconfigured, Faults: all that is wrong with it. A check that compares the values of several keys is left out if one of
            these keys is wrong.
    """
    try:
        read = _DOCUMENT(document, "")
    except Misconfigured as error:
        faults = faults_of(error)
        sound = _DOCUMENT(_without(document, faults), "")
        raise Faults(itertools.chain(faults, _conflicts(sound))) from None
    raise_any(_conflicts(read))
    limits, networks = read.pop("limits", {}), _networks(read)
    read.pop("networks", None)
    read.pop("rdma", None)  # none of its keys has a choice yet
    if isinstance(read.get("rails"), PfSelector):
        read["rail_select"] = read.pop("rails")
    return Configuration(networks=Networks(networks, {EVERYWHERE: Limit(), **limits}), **read)


def _without(document: Any, faults: Iterable[Misconfigured]) -> dict[Any, Any]:
    """Return a document without the keys that have a fault, and without the keys that name what these define."""
    if not isinstance(document, dict):
        return {}
    wrong_keys = {_FIRST_KEY.split(fault.path, maxsplit=1)[0] for fault in faults if isinstance(fault, Fault)}
    if wrong_keys & {"networks", "pools"}:
        wrong_keys.add("limits")
    return {key: value for key, value in document.items() if key in _KEYS - wrong_keys}


def _networks(read: Mapping[str, Any]) -> dict[str, Network]:
    written = {name: replace(network, name=name) for name, network in read.get("networks", {}).items()}
    return {DEFAULT_NETWORK: Network(), **written}


def _conflicts(read: Mapping[str, Any]) -> Iterator[Fault]:
    yield from conflicts(read.get("pools", DEFAULT), read.get("provision", ()), _networks(read), read.get("limits", {}))
    yield from _check_publish(read.get("publish", Publish()))
    for counter, stop in read.get("port_thresholds", PortThresholds()).unreachable():
        path = f"portThresholds.{counter}"
        yield Fault(
            path, f"{path} allows {stop} events or more; the counter stops at {stop}, so it would never be too many"
        )


def _check_publish(publish: Publish) -> Iterator[Fault]:
    if publish.rails_taint and not publish.rails_condition:
        yield Fault(
            "publish.railsTaint",
            "publish.railsTaint is true; publish.railsCondition should be true, too: the taint follows the condition",
        )
    if publish.kernel_messages and not publish.rails_condition:
        yield Fault(
            "publish.kernelMessages",
            "publish.kernelMessages is true; publish.railsCondition should be true, too: the condition has what the kernel says",
        )


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
        raise Fault(
            path,
            f"{path} cannot be given to plugin {kind!r:.80} as JSON: {error!s:.200}; "
            "it should have only strings, numbers, true, false, null, lists and mappings",
        ) from None
    return PluginIpam(value)


def _read_provision(value: Any, path: str) -> Provision | ProvisionBySelector:
    named, selected = (isinstance(value, dict) and key in value for key in ("pf", "select"))
    if named and not selected:
        return _PROVISION(value, path)
    faults: list[Misconfigured] = []
    if named and selected:
        faults.append(
            Fault(f"{path}.pf", f"{path} has pf and select; it should have one: select may have a key pf, too")
        )
        value = {key: entry for key, entry in value.items() if key != "pf"}
    elif isinstance(value, dict) and not selected:
        faults.append(
            Fault(
                path,
                f"{path} has neither pf nor select; it should have pf, which is {PCI_ADDRESS.should_be}, or select",
            )
        )
    try:
        entry = _PROVISION_BY_SELECTOR(value, path)
    except Misconfigured as error:
        faults += faults_of(error)
    else:
        if not faults:
            return entry
    raise Faults(faults)


def _read_rails(value: Any, path: str) -> tuple[PciAddress, ...] | PfSelector:
    if isinstance(value, dict):
        return _RAIL_SELECT(value, path)
    return _RAIL_LIST(value, path)


def _selected(select: PfSelector | None = None) -> PfSelector:
    return select or PfSelector()


def _read_port_thresholds(value: Any, path: str) -> PortThresholds:
    if not isinstance(value, dict):
        raise wrong(value, path, "ignore, or a mapping that has a threshold for each counter that needs another one")
    return _PORT_THRESHOLDS(value, path)


def _plugin_folder(value: Any) -> Path:
    if not isinstance(value, str) or _PLUGIN_FOLDER_TEXT.fullmatch(value) is None:
        raise ValueError(value)
    return Path(value)


def _threshold(value: Any) -> Threshold:
    events, _, duration = value.partition("/") if isinstance(value, str) else ("", "", "")
    if _EVENTS.fullmatch(events) is None:
        raise ValueError(value)
    seconds = SECONDS.convert(duration)
    if seconds < _SHORTEST_WINDOW:
        raise ValueError(value)
    return Threshold(int(events), seconds)


# One table for each object of the document: its keys, and the reader of each key's value.

_THRESHOLD = Scalar(
    "ignore, or how many events in which time are allowed, such as 120/60m (from 10s to 60m)", _threshold
)
_CONFLIST = Scalar("auto, or the absolute path of a CNI configuration", lambda value: str(ABSOLUTE_PATH.convert(value)))
_FOLDER_OR_AUTO = Scalar("auto, or an absolute path", ABSOLUTE_PATH.convert)
_PLUGIN_FOLDER = Scalar(
    f"an absolute path of at most {_LONGEST_PLUGIN_FOLDER} characters without white space and ':'", _plugin_folder
)
_HOST = an_object(
    HostConfiguration,
    {
        **dict.fromkeys(("sysfs", "devicePlugins", "flannel", "root", "cri", "nri", "kernelLog"), ABSOLUTE_PATH),
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
_PF_SELECT = an_object(
    PfSelector,
    {
        "linkType": list_of(one_of(get_args(LinkType))),
        "vendor": list_of(TEXT),
        "pfDevice": list_of(TEXT),
        "function": list_of(PCI_FUNCTION),
        "numaNode": list_of(NUMA_NODE),
        "pf": list_of(PCI_ADDRESS),
    },
)
_PROVISION = an_object(Provision, {}, required={"pf": PCI_ADDRESS, "vfs": POSITIVE}, fixed={"guid": "derived"})
_PROVISION_BY_SELECTOR = an_object(
    ProvisionBySelector, {"select": _PF_SELECT}, required={"vfs": POSITIVE}, fixed={"guid": "derived"}
)
_RAIL_LIST = list_of(PCI_ADDRESS, "auto, a list of the PCI addresses of PFs, or a mapping with the key select")
_RAIL_SELECT = an_object(_selected, {"select": _PF_SELECT})
_OWN_IPAM: dict[str, Reader[NetworkIpam]] = {
    "slice": an_object(SliceIpam, {"range": IP_NETWORK, "rails": POSITIVE}, fixed={"type": "slice"}),
    "none": an_object(NoIpam, {}, fixed={"type": "none"}),
    "static": an_object(StaticIpam, {"range": IP_NETWORK}, fixed={"type": "static"}),
    "sticky": an_object(StickyIpam, {"rails": POSITIVE}, required={"range": IP_NETWORK}, fixed={"type": "sticky"}),
}
OWN_IPAM_TYPES = tuple(_OWN_IPAM)
_NETWORK = an_object(
    Network, {"mtu": MTU, "wait": SECONDS, "pkey": PKEY, "ipam": _read_ipam, "routing": one_of(get_args(Routing))}
)
_LIMIT = an_object(Limit, {"networks": list_of(TEXT), "static": BOOLEAN, "pools": list_of(RESOURCE)})
_TIMEOUTS = an_object(Timeouts, dict.fromkeys(("delegate", "add", "daemon", "kubelet"), SECONDS))
_PUBLISH = an_object(
    Publish,
    dict.fromkeys(
        ("networkStatus", "events", "topologyLabels", "railsCondition", "railsTaint", "kernelMessages"), BOOLEAN
    ),
)
_PORT_THRESHOLDS = an_object(
    PortThresholds,
    {**dict.fromkeys(COUNTERS, word_or("ignore", None, _THRESHOLD)), "recovery": SECONDS},
)
_ADMISSION = an_object(Admission, {"priorityClass": PRIORITY_CLASS, "environment": BOOLEAN})
_FIELDS: dict[str, Reader[Any]] = {
    "host": _HOST,
    "primary": word_or("auto", None, _CONFLIST),
    "rails": word_or("auto", None, _read_rails),
    "pools": list_of(_POOL),
    "offer": one_of(get_args(Offer)),
    "provision": list_of(_read_provision),
    "rdma": an_object(dict, {}, fixed={"netns": "shared"}),
    "networks": by_name(NETWORK_NAME, _NETWORK),
    "limits": by_name(NAMESPACE_NAME, _LIMIT),
    "timeouts": _TIMEOUTS,
    "publish": _PUBLISH,
    "admission": _ADMISSION,
    "portThresholds": word_or("ignore", PortThresholds.none(), _read_port_thresholds),
    "memlock": word_or("runtime", None, word_or("unlimited", UNLIMITED, BYTES)),
}
_FIXED = {"apiVersion": "railnet.io/v1alpha1", "kind": "NodeConfiguration"}
_DOCUMENT: Reader[dict[str, Any]] = an_object(dict, _FIELDS, fixed=_FIXED)
_KEYS = {*_FIELDS, *_FIXED}

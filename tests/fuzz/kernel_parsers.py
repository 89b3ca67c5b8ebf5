"""Parsers of the kernel's data: netlink, sysfs, uevents, /proc."""

import re
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from errno import EAGAIN
from pathlib import Path

from railnet.doctor.memlock_limit import pod_uid
from railnet.fabric import kernel_messages
from railnet.fabric.rails_condition import Moment
from railnet.install import running_plugins
from railnet.kernel.namespaces import netns_search
from railnet.kernel.netlink import dcb, sandbox_link_state, source_routing, uevents
from railnet.kernel.netlink import rdma_netns_mode as rdma_netlink
from railnet.kernel.netlink.protocol import Netlink, decode, decode_attributes
from railnet.kernel.netlink.rtnetlink import Links
from railnet.kernel.sysfs.acs_p2p_redirect import acs_control, described, redirects
from railnet.kernel.sysfs.functions import Sysfs
from railnet.kernel.umad import node_info
from railnet.kernel.umad.node_info import BadAnswer
from railnet.kernel.vf_netdev_recognition import find, host_ifname
from railnet.vf.arp_and_source_routing import RULE_PRIORITY
from railnet.vf.changed_functions import ChangedFunction
from railnet.vf.guid import Guid
from railnet.vf.mac import Mac
from railnet.vf.pci_address import PciAddress
from tests.fuzz.fake_os import in_place_of_files
from tests.fuzz.mutation import SEPARATOR
from tests.fuzz.parser import Parser

_VF = PciAddress.parse("0000:03:00.1")
_SECOND_VF = PciAddress.parse("0000:03:00.2")
_TRANSACTION = 7


class Kernel:
    """A netlink socket that answers each request with the same datagrams, and then with EAGAIN."""

    def __init__(self, datagrams: list[bytes]) -> None:
        self._datagrams, self._remaining = datagrams, list(datagrams)

    def send(self, data: bytes, /) -> int:
        """Check a request's length, and prepare the answers."""
        assert len(data) == struct.unpack_from("=I", data)[0]
        self._remaining = list(self._datagrams)
        self._sequence = data[8:12]
        return len(data)

    def recv(self, size: int, /) -> bytes:
        """Return the next datagram."""
        if not self._remaining:
            raise OSError(EAGAIN, "nothing more")
        return self._remaining.pop(0)[:size]


class Answers(Kernel):
    """A netlink socket that wraps payloads into messages of a dump, as the answer to each request."""

    def recv(self, size: int, /) -> bytes:
        """Return the next message."""
        if not self._remaining or self._remaining == [b"nothing"]:
            return self._message(3, b"\0\0\0\0")
        payload = self._remaining.pop(0)
        if payload.startswith(b"refused "):
            return self._message(2, struct.pack("=i", -len(payload)) + bytes(16))
        return self._message(16, payload[: size - 16])

    def _message(self, kind: int, payload: bytes) -> bytes:
        return struct.pack("=IHH", 16 + len(payload), kind, 0) + self._sequence + b"\0\0\0\0" + payload


def call_all(*functions: Callable[[], object]) -> None:
    """Call all functions, then raise the last OSError."""
    refused: OSError | None = None
    for function in functions:
        try:
            function()
        except OSError as error:
            refused = error
    if refused is not None:
        raise refused


def netlink(data: bytes) -> None:
    """Judge datagrams: messages, acknowledgements, attributes."""
    datagrams = data.split(SEPARATOR)
    for datagram in datagrams:
        _only_value_error(lambda raw=datagram: list(decode(raw)))  # type: ignore[misc]
        _only_value_error(lambda raw=datagram: decode_attributes(raw))  # type: ignore[misc]
    answers = Netlink(Kernel(datagrams)).ask("read what there is", 18)
    assert all(isinstance(answer, bytes) for answer in answers)


def _only_value_error(read: Callable[[], object]) -> None:
    try:
        read()
    except ValueError:
        return


def rtnetlink(data: bytes) -> None:
    """Judge answers about links and addresses, for every kind of request."""
    answers = data.split(SEPARATOR)
    links = Links(Answers(answers))  # type: ignore[arg-type]
    one = Links(Answers(answers[:1]))  # type: ignore[arg-type]

    def listed() -> None:
        for link in links.listed():
            link.ifname.encode(errors="surrogateescape")
            one.rename(link.ifindex, link.ifname)
        find(links.listed(), _VF)

    call_all(
        listed,
        lambda: one.facts(5),
        lambda: one.hardware(5),
        lambda: links.addresses(9),
        lambda: one.addresses(9),
    )


def link_states(data: bytes) -> None:
    """Judge the state of links that CHECK reads inside a sandbox, where a pod may have named and marked them."""
    answers = data.split(SEPARATOR)

    class Sandbox(Links):
        def ifindex(self, ifname: str) -> int | None:
            return 5 if ifname == "net1" else None

    @contextmanager
    def links(_: int) -> Iterator[Links]:
        yield Sandbox(Answers(answers))  # type: ignore[arg-type]

    real, sandbox_link_state.links = sandbox_link_state.links, links  # type: ignore[assignment]
    try:
        call_all(
            lambda: sandbox_link_state.link_states([_VF], 3),
            lambda: sandbox_link_state.link_states([_VF, _SECOND_VF], 3),
            lambda: sandbox_link_state.hardware_addresses(["net1", "net2"], 3),
        )
    finally:
        sandbox_link_state.links = real


def rules_and_routes(data: bytes) -> None:
    """Judge rules and routing tables that CHECK reads inside a sandbox, where a pod may have made its own."""
    namespace = Links(Answers(data.split(SEPARATOR)))  # type: ignore[arg-type]

    def rules() -> None:
        for rule in source_routing.rules(namespace, RULE_PRIORITY):
            source_routing.remove_rule(namespace, rule, RULE_PRIORITY)

    def routes() -> None:
        for table, route in source_routing.routes(namespace, 9, frozenset({5601})):
            assert table == 5601
            assert route.gateway is None or isinstance(route.gateway.packed, bytes)

    call_all(rules, routes)


def rdma(data: bytes) -> None:
    """Judge answers about the namespace mode of RDMA devices."""
    assert rdma_netlink.ask(Answers(data.split(SEPARATOR))) in ("shared", "exclusive")


def sysfs(data: bytes) -> None:
    """Judge a sysfs tree."""
    with in_place_of_files(data):
        read = Sysfs(Path("/sys"))
        inventory = read.inventory()
        for pf in inventory.pfs:
            assert read.netdev(pf.address) == pf.netdev
            read.port(pf.address)
            read.pkeys(pf.address)
            roce = read.roce_port(pf.address)
            assert roce is None or all(gid.version in (1, 2) for gid in roce.gids)
            rate = read.rate(pf.address)
            assert rate is None or float(rate) >= 0
            for vf in pf.vfs:
                assert read.reread(vf).address == vf.address
        assert inventory.rails is not None
    with in_place_of_files(b""):  # the whole tree is gone
        for vf in [vf for pf in inventory.pfs for vf in pf.vfs][:1]:
            assert read.reread(vf).netdev is read.netdev(vf.address) is read.port(vf.address) is None
            assert read.pkeys(vf.address) == ()
            assert read.roce_port(vf.address) is None


def flow_control(data: bytes) -> None:
    """Judge an answer about DCB, without its netlink header."""
    found = dcb.decode(data)
    assert found is None or set(found.priorities) <= set(range(8))


def pci_configuration(data: bytes) -> None:
    """Judge a function's configuration space, from its first extended capability on: a node has 4 KiB for each."""
    found = acs_control(bytes(0x100) + data[:3840])
    assert found is None or 0 <= found <= 0xFFFF
    assert found is None or not redirects(found) or described(found)


def umad(data: bytes) -> None:
    """Judge what a umad device returns for an answer of a switch; the question has the transaction of the corpus."""
    found = node_info.parse(data, _TRANSACTION)
    assert found is None or (found.kind in ("CA", "switch", "router") and found.node_guid.usable)
    assert found is None or 0 < found.port < 255


def identity(data: bytes) -> None:
    """Judge PCI addresses, GUIDs and MACs. A parsed value is parsed again from its own text."""
    text = data.decode(errors="replace")
    refused: ValueError | None = None
    for parse, texts in (
        (PciAddress.parse, lambda found: (str(found),)),
        (Guid.parse, lambda found: (str(found), found.quads)),
        (Mac.parse, lambda found: (str(found),)),
    ):
        try:
            found = parse(text)  # type: ignore[operator]
            again = [parse(form) for form in texts(found)]  # type: ignore[operator, no-untyped-call]
            assert all(one == found for one in again)
        except ValueError as error:
            refused = error
    if refused is not None:
        raise refused


class _Monitor:
    """A pyudev monitor with one device."""

    def __init__(self, device: "_Device") -> None:
        self._devices = [device]

    def poll(self, timeout: int) -> "_Device | None":
        return self._devices.pop() if self._devices else None


class _Device:
    """A uevent as the kernel sends it: ACTION, DEVPATH and SUBSYSTEM, each with a NUL behind it. pyudev decodes them in the same way."""

    def __init__(self, data: bytes) -> None:
        fields = dict(field.partition(b"=")[::2] for field in data.split(b"\0"))
        self.path = fields.get(b"DEVPATH", b"")
        self._action, self._subsystem = fields.get(b"ACTION"), fields.get(b"SUBSYSTEM")
        self.is_text = all(map(_is_text, (self.path, self._action or b"", self._subsystem or b"")))

    @property
    def device_path(self) -> str:
        return self.path.decode()

    @property
    def action(self) -> str | None:
        return None if self._action is None else self._action.decode()

    @property
    def subsystem(self) -> str | None:
        return None if self._subsystem is None else self._subsystem.decode()


def uevent(data: bytes) -> None:
    """Judge a uevent. Its path may contain a netdev's name that a pod chose."""
    reported: list[ChangedFunction | None] = []
    device = _Device(data)
    uevents._read(_Monitor(device), reported.append)  # type: ignore[arg-type]
    if not device.is_text:
        assert reported == [None]  # it may be of any function
        return
    assert len(reported) <= 1
    assert not reported or not device.path.startswith(b"/devices/virtual/")
    for changed in filter(None, reported):
        address = str(changed.address).encode()
        assert any(_is_address(part, address) for part in device.path.split(b"/"))
        assert not changed.with_card or data.count(b"SUBSYSTEM=pci")


def _is_address(part: bytes, address: bytes) -> bool:
    return part == address or part.lstrip(b"0") == address.lstrip(b"0")  # a domain of more digits may begin with zeros


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except ValueError:
        return False
    return True


class _Process:
    """A folder of /proc in memory."""

    def __init__(self, files: dict[str, bytes], name: str = "") -> None:
        self._files, self._name = files, name

    def __truediv__(self, name: str) -> "_Process":
        return _Process(self._files, name)

    def read_bytes(self) -> bytes:
        if self._name not in self._files:
            raise FileNotFoundError(self._name)
        return self._files[self._name]


def process(data: bytes) -> None:
    """Judge a process's cmdline, environ and status. The process controls the first two."""
    names = ("cmdline", "environ", "status")
    files = dict(zip(names, (part.replace(b"|", b"\0") for part in data.split(SEPARATOR)), strict=False))
    assert running_plugins._is_request(_Process(files)) in (True, False)  # type: ignore[arg-type]


def cgroup(data: bytes) -> None:
    """Judge a process's cgroup, below which a pod may have made and named cgroups of its own."""
    uid = pod_uid(data.decode(errors="backslashreplace"))
    assert not uid or re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", uid)


class _Mountinfo:
    """The path of a host's `/proc/self/mountinfo`, with some content."""

    name, parent = "root", None

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.parent = self  # type: ignore[assignment]

    def __truediv__(self, name: str) -> "_Mountinfo":
        return self

    def read_text(self, errors: str = "strict") -> str:
        return self._content.decode(errors=errors)


def mountinfo(data: bytes) -> None:
    """Judge the paths at which namespaces are bound. Any program that mounts them chooses the paths."""
    assert all(isinstance(path, str) for path in netns_search.bound(_Mountinfo(data)))  # type: ignore[arg-type]


def other_addresses(data: bytes) -> None:
    """Judge the addresses in a namespace, and the aliases of its links."""
    answers = data.split(SEPARATOR)

    @contextmanager
    def opened(*_: int) -> Iterator[Kernel]:
        yield Answers(answers)

    def aliases() -> None:
        for link in Links(Answers(answers)).listed():  # type: ignore[arg-type]
            name = host_ifname(link, _VF)
            assert name is None or (0 < len(name) < 16 and not set(name) & set("/: \0"))

    real, netns_search.netlink = netns_search.netlink, opened  # type: ignore[assignment]
    try:
        call_all(lambda: list(netns_search._addresses(3)), aliases)
    finally:
        netns_search.netlink = real


_LINK_FUNCTIONS = (
    "Links.listed",
    "Links.facts",
    "Links.hardware",
    "Links.addresses",
    "Links._read_link",
    "_link",
    "_address",
)
_UMAD_FUNCTIONS = ("parse", "_parse_failure", "_check_status", "_parse_node_info")
_PROTOCOL_FUNCTIONS = (
    "Netlink",
    "decode",
    "decode_attributes",
    "text",
    "_cut",
    "_aligned",
    "_raise_if_refused",
    "_kernel_message",
)
_SYSFS_FUNCTIONS = (
    "Sysfs.inventory",
    "Sysfs.reread",
    "Sysfs.netdev",
    "Sysfs.port",
    "Sysfs.pkeys",
    "Sysfs.rate",
    "Sysfs.addresses",
)
_SYSFS_FUNCTIONS += (
    "CardReading._pf",
    "CardReading._vf",
    "_card",
    "_pf_card",
    "_read_pci_ids",
    "_read_state",
    "_virtual_functions",
    "_netdev",
    "_has_port",
    "_rdma",
)
_SYSFS_FUNCTIONS += ("_of_port", "_port", "_device_node", "Sysfs.roce_port", "_gids")


def kernel_log(data: bytes) -> None:
    """Judge records of /dev/kmsg: a message about a card is bounded and printable, and makes one incident of its kind."""
    incidents: dict[str, kernel_messages.KernelIncident] = {}
    now = Moment(0.0, datetime(2026, 1, 1, tzinfo=UTC))
    for raw in data.split(SEPARATOR):
        record = kernel_messages.parse_record(raw)
        message = None if record is None else kernel_messages.recognised(record)
        if message is not None:
            assert message.text.isprintable() or not message.text
            assert (message.pci is None) != (message.rdma is None)
            incidents = kernel_messages.noted(incidents, message, now)
    assert len(incidents) <= len(kernel_messages.KINDS)
    assert all(len(error.text) < 600 for error in kernel_messages.errors(incidents))


PARSERS = (
    Parser(
        "kernel-log",
        kernel_log,
        (),
        {"railnet.fabric.kernel_messages": ("parse_record", "recognised", "noted", "errors")},
    ),
    Parser("netlink", netlink, (OSError,), {"railnet.kernel.netlink.protocol": _PROTOCOL_FUNCTIONS}),
    Parser(
        "rtnetlink",
        rtnetlink,
        (OSError,),
        {"railnet.kernel.netlink.rtnetlink": _LINK_FUNCTIONS, "railnet.kernel.vf_netdev_recognition": ("find",)},
    ),
    Parser("link_state", link_states, (OSError,), {"railnet.kernel.netlink.sandbox_link_state": ()}),
    Parser(
        "source-routing", rules_and_routes, (OSError,), {"railnet.kernel.netlink.source_routing": ("rules", "routes")}
    ),
    Parser("rdma", rdma, (OSError,), {"railnet.kernel.netlink.rdma_netns_mode": ("ask",)}),
    Parser("dcb", flow_control, (ValueError, LookupError), {"railnet.kernel.netlink.dcb": ("decode",)}),
    Parser(
        "sandbox",
        other_addresses,
        (OSError,),
        {
            "railnet.kernel.namespaces.netns_search": ("_addresses",),
            "railnet.kernel.vf_netdev_recognition": ("host_ifname", "_marked"),
        },
    ),
    Parser("cgroup", cgroup, (), {"railnet.doctor.memlock_limit": ("pod_uid",)}),
    Parser("mountinfo", mountinfo, (), {"railnet.kernel.namespaces.netns_search": ("bound",)}),
    Parser(
        "sysfs",
        sysfs,
        (OSError,),
        {"railnet.kernel.sysfs.functions": _SYSFS_FUNCTIONS, "railnet.kernel.sysfs.folder": ()},
    ),
    Parser(
        "pci-configuration",
        pci_configuration,
        (),
        {"railnet.kernel.sysfs.acs_p2p_redirect": ("acs_control", "redirects", "described")},
    ),
    Parser("umad", umad, (OSError, BadAnswer), {"railnet.kernel.umad.node_info": _UMAD_FUNCTIONS}),
    Parser(
        "identity",
        identity,
        (ValueError,),
        {"railnet.vf.pci_address": (), "railnet.vf.guid": ("Guid",), "railnet.vf.mac": ("Mac",)},
    ),
    Parser("uevent", uevent, (), {"railnet.kernel.netlink.uevents": ("_read", "_report", "named_function")}),
    Parser(
        "process", process, (), {"railnet.install.running_plugins": ("_is_request", "_is_in_the_hosts_pid_namespace")}
    ),
)

"""What the kernel says: netlink, sysfs, uevents, /proc."""

import asyncio
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from errno import EAGAIN
from pathlib import Path

from kernel import netns_search, uevents
from kernel.netlink import sandbox_links
from kernel.netlink.links import Links
from kernel.netlink.protocol import Netlink, decode, decode_attributes
from kernel.netlink.rdma import Rdma
from kernel.perform import find, host_ifname
from kernel.sysfs import Sysfs
from railnet.install import running_plugins
from tests.fuzz.fake_os import in_place_of_files
from tests.fuzz.mutation import SEPARATOR
from tests.fuzz.parser import Parser
from vf.address import PciAddress
from vf.guid import Guid
from vf.mac import Mac

_VF = PciAddress.parse("0000:03:00.1")


class Kernel:
    """Answers each request with the same datagrams, then has nothing more to say."""

    def __init__(self, datagrams: list[bytes]) -> None:
        self._datagrams, self._left = datagrams, list(datagrams)

    def send(self, data: bytes, /) -> int:
        """Take a request."""
        assert len(data) == struct.unpack_from("=I", data)[0]
        self._left = list(self._datagrams)
        self._sequence = data[8:12]
        return len(data)

    def recv(self, size: int, /) -> bytes:
        """Give a datagram."""
        if not self._left:
            raise OSError(EAGAIN, "nothing more")
        return self._left.pop(0)[:size]


class Answers(Kernel):
    """Wraps payloads into messages that answer the request, and ends them as a dump."""

    def recv(self, size: int, /) -> bytes:
        """Give a message."""
        if not self._left or self._left == [b"nothing"]:
            return self._message(3, b"\0\0\0\0")
        payload = self._left.pop(0)
        if payload.startswith(b"refused "):
            return self._message(2, struct.pack("=i", -len(payload)) + bytes(16))
        return self._message(16, payload[: size - 16])

    def _message(self, kind: int, payload: bytes) -> bytes:
        return struct.pack("=IHH", 16 + len(payload), kind, 0) + self._sequence + b"\0\0\0\0" + payload


def each(*asked: Callable[[], object]) -> None:
    """Ask all; the last refusal is raised after the others were asked."""
    refused: OSError | None = None
    for ask in asked:
        try:
            ask()
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
    """Judge what is told of links and addresses, in every question."""
    answers = data.split(SEPARATOR)
    links = Links(Answers(answers))  # type: ignore[arg-type]
    one = Links(Answers(answers[:1]))  # type: ignore[arg-type]

    def listed() -> None:
        for link in links.listed():
            link.ifname.encode(errors="surrogateescape")
            one.rename(link.ifindex, link.ifname)
        find(links.listed(), _VF)

    each(
        listed,
        lambda: one.facts(5),
        lambda: one.hardware(5),
        lambda: links.addresses(9),
        lambda: one.addresses(9),
    )


def link_states(data: bytes) -> None:
    """Judge what CHECK reads inside of a sandbox, whose links a pod may have named and marked."""
    answers = data.split(SEPARATOR)

    class Sandbox(Links):
        def ifindex(self, ifname: str) -> int | None:
            return 5 if ifname == "net1" else None

    @contextmanager
    def links(_: int) -> Iterator[Links]:
        yield Sandbox(Answers(answers))  # type: ignore[arg-type]

    real, sandbox_links.links = sandbox_links.links, links  # type: ignore[assignment]
    try:
        each(
            lambda: sandbox_links.link_states([_VF], 3),
            lambda: sandbox_links.hardware_addresses(["net1", "net2"], 3),
        )
    finally:
        sandbox_links.links = real


def rdma(data: bytes) -> None:
    """Judge what is told of RDMA devices, in every question."""
    kernel = Rdma(Answers(data.split(SEPARATOR)))
    each(
        kernel.netns_mode,
        kernel.devices,
        lambda: kernel.find("mlx5_7"),
        lambda: kernel.port(7),
        lambda: kernel.character_device(7, "uverbs"),
        lambda: kernel.character_device(7, "umad"),
    )


def sysfs(data: bytes) -> None:
    """Judge a tree of sysfs."""
    with in_place_of_files(data):
        read = Sysfs(Path("/sys"))
        inventory = read.inventory()
        for pf in inventory.pfs:
            assert read.netdev(pf.address) == pf.netdev
            read.port(pf.address)
            read.pkeys(pf.address)
            for vf in pf.vfs:
                assert read.reread(vf).address == vf.address
        assert inventory.rails is not None
    with in_place_of_files(b""):  # all of it goes away
        for vf in [vf for pf in inventory.pfs for vf in pf.vfs][:1]:
            assert read.reread(vf).netdev is read.netdev(vf.address) is read.port(vf.address) is None
            assert read.pkeys(vf.address) == ()


def identity(data: bytes) -> None:
    """Judge addresses, GUIDs and MACs in their own spelling; what is understood is spelled again as it was."""
    text = data.decode(errors="replace")
    refused: ValueError | None = None
    for parse, spellings in (
        (PciAddress.parse, lambda found: (str(found),)),
        (Guid.parse, lambda found: (str(found), found.quads)),
        (Mac.parse, lambda found: (str(found),)),
    ):
        try:
            found = parse(text)  # type: ignore[operator]
            again = [parse(spelling) for spelling in spellings(found)]  # type: ignore[operator, no-untyped-call]
            assert all(one == found for one in again)
        except ValueError as error:
            refused = error
    if refused is not None:
        raise refused


class _Monitor:
    """Gives one device, then none."""

    def __init__(self, path: bytes) -> None:
        self._paths = [path]

    def poll(self, timeout: int) -> "_Device | None":
        return _Device(self._paths.pop()) if self._paths else None


class _Device:
    def __init__(self, path: bytes) -> None:
        self._path = path

    @property
    def device_path(self) -> str:
        return self._path.decode()  # as pyudev does


def uevent(data: bytes) -> None:
    """Judge a device's path, in which a pod may have named a netdev."""
    changed = asyncio.Event()
    uevents._read(_Monitor(data), changed)  # type: ignore[arg-type]
    assert changed.is_set() != data.startswith(b"/devices/virtual/") or not _is_text(data)


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
    """Judge a process's cmdline, environ and status, two of which it writes itself."""
    names = ("cmdline", "environ", "status")
    files = dict(zip(names, (part.replace(b"|", b"\0") for part in data.split(SEPARATOR)), strict=False))
    assert running_plugins._is_request(_Process(files)) in (True, False)  # type: ignore[arg-type]


class _Mountinfo:
    """`/proc/self/mountinfo` of a host, where it is looked for."""

    name, parent = "root", None

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.parent = self  # type: ignore[assignment]

    def __truediv__(self, name: str) -> "_Mountinfo":
        return self

    def read_text(self, errors: str = "strict") -> str:
        return self._content.decode(errors=errors)


def mountinfo(data: bytes) -> None:
    """Judge where namespaces are bound, which whoever mounts may name."""
    assert all(isinstance(path, str) for path in netns_search.bound(_Mountinfo(data)))  # type: ignore[arg-type]


def other_addresses(data: bytes) -> None:
    """Judge the addresses in a namespace, and what is written on links there."""
    answers = data.split(SEPARATOR)

    @contextmanager
    def opened(*_: int) -> Iterator[Kernel]:
        yield Answers(answers)

    def marks() -> None:
        for link in Links(Answers(answers)).listed():  # type: ignore[arg-type]
            name = host_ifname(link, _VF)
            assert name is None or (0 < len(name) < 16 and not set(name) & set("/: \0"))

    real, netns_search.netlink = netns_search.netlink, opened  # type: ignore[assignment]
    try:
        each(lambda: list(netns_search._addresses(3)), marks)
    finally:
        netns_search.netlink = real


_ASKED = (
    "Links.listed",
    "Links.facts",
    "Links.hardware",
    "Links.addresses",
    "_link",
    "_address",
)
_TOLD = ("Rdma.netns_mode", "Rdma.devices", "Rdma.find", "Rdma.port", "Rdma.character_device", "Rdma._one", "_device")
_DECODED = ("Netlink", "decode", "decode_attributes", "text", "_cut", "_aligned", "_raise_if_refused", "_words")
_READ = (
    "Sysfs.inventory",
    "Sysfs.reread",
    "Sysfs.netdev",
    "Sysfs.port",
    "Sysfs.pkeys",
    "Sysfs._addresses",
    "Sysfs._function",
)
_READ += ("Sysfs._pf", "Sysfs._vfs", "_kind", "_changing", "_vf", "_virtual_functions", "_netdev", "_has_port", "_rdma")
_READ += ("_of_port_1", "_port", "_device_node")
PARSERS = (
    Parser("netlink", netlink, (OSError,), {"kernel.netlink.protocol": _DECODED}),
    Parser("rtnetlink", rtnetlink, (OSError,), {"kernel.netlink.links": _ASKED, "kernel.perform": ("find",)}),
    Parser("link_state", link_states, (OSError,), {"kernel.netlink.sandbox_links": ()}),
    Parser("rdma", rdma, (OSError,), {"kernel.netlink.rdma": _TOLD}),
    Parser(
        "sandbox",
        other_addresses,
        (OSError,),
        {"kernel.netns_search": ("_addresses",), "kernel.perform": ("host_ifname", "_marked")},
    ),
    Parser("mountinfo", mountinfo, (), {"kernel.netns_search": ("bound",)}),
    Parser("sysfs", sysfs, (OSError, ValueError), {"kernel.sysfs": _READ, "kernel.sysfs_folder": ()}),
    Parser("identity", identity, (ValueError,), {"vf.address": (), "vf.guid": ("Guid",), "vf.mac": ("Mac",)}),
    Parser("uevent", uevent, (), {"kernel.uevents": ("_read", "_is_virtual")}),
    Parser(
        "process", process, (), {"railnet.install.running_plugins": ("_is_request", "_is_in_the_hosts_pid_namespace")}
    ),
)

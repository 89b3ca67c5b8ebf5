"""Parsers of the input from container runtimes, plugins and flannel."""

import contextlib
import io
import json
import os
from collections.abc import Callable, Generator, Iterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from cni.attachment import ipam_plugin
from cni.attachment.local_ipam import LocalIpam
from cni.host import chain, frames, json_text, netconf, plugin, result_version_conversion, status
from cni.host.chain import ExecOutput
from cni.host.environment import Environment
from cni.host.errors import CniError, DelegateError
from cni.host.frames import FrameError
from cni.request import CniRequest
from cni.request import parse as parse_request
from railnet.errors import Misconfigured, NoAddress
from railnet.vf.address_slice import choose
from railnet.vf.inventory import Inventory, PhysicalFunction
from railnet.vf.permitted_networks import SliceIpam
from railnet.vf.record import Netns, Record, RecordedIpam, SandboxPod, decode, encode
from tests.fuzz.mutation import SEPARATOR
from tests.fuzz.parser import Parser
from tests.railnet.vf.builders import an_attachment

_LONGEST_FILE_NAME = 255 - len(".") - len(".json.XXXXXXXX")  # the temporary name that `write_atomically` uses


def coded(*codes: int) -> Callable[[Callable[[bytes], None]], Callable[[bytes], None]]:
    """Make a judge check the CNI error codes of its parser. A delegate's error has the delegate's code."""

    def decorate(judge: Callable[[bytes], None]) -> Callable[[bytes], None]:
        def judged(data: bytes) -> None:
            try:
                judge(data)
            except DelegateError:
                raise
            except CniError as error:
                assert error.code in codes, f"code {error.code}: {error}"
                assert json.loads(error.stdout())["code"] == error.code
                assert len(error.stdout()) < frames.MAX_STDOUT
                raise

        return judged

    return decorate


def environ_of(part: bytes) -> dict[bytes, bytes]:
    """Parse an environment that is written in lines; `\\n` is a line's end within a value."""
    return frames.parse_environ(part.replace(b"\0", b"").replace(b"\n", b"\0").replace(b"\\n", b"\n"))


@coded(4)
def environment(data: bytes) -> None:
    """Judge CNI_* and CNI_ARGS."""
    read = Environment(environ_of(data))
    assert read.for_delegate("DEL")[b"CNI_COMMAND"] == b"DEL"
    texts = (read.pod_namespace(), read.pod_name(), read.pod_uid(), read.netns, *read.path)
    assert all(isinstance(text, str) for text in texts)
    if read.container_id:
        assert not set(read.key) & set("/\0\n ") and not read.key.startswith(".")
        assert len(os.fsencode(read.key)) <= _LONGEST_FILE_NAME
        assert read.key.split("@", 1) == [read.container_id, read.ifname]


@coded(1, 6, 7)
def network_configuration(data: bytes) -> None:
    """Judge the network configuration on stdin. The input's first part is the verb."""
    command, _, stdin = data.partition(SEPARATOR)
    verb = command.decode(errors="replace").strip()
    if verb == "VERSION":
        answer = json.loads(plugin._versions(stdin))
        assert answer["supportedVersions"]
        return
    conf = netconf.parse(stdin, verb)
    assert conf.version in netconf.SUPPORTED_VERSIONS
    assert all(
        isinstance(name, str)
        for name in (conf.primary, conf.conflist, conf.device_plugins, *conf.resources, *conf.valid)
    )
    assert all(isinstance(text, str) for pair in conf.annotations.items() for text in pair)
    assert all(0 < seconds <= netconf.MAX_SECONDS for seconds in conf.seconds.values())
    assert isinstance(conf.runtime_config, dict)
    assert conf.prev_result is None or isinstance(conf.prev_result, dict)


@coded(1, 4, 6, 7)
def request(data: bytes) -> None:
    """Judge environment and stdin together, as the daemon reads them."""
    environ, _, stdin = data.partition(SEPARATOR)
    read: CniRequest = parse_request(environ_of(environ), stdin, None)
    assert all(isinstance(text, str) for text in read.pod)
    assert read.static in (True, False)


def _hello(data: bytes) -> None:
    assert frames.asks_for_alive(data) >= frames.allows_exec_delegate(data)
    for payload in (data, data[:8], data[:4]):
        with contextlib.suppress(FrameError):
            assert frames.parse_hello(payload)[0] >= 0


def frame(data: bytes) -> None:
    """Judge frames, blobs and environments. A parsed value is encoded to the same bytes."""
    refused: FrameError | None = None
    for count in range(7):
        try:
            assert frames.blobs(*frames.parse_blobs(data, count)) == data
        except FrameError as error:
            refused = error
    try:
        exit_status, stdout = frames.parse_done(data)
        assert bytes((exit_status,)) + frames.blobs(stdout) == data
    except FrameError as error:
        refused = error
    _hello(data)
    if len(data) == frames.HEADER_BYTES:
        with contextlib.suppress(FrameError):
            raise AssertionError(frames.frame(0, bytes(frames.MAX_PAYLOAD + 1)))
    if len(data) == 4:
        assert frames.i32(int.from_bytes(data, "big", signed=True)) == data
    environ = frames.parse_environ(data)
    assert frames.parse_environ(frames.environ_blob(environ)) == environ
    _judge_reception(data)
    kind, length = frames.parse_header(data[: frames.HEADER_BYTES])
    payload = data[frames.HEADER_BYTES :]
    if length == len(payload) or len(data) > frames.MAX_PAYLOAD:
        assert frames.frame(kind, payload) == data
    if refused is not None:
        raise refused


def _judge_reception(data: bytes) -> None:
    """Judge the reception of one frame from a stream whose reads return at most 100 bytes."""
    stream = io.BytesIO(data)
    try:
        received = frames.receive(lambda count: stream.read(min(count, 100)))
    except (FrameError, EOFError):
        return
    assert frames.missing(data) == 0
    arrived = bytearray(data)
    assert (*frames.take_first(arrived), arrived) == (*received, data[stream.tell() :])


def outputs_of(parts: list[bytes]) -> Iterator[ExecOutput]:
    """Yield the outputs of delegates: a line with the wait status, then stdout. stderr equals stdout."""
    for part in parts:
        first, _, stdout = part.partition(b"\n")
        number = first.strip()
        yield ExecOutput(int(number) if number.removeprefix(b"-").isdigit() and len(number) < 9 else 0, stdout, stdout)
    while True:
        yield ExecOutput(0, b"", b"")


def drive(steps: Generator[chain.Exec, ExecOutput, Any], outputs: Iterator[ExecOutput]) -> Any:
    """Run a chain with these outputs of its plugins, and return its result."""
    try:
        step = next(steps)
        while True:
            assert isinstance(json.loads(step.stdin), dict) and step.environ()[b"CNI_COMMAND"] == step.command.encode()
            assert "/" not in step.plugin and "\0" not in step.plugin
            step = steps.send(next(outputs))
    except StopIteration as stop:
        return stop.value


# Files in memory, which need no removal.
_SUBNET_ENV, _PRIMARY = os.memfd_create("subnet.env"), os.memfd_create("primary")


def _written(fd: int, content: bytes) -> str:
    os.ftruncate(fd, 0)
    os.pwrite(fd, content, 0)
    return f"/proc/self/fd/{fd}"


def _with_folder(conf: bytes, plugins: list[bytes]) -> None:
    """Judge a primary configuration beside which a folder of plugins is."""
    assert chain.parse(conf, "/n/p").plugins
    read = chain.parse(conf, "/n/p", "1.1.0", lambda folder: [(f"{folder}/1.conf", text) for text in plugins])
    assert all(isinstance(plugin["type"], str) for plugin in read.plugins)


@coded(6, 7, 11, 105, 106)
def primary(data: bytes) -> None:
    """Judge a primary configuration and the output of its plugins, for every verb."""
    conf, *printed = data.split(SEPARATOR)
    read = chain.load(_written(_PRIMARY, conf) if conf else "/nonexistent", "1.1.0")
    assert read.plugins and isinstance(read.name, str)
    assert chain.without(read, [plugin["type"] for plugin in read.plugins]).plugins == read.plugins[:1]
    _with_folder(conf, [text for text in printed if text.startswith(b'{"type"')])
    failure: CniError | None = None
    runtime_config = {"portMappings": [{"hostPort": 1}]}
    result = None
    for verb in (
        lambda _: chain.add(read, {}),
        lambda _: chain.add(read, runtime_config),
        lambda result: chain.check(read, {}, result),
        lambda result: chain.delete(read, runtime_config, result),
        lambda _: chain.status(read),
        lambda _: chain.collect(read, {"cni.dev/valid-attachments": []}),
    ):
        try:
            raw = drive(verb(result), outputs_of(printed))
            result = json.loads(raw) if raw else result
            assert result is None or isinstance(result, dict)
        except CniError as error:
            failure = error
    if failure is not None:
        raise failure


def cni_version(data: bytes) -> None:
    """Judge versions, and results that are converted to another version."""
    declared, listed, result = [*data.split(SEPARATOR), b"", b""][:3]
    texts = listed.decode(errors="replace").split("\n")
    asked = "1.0.0"
    found = result_version_conversion.chosen(declared.decode(errors="replace"), texts, asked)
    assert result_version_conversion.number(found) <= result_version_conversion.number(asked)
    try:
        value = json.loads(result)
    except (ValueError, RecursionError):
        return
    if isinstance(value, dict):
        for version in ("0.3.1", "1.0.0"):
            converted = result_version_conversion.result_in(version, value)
            assert value.get("cniVersion", version) == version or converted["cniVersion"] == version


def json_text_(data: bytes) -> None:
    """Judge `json_text` by Python's json: both yield the same values and the same text, or both refuse."""
    text = data.decode(errors="replace")
    try:
        expected = json.loads(text)
    except ValueError:
        expected = json_text_
    found = json_text.loads(text)
    assert repr(found) == repr(expected)
    assert json_text.dumps(found) == json.dumps(found)


_IPAM = RecordedIpam(
    {"cniVersion": "1.0.0", "name": "railnet-x", "ipam": {"type": "host-local"}}, ("net1", "net2"), "/opt/cni/bin"
)


@coded(6, 7, 11, 105, 106)
def ipam_result(data: bytes) -> None:
    """Judge the output of an IPAM plugin. Its addresses and routes survive a record's encoding and decoding."""
    printed = data.split(SEPARATOR)
    results = drive(ipam_plugin.add(_IPAM), outputs_of(printed))
    attachments = tuple(
        an_attachment(ifname=ifname, addresses=one.addresses, routes=one.routes) for ifname, one in results.items()
    )
    record = Record("id", "eth0", Netns("/n", 1, 2), SandboxPod("a", "b", "c"), "planned", attachments)
    assert decode(encode(record)) == record
    drive(ipam_plugin.delete(_IPAM), outputs_of(printed[2:]))


class _Read(LocalIpam):
    """Reads some content in place of the host's file."""

    def __init__(self, content: bytes) -> None:
        super().__init__(Path("/run/flannel/subnet.env"))
        self._content = content

    def _read(self) -> bytes:
        return self._content


_INVENTORY = Inventory(
    tuple(
        PhysicalFunction(an_attachment().vf._replace(bus=bus), "", "", 0x020700, None, 0, 8, 8, None, None, False, ())
        for bus in (1, 2, 3)
    )
)


def subnet_env(data: bytes) -> None:
    """Judge flannel's subnet.env and the slices that are computed from it."""
    read = _Read(data)
    for range_, rails in (("10.56.0.0/16", 2), ("fd56::/48", 3), ("10.56.0.0/16", None)):
        ipam_ = SliceIpam(ip_network(range_), rails)
        try:
            slices = [read._slice(ipam_, rail, _INVENTORY) for rail in range(3)]
        except (NoAddress, Misconfigured) as error:
            failure = error
            continue
        assert not any(one.part.overlaps(other.part) for one in slices for other in slices if one is not other)
        for slice_ in slices:
            address = choose(slice_, 1, ())
            assert slice_.part.subnet_of(slice_.prefix) and slice_.prefix.subnet_of(ipam_.range)  # type: ignore[arg-type]
            assert address.ip in slice_.part and address.network == slice_.prefix
            assert address.ip not in (slice_.part[0], slice_.part[-1])
            assert choose(slice_, 1, {address.ip}) != address
            if slice_.capacity < 300:
                taken = {slice_.part[number] for number in range(slice_.part.num_addresses)}
                with contextlib.suppress(NoAddress):
                    raise AssertionError(choose(slice_, 1, taken))
        failure = None
    if failure is not None:
        raise failure


@coded(50)
def lease(data: bytes) -> None:
    """Judge the files that STATUS reads: the primary configuration and flannel's subnet.env."""
    conf, _, env = data.partition(SEPARATOR)
    subnet_file = _written(_SUBNET_ENV, env).encode()
    status.available(_written(_PRIMARY, conf.replace(b"@subnet.env", subnet_file)), "1.1.0")


CNI = "cni.host."
PARSERS = (
    Parser("json", json_text_, (ValueError, RecursionError), {CNI + "json_text": ("loads", "dumps")}),
    Parser("environment", environment, (CniError,), {CNI + "environment": ()}),
    Parser(
        "netconf",
        network_configuration,
        (CniError,),
        {CNI + "netconf": (), CNI + "json_object": (), CNI + "plugin": ("_versions",)},
    ),
    Parser("request", request, (CniError,), {"cni.request": ("CniRequest.static",)}),
    Parser("frames", frame, (FrameError,), {CNI + "frames": ()}),
    Parser("primary", primary, (CniError,), {CNI + "chain": ()}),
    Parser("versions", cni_version, (), {CNI + "result_version_conversion": ()}),
    Parser(
        "ipam", ipam_result, (CniError,), {"cni.attachment.ipam_plugin": ("add", "delete", "_exec", "_parse", "_route")}
    ),
    Parser(
        "subnet.env",
        subnet_env,
        (NoAddress, Misconfigured),
        {"railnet.vf.address_slice": (), "cni.attachment.local_ipam": ("LocalIpam._slice",)},
    ),
    Parser("lease", lease, (CniError,), {CNI + "status": ()}),
)

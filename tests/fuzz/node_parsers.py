"""Parsers of data from kubelet, the API server, the administrator's files, and Railnet's own files."""

import base64
import gzip
import hashlib
import http.client
import io
import json
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from ipaddress import IPv4Address, ip_address
from pathlib import Path
from typing import Any, Literal, get_args

from google.protobuf.message import DecodeError

from cni import libcni_cache
from cni.host import flannel_state_backup
from cni.host.chain import parse as parse_primary
from cni.host.environment import is_container_id
from cni.host.errors import CniError
from cni.primary_gc import state_files
from cni.primary_gc.state_files import StateFolder
from railnet import configuration
from railnet.apiserver import client, network_status
from railnet.apiserver.client import Absent, ApiServer, RequestFailed
from railnet.apiserver.node_transport import NodeTransport
from railnet.apiserver.request import ApiObject, get, merge_patch
from railnet.apiserver.service_account import ServiceAccount
from railnet.bundle import archive, bundle_findings
from railnet.config_check import node_comparison
from railnet.config_check.chart_values import OWN_VALUES
from railnet.config_check.file_check import ThisNode, check
from railnet.config_check.remark import Remark
from railnet.configuration import Configuration
from railnet.daemon.conflist import conflist, foreign_plugins
from railnet.daemon.conflist.conflist import Beside
from railnet.daemon.conflist.foreign_plugins import ForeignPlugins
from railnet.doctor import cluster_checks
from railnet.doctor.cluster_parsing import pod_rails
from railnet.dra import cdi_spec, claim
from railnet.dra.claim import ClaimIdentity
from railnet.dra.prepared_claim import UnreadableClaim
from railnet.dra.prepared_claim import decode as decode_claim
from railnet.dra.prepared_claim import encode as encode_claim
from railnet.errors import Misconfigured, NotOurs, NotPermitted, NotReady
from railnet.health_server import Health, Pages
from railnet.install import cni_folders_record, elf_relocation, runtime_cached_configurations
from railnet.kernel.foreign_state_files import Entry
from railnet.kubelet import checkpoint, checkpointed_responses, dra_manager_state, podresources
from railnet.kubelet.api import cri_pb2, deviceplugin_pb2, podresources_pb2
from railnet.kubelet.dra_driver_name import DRIVER
from railnet.objects.network_status import ANNOTATION
from railnet.value_readers import Fault
from railnet.vf import rail_memory
from railnet.vf.address_slice import ip_network
from railnet.vf.inventory import Inventory
from railnet.vf.permitted_networks import (
    Limit,
    Network,
    Networks,
    NoIpam,
    PluginIpam,
    SliceIpam,
    StaticIpam,
    StickyIpam,
)
from railnet.vf.rail_memory import Card, RailNumbers, UnreadableRailMemory
from railnet.vf.record import Stage, UnreadableRecord, decode, encode, find_lost
from tests.deviceplugin.builders import a_pf, a_vf
from tests.fuzz.mutation import SEPARATOR
from tests.fuzz.parser import LONGEST_MESSAGE, Parser
from tests.railnet.vf.builders import a_record, an_attachment

_RESOURCES = frozenset({"rdma/ib_vf"})
_KINDS: dict[bytes, Literal["host-local", "flannel", "libcni"]] = {b"host-local": "host-local", b"flannel": "flannel"}


def device_checkpoint(data: bytes) -> None:
    """Judge kubelet's device checkpoint."""
    entries = checkpoint.parse(data)
    for pod_uid in list(entries)[:8]:
        assert pod_uid
        for resource, device in checkpoint.devices(entries, pod_uid, _RESOURCES):
            assert pod_uid in checkpoint.holders(entries, resource, device)
    for ids, resource, response in checkpoint.responses(checkpoint.listed(data), next(iter(entries), "uid-1")):
        assert isinstance(ids, set) and resource and isinstance(response, str)


def prepared_claims(data: bytes) -> None:
    """Judge kubelet's `dra_manager_state`."""
    file = as_file(data)
    dra_manager_state.surely_names_none(file, "uid-1", DRIVER)
    claims = dra_manager_state.parse(file, DRIVER)
    for prepared in claims[:8]:
        assert prepared.claim_uid and prepared.namespace and prepared.name and all(prepared.devices)
        for pod_uid in list(prepared.pod_uids)[:8]:
            assert prepared in dra_manager_state.of_pod(claims, pod_uid)


def resource_claim(data: bytes) -> None:
    """Judge a ResourceClaim of the API server."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not isinstance(document, dict):  # the client refuses it
        return
    allocated = claim.read(document, ClaimIdentity("ml", "train-vf", "a1b2"), "node-a")
    assert allocated.requests and len(set(allocated.vfs)) == len(allocated.vfs)
    assert all(request.name and request.vfs for request in allocated.requests)
    assert not {"/", "."} & set(allocated.pod_claim + "".join(request.name for request in allocated.requests))


def prepared_claim(data: bytes) -> None:
    """Judge the record of a prepared claim. A decoded record survives another encoding, and its CDI specification is JSON."""
    prepared = decode_claim(data)
    assert decode_claim(encode_claim(prepared)) == prepared
    assert "/" not in cdi_spec.file_name(prepared.identity.uid)
    assert json.loads(cdi_spec.encode(prepared, Path("/run")))["kind"] == cdi_spec.KIND


def as_file(data: bytes) -> bytes:
    """Return the file that kubelet would write with these data; what begins with `file:` is a whole file."""
    if data.startswith(b"file:"):
        return data.removeprefix(b"file:")
    text = data.decode(errors="surrogateescape")
    checksum = zlib.crc32(text.encode(errors="surrogatepass"))
    return json.dumps({"Data": text, "Checksum": checksum}).encode()


def with_parts(data: bytes) -> bytes:
    """Insert later parts into the first one, in base64, in place of `@1`, `@2`, …"""
    first, *others = data.split(SEPARATOR)
    for number, part in enumerate(others, start=1):
        first = first.replace(b"@%d" % number, base64.b64encode(part))
    return first


def allocate_answers(data: bytes) -> None:
    """Judge AllocResp in kubelet's device checkpoint."""
    for response in checkpointed_responses.of_pod(checkpoint.listed(with_parts(data)), "uid-1", _RESOURCES):
        assert all(isinstance(node, str) for node in response.device_nodes)
        assert all(isinstance(text, str) for pair in response.envs.items() for text in pair)


def pod_resources(data: bytes) -> None:
    """Judge the answer of kubelet's pod-resources socket. gRPC refuses malformed messages."""
    for pod in podresources_pb2.ListPodResourcesResponse.FromString(data).pod_resources:
        for resource, device in podresources._devices(pod, _RESOURCES):
            assert resource in _RESOURCES and isinstance(device, str)


def device_plugin(data: bytes) -> None:
    """Judge kubelet's requests to the device plugin. gRPC refuses malformed messages."""
    for kind in (
        deviceplugin_pb2.AllocateRequest,
        deviceplugin_pb2.PreStartContainerRequest,
        deviceplugin_pb2.PreferredAllocationRequest,
    ):
        read = kind.FromString(data)
        assert kind.FromString(read.SerializeToString(deterministic=True)) == read


def record(data: bytes) -> None:
    """Judge a record of the journal. A decoded record survives another encoding, and its key is a file name."""
    read = decode(data)
    assert decode(encode(read)) == read
    assert read.stage in get_args(Stage) and all(
        isinstance(text, str) for text in (*read.pod, read.netns.path, read.network)
    )
    assert not set(read.key) & set("/\0") and not read.key.startswith(".")


def with_digest(data: bytes) -> bytes:
    """Return a record with a valid checksum."""
    try:
        body = json.loads(data)
        body.pop("sha256", None)
        body["sha256"] = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        return json.dumps(body).encode()
    except (ValueError, TypeError, AttributeError, RecursionError):
        return data


def remembered_rails(data: bytes) -> None:
    """Judge the memory of rails. A memory survives another encoding; each rail has a card, and no card has two rails."""
    memory = rail_memory.parse(data)
    assert rail_memory.parse(rail_memory.encode(memory)) == memory
    cards = [Card(one.address, one.guid, one.model, eligible=True) for one in memory]
    assert rail_memory.learn(memory, cards).numbers.memory == memory
    assert all(place.reason is None for place in rail_memory.place(RailNumbers(memory), cards).rails)


def recorded_cni_folders(data: bytes) -> None:
    """Judge the record of CNI folders."""
    folders = cni_folders_record.parse(data)
    assert all(path.startswith("/") and "\0" not in path for one in folders for path in one)
    assert cni_folders_record.parse(json.dumps([one._asdict() for one in folders]).encode()) == folders


def lost_record(data: bytes) -> None:
    """Judge the facts that are taken from an unreadable record: from its file's name and its bytes."""
    name, _, raw = data.partition(SEPARATOR)
    found = find_lost(name.decode(errors="surrogateescape"), raw)
    if found is not None:
        assert not set(found.container_id) & set("/\0") and found.container_id[0] != "." and "/" not in found.ifname
        assert found.netns is None or (isinstance(found.netns.path, str) and type(found.netns.inode) is int)
        assert all(isinstance(text, str) for text in found.pod)


def primary_state_files(data: bytes) -> None:
    """Judge the state files of host-local, flannel and libcni. The parts are kind, file name and content."""
    kind, name, content = [*data.split(SEPARATOR, 2), b"", b""][:3]
    folder = StateFolder(_KINDS.get(kind, "libcni"), "/var/lib/cni/x")
    entry = Entry(name.decode(errors="surrogateescape"), with_parts(content), 0.0)
    found = state_files.parse(folder, entry, "cbr0")
    if found is not None:
        assert found.container_id is None or is_container_id(found.container_id)
        assert isinstance(found.ifname, str) and all(address.version in (4, 6) for address in found.addresses)
        if found.cached is not None:
            assert all(isinstance(text, str) for text in (*found.cached.pod, *found.cached.sandboxes))
            assert all(isinstance(text, str) for pair in found.cached.host_links for text in pair)
    try:
        primary = parse_primary(content, "/p")
    except CniError:
        return
    assert all(one.path.startswith("/") and "\0" not in one.path for one in state_files.state_folders(primary))
    with suppress(CniError):
        flannel_state_backup._folder(content)


def pod_sandboxes(data: bytes) -> None:
    """Judge the runtime's list of sandboxes. gRPC refuses malformed messages."""
    assert all(isinstance(one.id, str) for one in cri_pb2.ListPodSandboxResponse.FromString(data).items)


def node_configuration(data: bytes) -> None:
    """Judge the node's configuration file, `node.yaml`."""
    read = configuration.load(_File(data))  # type: ignore[arg-type]
    assert isinstance(read, Configuration) and read.resources
    for network in read.networks:
        if isinstance(network.ipam, PluginIpam):
            json.dumps(network.ipam.conf, allow_nan=False)


def _no_folder(_: Configuration) -> tuple[str, ...]:
    raise Fault("host.cniBin", "the folder of CNI plugins cannot be read")


_CARDS = Inventory((a_pf(), a_pf(address="0000:83:00.0", numa_node=1)), (a_vf("0000:c1:00.0", pf=None),))


def _compared(read: Configuration) -> Iterator[Remark]:
    return node_comparison.remarks(read, replace(_CARDS, rail_select=read.rail_select))


_A_NODE = ThisNode(lambda _: ("host-local", "whereabouts"), _compared)
_A_NODE_WITHOUT_PLUGINS = ThisNode(_no_folder, lambda read: node_comparison.remarks(read, Inventory()))


def configuration_check(data: bytes) -> None:
    """Judge what `railnet config check` says of a file: an error if and only if the daemon refuses it."""
    text = data.decode()
    remarks = check(text)
    for remark in (*remarks, *check(text, _A_NODE), *check(text, _A_NODE_WITHOUT_PLUGINS)):
        assert len(remark.message) <= LONGEST_MESSAGE and isinstance(remark.key, str)
        assert remark.line is None or 1 <= remark.line <= len(text) + 1
    if any(key in text for key in OWN_VALUES):
        return  # it may be values of the chart, which the daemon does not read
    try:
        configuration.parse(text, "node.yaml")
    except Misconfigured:
        assert any(remark.level == "error" for remark in remarks)
    else:
        assert all(remark.level != "error" for remark in remarks)


def bundle(data: bytes) -> None:
    """Judge a bundle that another machine has made: the tar inside of its gzip."""
    files = archive.unpacked(io.BytesIO(gzip.compress(data, 1)))
    assert all(name == archive.safe(name) and not {"..", "."} & set(name.split("/")) for name in files)
    for finding in bundle_findings.findings(archive.bundle_of(files)):
        assert finding.kind and len(finding.seen) <= LONGEST_MESSAGE


def _tar_sums(data: bytes) -> bytes:
    """Correct the checksum of each block that may be a header of tar (POSIX pax, ustar header block)."""
    blocks = [data[at : at + 512] for at in range(0, len(data), 512)]
    return b"".join(_with_sum(block) if block[257:262] == b"ustar" else block for block in blocks)


def _with_sum(block: bytes) -> bytes:
    total = sum(block[:148]) + 8 * ord(" ") + sum(block[156:])
    return block[:148] + b"%06o\0 " % total + block[156:]


class _File:
    """The path of a file with some content."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def __str__(self) -> str:
        return "/etc/railnet/node.yaml"

    def open(self, _: str) -> io.BytesIO:
        if self._content == b"no file":
            raise FileNotFoundError
        return io.BytesIO(self._content)


_FIXED, _STAYING, _ANYWHERE = ip_network("10.60.0.0/16"), ip_network("10.57.0.0/16"), "anywhere"
_NETWORKS = Networks(
    {
        "default": Network(),
        "verbs": Network("verbs", ipam=NoIpam(), pkey=0x8001),
        "fixed": Network("fixed", ipam=StaticIpam(_FIXED)),
        "staying": Network("staying", ipam=StickyIpam(_STAYING, 2)),
        _ANYWHERE: Network(_ANYWHERE, ipam=StaticIpam()),
        "unrouted": Network("unrouted", ipam=StaticIpam(), routing="none"),
    },
    {
        "*": Limit(("default", "staying")),
        "team-a": Limit(("fixed", _ANYWHERE, "unrouted", "verbs", "gone"), static=True),
        "locked": Limit(()),
    },
)


def annotations(data: bytes) -> None:
    """Judge a pod's annotations: the pod never gets a network or an address that its namespace may not have."""
    namespace, rails, raw = [*data.split(SEPARATOR), b"", b""][:3]
    try:
        read = json.loads(raw)
    except (ValueError, RecursionError):
        return
    if not isinstance(read, dict) or not all(isinstance(text, str) for text in read.values()):
        return  # `cni.host.netconf` refuses such annotations
    pod_namespace, count = namespace.decode(errors="replace"), min(len(rails), 8)
    chosen = _NETWORKS.choose(pod_namespace, read, count)
    limit = _NETWORKS.limits.get(pod_namespace, _NETWORKS.limits["*"])
    assert chosen.network.name in limit.networks
    assert not chosen.static or len(chosen.static) == count
    assert not chosen.static or limit.static or chosen.network.name == "staying"
    _judge_static(chosen.network.name, chosen.static)


def _judge_static(network: str, addresses: Iterable[Any]) -> None:
    listed = list(addresses)
    assert len({address.ip for address in listed}) == len(listed)
    for address in listed:
        assert network != "fixed" or (address.ip in _FIXED and address.ip not in (_FIXED[0], _FIXED[-1]))
        assert (network == "staying") == (address.ip in _STAYING)
        assert address.ip not in SliceIpam().range
        assert not (address.ip.is_multicast or address.ip.is_loopback or address.ip.is_unspecified)
        assert getattr(address.ip, "ipv4_mapped", None) is None
        assert address.ip != IPv4Address("255.255.255.255")


_RECORD = a_record(an_attachment(), primary={"conf": {"name": "cbr0"}, "runtimeConfig": {}})


def primary_result(data: bytes) -> None:
    """Judge the primary's result and the network-status that describes it."""
    for element in network_status.of_pod(_RECORD, data, {"net1": "00:11"}):
        assert element["interface"]
        json.dumps(element)


def published_rails(data: bytes) -> None:
    """Judge network-status as any program may have written it: each rail that is taken from it has the form of ours."""
    metadata = {"namespace": "ml", "name": "x", "annotations": {ANNOTATION: data.decode(errors="replace")}}
    pod = pod_rails({"metadata": metadata, "spec": {}, "status": {"phase": "Running"}})
    for rail in () if pod is None else pod.rails:
        assert rail.network.startswith("railnet/")
        assert rail.interface.startswith("net")
        assert cluster_checks._port(rail.mac).isprintable()
        assert not any(ip.is_loopback or ip.is_link_local or ip.is_multicast for ip in map(ip_address, rail.addresses))


class _Connection(http.client.HTTPConnection):
    """An HTTP connection with a prepared answer."""

    answer = b""

    def __init__(self, host: str, port: int, *, timeout: float, context: object) -> None:
        """Accept the arguments of a TLS connection."""
        super().__init__(host, port, timeout=timeout)

    def connect(self) -> None:
        """Connect to the prepared answer."""
        self.sock = _Wire(self.answer)


class _Wire:
    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    def sendall(self, data: Any) -> None:
        """Ignore a request."""

    def makefile(self, mode: str) -> io.BytesIO:
        return io.BytesIO(self._answer)

    def close(self) -> None:
        """Do nothing."""


_POD = ApiObject("v1", "pods", "p", "ml", "status")
_REQUESTS = (merge_patch(_POD, {}), get(_POD))
_ACCOUNT = ServiceAccount("10.96.0.1", 443, Path("/nonexistent"))


def api_answer(data: bytes) -> None:
    """Judge an answer of the API server, from the status line on."""
    _Connection.answer = data
    real, http.client.HTTPSConnection = http.client.HTTPSConnection, _Connection  # type: ignore[misc, assignment]
    most_bytes, client._MAX_ANSWER_BYTES = client._MAX_ANSWER_BYTES, 1 << 12
    real_context, NodeTransport._context = NodeTransport._context, lambda _: None  # type: ignore[method-assign, assignment, return-value]
    try:
        found = ApiServer(NodeTransport(_ACCOUNT), lambda: "a-token", "railnet").send(_REQUESTS[len(data) % 2])
    except RequestFailed as error:
        assert error.retry_after >= 0 and str(error).startswith("cannot ")
        assert isinstance(error, Absent) == (error.status == HTTPStatus.NOT_FOUND)
        assert error.status not in range(HTTPStatus.OK, HTTPStatus.MULTIPLE_CHOICES)
        raise
    finally:
        http.client.HTTPSConnection = real  # type: ignore[misc]
        NodeTransport._context = real_context  # type: ignore[method-assign]
        client._MAX_ANSWER_BYTES = most_bytes
    assert isinstance(found, dict)


def program(data: bytes) -> None:
    """Judge an ELF program that the installer copies."""
    refused: elf_relocation.NotRelocatable | None = None
    try:
        assert isinstance(elf_relocation.interpreter(data), str)
    except elf_relocation.NotRelocatable as error:
        refused = error
    relocated = elf_relocation.relocate(data, "/loader", "/libraries")
    assert relocated[len(data) :] == b"/loader\0/libraries\0"
    if refused is None:
        assert elf_relocation.interpreter(relocated) == "/loader"
    else:
        raise refused


class _Folder:
    """The runtime's folder of configurations, in which Railnet's conflist is the only file."""

    def __init__(self, content: bytes | None) -> None:
        self._content = content

    def read(self, name: str) -> bytes:
        assert name == conflist.NAME
        if not self._content:
            raise FileNotFoundError
        return self._content


def own_configuration(data: bytes) -> None:
    """Judge the two sources of the runtime's conflist: the primary's configuration and Railnet's present conflist."""
    primary, _, present = data.partition(SEPARATOR)
    named = conflist.named_primary(_Folder(present))  # type: ignore[arg-type]
    assert named is None or isinstance(named, str)
    path, configuration = "/etc/cni/net.d/10-flannel.conflist", Configuration()
    foreign = foreign_plugins.parse(present) or ForeignPlugins()
    content = conflist.compose(primary, path, configuration, Beside(foreign))
    composed = json.loads(content)
    assert composed["plugins"][0]["type"] == "railnet" and composed["name"]
    written = foreign_plugins.parse(content)
    assert written is not None
    assert conflist.says_the_same(conflist.compose(primary, path, configuration, Beside(written)), content)


class _Cache:
    """The folder of libcni's cache, with one entry."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def glob(self, pattern: str) -> list["_Cache"]:
        return [self]

    def __lt__(self, other: object) -> bool:
        return False

    def read_bytes(self) -> bytes:
        return self._content


def cached_result(data: bytes) -> None:
    """Judge an entry of libcni's cache."""
    root = Path("/nonexistent" if data[:1] == b"!" else "/")
    for found in runtime_cached_configurations._in(root, _Cache(with_parts(data.lstrip(b"!")))):  # type: ignore[arg-type]
        changed = libcni_cache.parse(libcni_cache.with_configuration(found.content, b'{"type": "flannel"}'))
        assert changed.plugins == ("flannel",)
        assert changed._replace(config="") == found.add._replace(config="")
        with suppress(ValueError):
            assert isinstance(runtime_cached_configurations._primary_of(found.add), str)


def health_request(data: bytes) -> None:
    """Judge the request line of a health probe."""
    health = Health(Pages(lambda: ["no"] if len(data) % 2 else [], lambda: "railnet_vfs 1\n"))
    status, text = health.answer(data.decode("ascii"))
    assert status and text


_RECORD_FUNCTIONS = (
    "Record",
    "encode",
    "decode",
    "_decode_netns",
    "_decode_ipam",
    "_encode_attachment",
    "_decode_attachment",
)
_RECORD_FUNCTIONS += ("_decode_device_node", "_text", "_file_name", "_number", "_object", "_one_of", "_digest")
_PREPARED_CLAIM_FUNCTIONS = ("encode", "decode", "_decode_request", "_decode_allocation", "_text", "_uid", "_digest")
_RAIL_MEMORY_FUNCTIONS = ("encode", "parse", "_parse_rail", "_list", "_check_distinct")
_CLIENT_FUNCTIONS = ("ApiServer.send", "ApiServer._fail", "_conflicts", "_object", "message", "_json", "_seconds")
PARSERS = (
    Parser("checkpoint", device_checkpoint, (ValueError,), {"railnet.kubelet.checkpoint": ()}),
    Parser("dra-manager-state", prepared_claims, (ValueError,), {"railnet.kubelet.dra_manager_state": ()}),
    Parser("claim", resource_claim, (NotOurs, NotReady), {"railnet.dra.claim": ()}),
    Parser(
        "prepared-claim",
        prepared_claim,
        (UnreadableClaim,),
        {"railnet.dra.prepared_claim": _PREPARED_CLAIM_FUNCTIONS},
        with_digest,
    ),
    Parser("answers", allocate_answers, (ValueError,), {"railnet.kubelet.checkpointed_responses": ()}),
    Parser("podresources", pod_resources, (DecodeError,), {"railnet.kubelet.podresources": ("_devices",)}),
    Parser("deviceplugin", device_plugin, (DecodeError,), {}),
    Parser("record", record, (UnreadableRecord,), {"railnet.vf.record": _RECORD_FUNCTIONS}, with_digest),
    Parser(
        "rail-memory", remembered_rails, (UnreadableRailMemory,), {"railnet.vf.rail_memory": _RAIL_MEMORY_FUNCTIONS}
    ),
    Parser(
        "cni-folders", recorded_cni_folders, (ValueError,), {"railnet.install.cni_folders_record": ("parse", "_path")}
    ),
    Parser("record-trace", lost_record, (), {"railnet.vf.record": ("find_lost", "_part")}),
    Parser(
        "books",
        primary_state_files,
        (),
        {
            "cni.primary_gc.state_files": (),
            "cni.libcni_cache": (),
            "cni.host.flannel_state_backup": ("_folder", "container_of", "second_name"),
        },
    ),
    Parser(
        "bundle",
        bundle,
        (ValueError, LookupError, TypeError, RecursionError, EOFError, OSError, zlib.error, tarfile.TarError),
        {"railnet.bundle.archive": ("unpacked", "bundle_of"), "railnet.bundle.bundle_findings": ()},
        mend=_tar_sums,
        largest=100_000,
    ),
    Parser(
        "configuration-check",
        configuration_check,
        (UnicodeDecodeError,),
        {
            "railnet.config_check.file_check": (),
            "railnet.config_check.yaml_document": (),
            "railnet.config_check.chart_values": (),
            "railnet.config_check.node_comparison": ("remarks", "_matches"),
            "railnet.vf.pf_selector": (),
        },
        largest=10_000,  # as for `configuration`
    ),
    Parser("cri", pod_sandboxes, (DecodeError,), {}),
    Parser(
        "configuration",
        node_configuration,
        (Misconfigured,),
        {
            "railnet.configuration": (),
            "railnet.configuration_conflicts": (),
            "railnet.strict_yaml": (),
            "railnet.value_readers": (),
        },
        largest=10_000,  # PyYAML, in Python, takes a second for 200 KB
    ),
    Parser(
        "annotations",
        annotations,
        (Misconfigured, NotPermitted),
        {"railnet.vf.permitted_networks": ("Networks.choose", "_static", "_parsed", "_address")},
    ),
    Parser(
        "network-status",
        primary_result,
        (ValueError,),
        {"railnet.apiserver.network_status": ("of_pod", "_primary", "_rail")},
    ),
    Parser(
        "published-rails",
        published_rails,
        (),
        {
            "railnet.objects.network_status": ("rails", "_rail", "_field"),
            "railnet.doctor.cluster_checks": ("_port",),
        },
    ),
    Parser(
        "apiserver",
        api_answer,
        (RequestFailed,),
        {
            "railnet.apiserver.client": _CLIENT_FUNCTIONS,
            "railnet.apiserver.node_transport": ("NodeTransport.exchange",),
        },
    ),
    Parser("elf", program, (elf_relocation.NotRelocatable,), {"railnet.install.elf_relocation": ()}),
    Parser(
        "conflist",
        own_configuration,
        (Misconfigured,),
        {
            "railnet.daemon.conflist.conflist": ("compose", "named_primary"),
            "railnet.daemon.conflist.foreign_plugins": ("parse", "decide"),
        },
    ),
    Parser(
        "libcni-cache",
        cached_result,
        (),
        {"railnet.install.runtime_cached_configurations": ("_in", "_lives", "_exists", "_primary_of")},
    ),
    Parser("health", health_request, (ValueError,), {"railnet.health_server": ("Health.answer",)}),
)

"""The bytes of one question to a port's neighbour, Get(NodeInfo), and of its answer. Pure.

The question is a directed-route SMP over one hop: it leaves through a port, and whatever node is at the other end answers. It needs
no subnet manager, no LID and no ACTIVE port; a link that is up is enough. `smpquery -D NodeInfo 0,1` sends the same.

Sources: InfiniBand Architecture Specification, volume 1, release 1.2.1: 13.4.3 (the header of a MAD), 14.2.1.2 (an SMP with a
directed route), 14.2.5.3 (NodeInfo). Linux: `struct ib_smp` and `struct ib_node_info` in include/rdma/ib_smi.h; `struct ib_user_mad_hdr`
and `struct ib_user_mad_reg_req` in include/uapi/rdma/ib_user_mad.h (ABI 5).
"""

import errno
import os
import struct

from railnet.fabric.neighbour import Kind, Neighbour
from railnet.vf.guid import Guid

# In front of each MAD, in the byte order of the machine but for addresses: id, status, timeout_ms, retries, length | qpn, qkey, lid,
# sl, path_bits, grh_present, gid_index, hop_limit, traffic_class, gid, flow_label | pkey_index and 6 reserved bytes.
_ENVELOPE = struct.Struct("=5I")
_ADDRESS = struct.Struct(">IIH6B16sI8s")
HEADER_BYTES = _ENVELOPE.size + _ADDRESS.size
# base_version, mgmt_class, class_version, method, status, hop_ptr, hop_cnt, tid, attr_id, reserved, attr_mod, mkey, dr_slid, dr_dlid,
# 28 reserved bytes, data, initial_path, return_path
_SMP = struct.Struct(">4BHBBQHHIQHH28s64s64s64s")
MAD_BYTES = _SMP.size
# base_version, class_version, node_type, num_ports, sys_guid, node_guid, port_guid, partition_cap, device_id, revision, local_port_num
_NODE_INFO = struct.Struct(">4BQQQHHIB")
# id, method_mask (none: no datagram that is not an answer), qpn, mgmt_class, mgmt_class_version, oui, rmpp_version, and the padding
_REGISTRATION = struct.Struct("=I16sBBB3sBx")
_AGENT = struct.Struct("=I")

_VERSION, _CLASS_VERSION = 1, 1
_DIRECTED_ROUTE = 0x81
_GET, _GET_RESPONSE = 0x01, 0x81
_NODE_INFO_ATTRIBUTE = 0x0011
_PERMISSIVE_LID = 0xFFFF
_RETURNING = 0x8000  # the bit D of the status: the datagram is on its way back
_OWN_BITS_OF_TID = 0xFFFF_FFFF  # the kernel puts the agent into the upper half
_KINDS: dict[int, Kind] = {1: "CA", 2: "switch", 3: "router"}
_MOST_PORTS = 254  # 0 is the management port of a switch, 255 no port


class BadAnswer(Exception):
    """A neighbour's answer cannot be used; the message says what is wrong with it."""


def registration() -> bytearray:
    """Return the request for an agent of queue pair 0 that sends SMPs; the kernel writes the agent's number into its beginning."""
    return bytearray(_REGISTRATION.pack(0, bytes(16), 0, _DIRECTED_ROUTE, _CLASS_VERSION, bytes(3), 0))


def agent(registered: bytes | bytearray) -> int:
    """Return the agent's number from an answered registration."""
    (number,) = _AGENT.unpack_from(registered)
    return int(number)


def question(agent_number: int, transaction: int, port: int, timeout_ms: int, retries: int) -> bytes:
    """Return the question as it is written to the device; the kernel sends it again `retries` times, each time after `timeout_ms`."""
    envelope = _ENVELOPE.pack(agent_number, 0, timeout_ms, retries, 0)
    address = _ADDRESS.pack(0, 0, _PERMISSIVE_LID, 0, 0, 0, 0, 0, 0, bytes(16), 0, bytes(8))
    return envelope + address + _question_smp(transaction, port)


def _question_smp(transaction: int, port: int) -> bytes:
    path = bytes((0, port))  # the first entry is not used
    head = (_VERSION, _DIRECTED_ROUTE, _CLASS_VERSION, _GET, 0, 0, 1, transaction, _NODE_INFO_ATTRIBUTE, 0, 0, 0)
    return _SMP.pack(*head, _PERMISSIVE_LID, _PERMISSIVE_LID, bytes(28), bytes(64), path, bytes(64))


def parse(datagram: bytes, transaction: int) -> Neighbour | None:
    """Read what the device returned; None if it is no answer to the question with this transaction.

    Raises:
        OSError: ETIMEDOUT, the kernel says that no answer came, or another error of sending. BadAnswer: the answer cannot be used.
    """
    if len(datagram) < HEADER_BYTES + _SMP.size:
        _parse_failure(datagram, transaction)
        return None
    status = _ENVELOPE.unpack_from(datagram)[1]
    version, of_class, class_version, method, result, _, hops, tid, attribute, *_, data, _, _ = _SMP.unpack_from(
        datagram, HEADER_BYTES
    )
    if (of_class, attribute, tid & _OWN_BITS_OF_TID) != (_DIRECTED_ROUTE, _NODE_INFO_ATTRIBUTE, transaction):
        return None
    _check_status(status)
    if (version, class_version, method, hops) != (_VERSION, _CLASS_VERSION, _GET_RESPONSE, 1):
        raise BadAnswer(f"its header is wrong: version {version}.{class_version}, method {method:#04x}, {hops} hops")
    if result != _RETURNING:
        raise BadAnswer(f"its status is {result:#06x} in place of {_RETURNING:#06x}")
    return _parse_node_info(data)


def _parse_failure(datagram: bytes, transaction: int) -> None:
    """Read a datagram that is too short for an answer: of a question without an answer the kernel returns the header alone."""
    if len(datagram) < HEADER_BYTES:
        raise BadAnswer(f"it has {len(datagram)} bytes, and the kernel's header alone has {HEADER_BYTES}")
    smp = datagram[HEADER_BYTES:].ljust(_SMP.size, b"\0")
    if _SMP.unpack(smp)[7] & _OWN_BITS_OF_TID == transaction:
        _check_status(_ENVELOPE.unpack_from(datagram)[1])
        raise BadAnswer(f"it has {len(datagram) - HEADER_BYTES} bytes, and a datagram has {_SMP.size}")


def _check_status(status: int) -> None:
    if status:
        number = status if status in errno.errorcode else errno.EIO
        raise OSError(number, os.strerror(number))


def _parse_node_info(data: bytes) -> Neighbour:
    _, _, node_type, _, _, node_guid, _, _, _, _, local_port = _NODE_INFO.unpack_from(data)
    kind, guid = _KINDS.get(node_type), Guid(node_guid)
    if kind is None or not guid.usable or not 0 < local_port <= _MOST_PORTS:
        raise BadAnswer(f"its NodeInfo is wrong: node type {node_type}, GUID {guid.value:#018x}, port {local_port}")
    return Neighbour(kind, guid, local_port)

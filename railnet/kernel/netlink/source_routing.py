"""Rules by which packets from an address use a routing table of their own, and what is in such a table.

Rules do not belong to a link: they stay when it is moved or deleted, until their namespace ends. Routes go with their link.

Source: include/uapi/linux/fib_rules.h, rtnetlink.h, whose names are in the comments.
"""

import socket
import struct
import sys
from contextlib import suppress
from errno import EAFNOSUPPORT, ENOENT, EOPNOTSUPP
from ipaddress import ip_address, ip_network

from railnet.kernel.netlink.protocol import CREATE, EXCLUSIVE, attributes, decode_attributes, u32
from railnet.kernel.netlink.rtnetlink import RTA_DST, RTA_GATEWAY, RTA_OIF, RTA_TABLE, RTMSG, Links, family_of
from railnet.vf.steps import Route, Rule

_GETROUTE, _NEWRULE, _DELRULE, _GETRULE = 26, 32, 33, 34  # RTM_*
# struct fib_rule_hdr: family, lengths of destination and source, tos, table, two reserved bytes, action, flags
_RULE = struct.Struct("=BBBBBxxBI")
_SRC, _PRIORITY, _TABLE = 2, 6, 15  # FRA_*
_TO_TABLE = 1  # FR_ACT_TO_TBL
# What a kernel answers without this rule; without rules of any family; without rules of this family.
_NO_RULE = (ENOENT, EOPNOTSUPP, EAFNOSUPPORT)
_U32_BYTES = 4
_ADDRESS_BYTES = {socket.AF_INET: 4, socket.AF_INET6: 16}


def add_rule(namespace: Links, rule: Rule, priority: int) -> None:
    """Add a rule. One that exists already is no error.

    Raises:
        OSError: EOPNOTSUPP or EAFNOSUPPORT, the kernel was built without rules (CONFIG_IP_MULTIPLE_TABLES, CONFIG_IPV6_MULTIPLE_TABLES).
    """
    operation = f"add rule from {rule.source} to table {rule.table}"
    with suppress(FileExistsError):
        namespace.ask(operation, _NEWRULE, _encode(rule, priority), CREATE | EXCLUSIVE)


def remove_rule(namespace: Links, rule: Rule, priority: int) -> None:
    """Remove a rule. One that is gone is no error, nor is a kernel that has no rules."""
    operation = f"remove rule from {rule.source} to table {rule.table}"
    try:
        namespace.ask(operation, _DELRULE, _encode(rule, priority))
    except OSError as error:
        if error.errno not in _NO_RULE:
            raise


def rules(namespace: Links, priority: int) -> frozenset[Rule]:
    """List the rules of a priority that lead from one address to a table."""

    def read(answer: bytes) -> Rule | None:
        family, _, length, _, _, action, _ = _RULE.unpack_from(answer)
        rule_attributes = decode_attributes(answer[_RULE.size :])
        if action != _TO_TABLE or not {_SRC, _TABLE, _PRIORITY} <= rule_attributes.keys():
            return None
        table = _number(rule_attributes[_TABLE])
        if (
            length != 8 * _ADDRESS_BYTES.get(family, -1)
            or _number(rule_attributes[_PRIORITY]) != priority
            or table is None
        ):
            return None
        return Rule(ip_address(rule_attributes[_SRC]), table)

    request = _RULE.pack(socket.AF_UNSPEC, 0, 0, 0, 0, 0, 0)
    return frozenset(namespace.dump("list rules", _GETRULE, request, read))


def routes(namespace: Links, ifindex: int, tables: frozenset[int]) -> frozenset[tuple[int, Route]]:
    """List the routes through a link that are in some tables, with their table."""

    def read(answer: bytes) -> tuple[int, Route] | None:
        family, length, *_ = RTMSG.unpack_from(answer)
        route_attributes = decode_attributes(answer[RTMSG.size :])
        if family not in _ADDRESS_BYTES or not {RTA_OIF, RTA_TABLE} <= route_attributes.keys():
            return None
        table = _number(route_attributes[RTA_TABLE])
        if table is None or table not in tables or _number(route_attributes[RTA_OIF]) != ifindex:
            return None
        address = route_attributes.get(RTA_DST, bytes(_ADDRESS_BYTES[family]))  # a default route has none
        gateway = route_attributes.get(RTA_GATEWAY)
        return table, Route(ip_network((address, length)), None if gateway is None else ip_address(gateway))

    request = RTMSG.pack(socket.AF_UNSPEC, 0, 0, 0, 0, 0, 0, 0, 0)
    return frozenset(namespace.dump("list routes", _GETROUTE, request, read))


def _encode(rule: Rule, priority: int) -> bytes:
    packed = rule.source.packed
    header = _RULE.pack(family_of(rule.source), 0, 8 * len(packed), 0, 0, _TO_TABLE, 0)
    return header + attributes((_SRC, packed), (_PRIORITY, u32(priority)), (_TABLE, u32(rule.table)))


def _number(value: bytes) -> int | None:
    """Decode a __u32; None for another length, which no kernel sends."""
    return int.from_bytes(value, sys.byteorder) if len(value) == _U32_BYTES else None

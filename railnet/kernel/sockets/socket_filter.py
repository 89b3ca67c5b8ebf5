"""Filters that the kernel runs on a socket's messages: a message that does not pass is dropped, and the daemon is not woken for it.

They are programs of classic BPF, since that needs no privilege and no other file. Decoding and deciding is still the receiver's: a filter
leaves out only what the receiver would drop.

Source: include/uapi/linux/filter.h, include/uapi/linux/bpf_common.h, Documentation/networking/filter.rst.
"""

import ctypes
import struct
import sys
from collections.abc import Collection, Iterator
from contextlib import suppress
from itertools import chain
from socket import AF_UNSPEC, SOL_SOCKET, socket
from typing import NamedTuple

_ATTACH, _DETACH = 26, 27  # SO_ATTACH_FILTER, SO_DETACH_FILTER: include/uapi/asm-generic/socket.h
_PROGRAM = struct.Struct("@HP")  # struct sock_fprog
_INSTRUCTION = struct.Struct("=HBBI")  # struct sock_filter
_WORD, _HALF, _BYTE = 0x20, 0x28, 0x30  # BPF_LD | BPF_ABS, with BPF_W, BPF_H or BPF_B
_LOADS = {4: _WORD, 2: _HALF, 1: _BYTE}
_JUMP_IF_EQUAL, _RETURN = 0x15, 0x06  # BPF_JMP | BPF_JEQ | BPF_K, BPF_RET | BPF_K
_WHOLE = 0xFFFFFFFF  # so many bytes of the message pass

_NEWLINK, _DELLINK = 16, 17  # include/uapi/linux/rtnetlink.h
_KIND_AT, _FAMILY_AT, _IFINDEX_AT = 4, 16, 20  # in struct nlmsghdr, and in struct ifinfomsg behind it
_MOST_LINKS = 1000  # a program has at most 4,096 instructions (BPF_MAXINSNS)

# "<action>@<path>" begins a uevent. Actions: kobject_actions, lib/kobject_uevent.c.
_ACTIONS = ("add", "remove", "change", "move", "online", "offline", "bind", "unbind")
_VIRTUAL = b"@/devices/virtual/"


class Instruction(NamedTuple):
    """One instruction: the two jumps skip so many instructions if a comparison is true or false; `operand` is a number or an offset."""

    code: int
    if_true: int
    if_false: int
    operand: int


_PASS, _DROP = Instruction(_RETURN, 0, 0, _WHOLE), Instruction(_RETURN, 0, 0, 0)


def links(ifindexes: Collection[int]) -> list[Instruction]:
    """Pass the messages of RTNLGRP_LINK that are about one of these links. With very many links, all messages pass."""
    if len(ifindexes) > _MOST_LINKS:
        return [_PASS]
    return [
        _load(_KIND_AT, 2),
        _if_equal(_native(_NEWLINK, 2), 2, 0),
        _if_equal(_native(_DELLINK, 2), 1, 0),
        _DROP,
        _load(_FAMILY_AT, 1),
        _if_equal(AF_UNSPEC, 1, 0),
        _DROP,  # AF_BRIDGE: it is about a bridge's port
        _load(_IFINDEX_AT, 4),
        *chain.from_iterable((_if_equal(_native(ifindex, 4), 0, 1), _PASS) for ifindex in sorted(ifindexes)),
        _DROP,
    ]


def uevents_of_hardware() -> list[Instruction]:
    """Pass the uevents of all devices but those below /devices/virtual, such as a pod's veth.

    A veth has one uevent and one for each of its queues, and it is made with as many queues of each kind as the machine has processors
    (veth_init_queues(), drivers/net/veth.c). A message that is shorter than any uevent is dropped, too.
    """
    return [*chain.from_iterable(_drop_at(offset) for offset in sorted({len(action) for action in _ACTIONS})), _PASS]


def attach(netlink: socket, program: Collection[Instruction]) -> None:
    """Put a program in the place of the socket's present one. If the kernel refuses it, all messages pass, as without a filter."""
    code = ctypes.create_string_buffer(b"".join(_INSTRUCTION.pack(*instruction) for instruction in program))
    try:
        netlink.setsockopt(SOL_SOCKET, _ATTACH, _PROGRAM.pack(len(program), ctypes.addressof(code)))
    except OSError:  # ENOMEM: net.core.optmem_max is small; the program that stays would keep back what is wanted now
        with suppress(OSError):  # ENOENT: there was none
            netlink.setsockopt(SOL_SOCKET, _DETACH, 0)


def _load(offset: int, size: int) -> Instruction:
    return Instruction(_LOADS[size], 0, 0, offset)


def _if_equal(number: int, if_true: int, if_false: int) -> Instruction:
    return Instruction(_JUMP_IF_EQUAL, if_true, if_false, number)


def _drop_at(offset: int) -> Iterator[Instruction]:
    """Drop a message that has `_VIRTUAL` at an offset; else go on behind these instructions."""
    for begin in range(0, len(_VIRTUAL), 4):
        part = _VIRTUAL[begin : begin + 4]
        yield _load(offset + begin, len(part))
        yield _if_equal(int.from_bytes(part, "big"), 0, len(range(begin + 4, len(_VIRTUAL), 4)) * 2 + 1)
    yield _DROP


def _native(number: int, size: int) -> int:
    """Return what BPF loads, big-endian, where netlink has a number in this machine's byte order."""
    return int.from_bytes(number.to_bytes(size, sys.byteorder), "big")

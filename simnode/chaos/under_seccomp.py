"""Install a seccomp filter in this process, so that the kernel asks a supervisor before each state-changing system call.

`python under_seccomp.py SOCKET NAME COMMAND…` installs the filter and executes the command; the filter also holds for all
descendants. The kernel's mechanism is user notification (seccomp(2), seccomp_unotify(2)); `syscall_supervisor` decides
on the calls.
"""

import ctypes
import os
import socket
import struct
import sys
import threading
from pathlib import Path

sys.path[:0] = [] if __package__ else [str(Path(__file__).parents[2])]

from simnode.chaos.fault_points import CALLS, O_CREAT_OR_TRUNC, OPENS  # noqa: E402 - a program needs the path above first

_SECCOMP = 317  # arch/x86/entry/syscalls/syscall_64.tbl
# include/uapi/linux/seccomp.h
_SET_MODE_FILTER = 1
_NEW_LISTENER, _WAIT_KILLABLE_RECV = 1 << 3, 1 << 5
_RET_USER_NOTIF, _RET_ALLOW = 0x7FC00000, 0x7FFF0000
_NR, _ARGS = 0, 16  # offsets in struct seccomp_data; the filter reads only the low word of an argument
# include/uapi/linux/bpf_common.h, filter.h
_LOAD, _JUMP_EQUAL, _JUMP_SET, _RETURN = 0x20, 0x15, 0x45, 0x06
_INSTRUCTION = struct.Struct("=HBBI")


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))  # struct sock_fprog


def begin(path: str, name: str) -> None:
    """Install the filter in the calling thread and its descendants, and introduce this process as `name` to the supervisor at `path`.

    Raises:
        OSError: no supervisor listens, or the kernel refuses the filter (EBUSY: the process has a supervisor already).
    """
    listeners: list[int] = []
    made = threading.Event()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(path)

        def introduce() -> None:
            made.wait()
            if listeners:
                socket.send_fds(connection, [name.encode()], listeners)

        # This thread starts before the filter, because the supervisor cannot permit the call that gives it the listener.
        messenger = threading.Thread(target=introduce, daemon=True)
        messenger.start()
        try:
            listeners.append(_listener())
        finally:
            made.set()
            messenger.join()
    os.close(listeners[0])


def _listener() -> int:
    program = _filter()
    instructions = ctypes.create_string_buffer(program, len(program))
    described = _Program(len(program) // _INSTRUCTION.size, ctypes.addressof(instructions))
    libc = ctypes.CDLL(None, use_errno=True)
    # Killable: without it, a handled signal restarts a call, and the supervisor would see the same call twice.
    flags = _NEW_LISTENER | _WAIT_KILLABLE_RECV
    fd: int = libc.syscall(_SECCOMP, _SET_MODE_FILTER, flags, ctypes.byref(described))
    if fd < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"seccomp: {os.strerror(number)}")
    return fd


def _filter() -> bytes:
    """Assemble the filter: the supervisor is notified of the calls in `CALLS`, and of those in `OPENS` by their flags."""
    always = sorted(set(CALLS) - set(OPENS))
    code = [(_LOAD, 0, 0, _NR)]
    for number, argument in OPENS.items():  # another number: skip the next four instructions
        flags = [(_LOAD, 0, 0, _ARGS + 8 * argument), (_JUMP_SET, 0, 1, O_CREAT_OR_TRUNC)]
        code += [(_JUMP_EQUAL, 0, 4, number), *flags, (_RETURN, 0, 0, _RET_USER_NOTIF), (_RETURN, 0, 0, _RET_ALLOW)]
    for left, number in zip(range(len(always), 0, -1), always, strict=True):
        code.append((_JUMP_EQUAL, left, 0, number))
    code += [(_RETURN, 0, 0, _RET_ALLOW), (_RETURN, 0, 0, _RET_USER_NOTIF)]
    return b"".join(_INSTRUCTION.pack(*instruction) for instruction in code)


if __name__ == "__main__":
    begin(sys.argv[1], sys.argv[2])
    os.execvp(sys.argv[3], sys.argv[3:])

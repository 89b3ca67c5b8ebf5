"""The frames between the plugin executable and the daemon: bytes in, values out. No sockets: `receive` gets a function.

A frame is `RN`, version u8, type u8, payload length u32 big-endian, payload. A blob is u32 length + bytes.
"""

TYPE_CHECKING = False  # typing's own constant, without typing: mypy takes it for true
if TYPE_CHECKING:
    from collections.abc import Callable

MAGIC = b"RN"
VERSION = 1
HEADER_BYTES = 8
# What a legal request can be. Annotations of a pod have 256 KiB at most (k8s.io/apimachinery, pkg/api/validation/objectmeta.go,
# TotalAnnotationSizeLimitB), and Go's JSON writes one byte of them as six at most (encoding/json: `<` as \u003c): 1.5 MiB. GC lists
# an attachment with about 200 bytes, under both of its keys: 10,000 attachments. Larger requests are served without the daemon.
MAX_REQUEST = 2 << 20
# The largest frame is an EXEC: a REQUEST's configuration as Python writes it, with a result beside it.
MAX_PAYLOAD = 2 * MAX_REQUEST
MAX_STDERR = 64 << 10
# A delegate's stdout and stderr travel in one OUTPUT frame, with three lengths and an id beside them.
MAX_STDOUT = MAX_PAYLOAD - MAX_STDERR - 64

REQUEST = 1  # env blob, stdin blob; with SCM_RIGHTS the netns descriptor, if any
HELLO = 2  # u32: milliseconds this request may take in all; if ALIVE was asked for, u32: milliseconds of the longest silence
GO = 3
EXEC = 4  # u32 id, plugin type blob, env blob, stdin blob
OUTPUT = 5  # u32 id, i32 wait status, stdout blob, stderr blob; -errno: it could not be executed
KILL = 6  # u32 id
DONE = 7  # u8 exit status, stdout blob
QUERY = 8  # empty; in place of REQUEST, from `railnet status`
ANSWER = 9  # JSON
ALIVE = 10  # empty; from a daemon that works on the request and has nothing to say, if the REQUEST asked for it
# An EXEC of flannel's plugin that is carried out without it, if the REQUEST says that the executable can: EXEC's payload, then the
# blobs of flannel's delegate's type, of the path of the container's state, and of the state.
EXEC_DELEGATE = 11

# The last entries of a REQUEST's env blob: the executable carries out EXEC_DELEGATE, and asks for ALIVE. `parse_environ` drops them, also
# that of older daemons, which look for the last one alone.
_DELEGATE_ENTRY = b"delegate"
_ALIVE_ENTRY = b"alive"


class FrameError(Exception):
    """The bytes that arrived are no frame of this version."""


def frame(kind: int, payload: bytes = b"") -> bytes:
    """Wrap a payload.

    Raises:
        FrameError: the payload is larger than a frame may be.
    """
    if len(payload) > MAX_PAYLOAD:
        raise FrameError(f"a payload of {len(payload)} bytes is larger than a frame may carry ({MAX_PAYLOAD})")
    return MAGIC + bytes((VERSION, kind)) + u32(len(payload)) + payload


def parse_header(header: "bytes | bytearray") -> tuple[int, int]:
    """Return the type and payload length of a frame from its first eight bytes.

    Raises:
        FrameError: too short, not ours, of another version, or announcing too large a payload.
    """
    if len(header) < HEADER_BYTES:
        raise FrameError(f"the connection ended inside a frame header ({len(header)} of {HEADER_BYTES} bytes)")
    if header[:2] != MAGIC:
        raise FrameError(f"{bytes(header[:2])!r} does not begin a frame")
    if header[2] != VERSION:
        raise FrameError(
            f"the peer speaks frame version {header[2]}, this side {VERSION}: finish the upgrade of Railnet"
        )
    length = int.from_bytes(header[4:8], "big")
    if length > MAX_PAYLOAD:
        raise FrameError(f"a payload of {length} bytes is larger than a frame may carry ({MAX_PAYLOAD})")
    return header[3], length


def missing(received: "bytes | bytearray") -> int:
    """Return how many bytes must still come, at least, until the first frame in `received` is whole; 0 if it is.

    Raises:
        FrameError: as `parse_header`.
    """
    if len(received) < HEADER_BYTES:
        return HEADER_BYTES - len(received)
    return max(0, HEADER_BYTES + parse_header(received)[1] - len(received))


def take_first(received: bytearray) -> tuple[int, bytes]:
    """Remove the first frame, which is whole, from `received`. Return its type and its payload.

    Raises:
        FrameError: as `parse_header`.
    """
    kind, length = parse_header(received)
    payload = bytes(memoryview(received)[HEADER_BYTES : HEADER_BYTES + length])
    del received[: HEADER_BYTES + length]
    return kind, payload


def receive(receive_some: "Callable[[int], bytes]") -> tuple[int, bytes]:
    """Receive one frame and not a byte more. `receive_some` takes the largest number of bytes it may return, as `recv`.

    Raises:
        FrameError: as `parse_header`. EOFError: the connection ended before the frame did.
    """
    received = bytearray()  # bytes would be copied with each part
    while count := missing(received):
        some = receive_some(count)
        if not some:
            raise EOFError("the connection ended")
        received += some
    return take_first(received)


def u32(number: int) -> bytes:
    """Encode an unsigned number."""
    return number.to_bytes(4, "big")


def i32(number: int) -> bytes:
    """Encode a signed number."""
    return number.to_bytes(4, "big", signed=True)


def blobs(*parts: bytes) -> bytes:
    """Encode byte strings, each behind its length."""
    return b"".join(u32(len(part)) + part for part in parts)


def parse_blobs(payload: bytes, count: int) -> list[bytes]:
    """Decode exactly `count` blobs.

    Raises:
        FrameError: fewer, more, or one that reaches past the payload.
    """
    parts, position = [], 0
    for _ in range(count):
        start = position + 4
        position = start + int.from_bytes(payload[start - 4 : start], "big")
        if start > len(payload) or position > len(payload):
            raise FrameError(f"a frame of {len(payload)} bytes is truncated")
        parts.append(payload[start:position])
    if position != len(payload):
        raise FrameError(f"a frame has {len(payload) - position} bytes too many")
    return parts


def parse_done(payload: bytes) -> tuple[int, bytes]:
    """Decode DONE: the exit status and what to print.

    Raises:
        FrameError: it is empty, or no blob follows the status.
    """
    if not payload:
        raise FrameError("DONE has no exit status")
    return payload[0], parse_blobs(payload[1:], 1)[0]


def request(environ: dict[bytes, bytes], stdin: bytes) -> bytes:
    """Encode a REQUEST's payload, which allows EXEC_DELEGATE and asks for ALIVE."""
    return blobs(b"\0".join((environ_blob(environ), _DELEGATE_ENTRY, _ALIVE_ENTRY)), stdin)


def asks_for_alive(environ: bytes) -> bool:
    """Return whether a REQUEST's env blob asks for ALIVE."""
    return environ.endswith(b"\0" + _ALIVE_ENTRY)


def allows_exec_delegate(environ: bytes) -> bool:
    """Return whether a REQUEST's env blob says that the executable carries out EXEC_DELEGATE."""
    return environ.endswith(b"\0".join((b"", _DELEGATE_ENTRY, _ALIVE_ENTRY)))


def parse_hello(payload: bytes) -> "tuple[float, float | None]":
    """Decode HELLO: the seconds that the request may take, and of the longest silence; None: the daemon may be silent.

    Raises:
        FrameError: it is neither one number nor two.
    """
    if len(payload) not in (4, 8):
        raise FrameError(f"HELLO has {len(payload)} bytes")
    silence = int.from_bytes(payload[4:], "big") / 1000
    return int.from_bytes(payload[:4], "big") / 1000, silence or None


def environ_blob(environ: dict[bytes, bytes]) -> bytes:
    """Encode an environment as NUL-separated `NAME=value`."""
    return b"\0".join(name + b"=" + value for name, value in environ.items())


def parse_environ(blob: bytes) -> dict[bytes, bytes]:
    """Decode an environment; an entry without `=` is dropped, as execve's callers do."""
    return dict(entry.split(b"=", 1) for entry in blob.split(b"\0") if b"=" in entry)

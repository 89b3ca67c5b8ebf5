"""How messages lie on NRI's socket: messages of ttrpc, in frames that say to which of two services they belong. Pure.

Sources: containerd/nri v0.12.3 pkg/net/multiplex/{mux,ttrpc}.go; containerd/ttrpc v1.2.9 PROTOCOL.md, channel.go.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

TO_PLUGIN, TO_RUNTIME = 1, 2
"""The two services: what the runtime asks the plugin, and what the plugin asks the runtime."""
REQUEST, RESPONSE = 1, 2
FRAME = struct.Struct(">II")  # the service, and how many bytes follow
_MESSAGE = struct.Struct(">IIBB")  # how many bytes follow, the call, the kind, flags
_MOST_MESSAGE = 4 << 20  # messageLengthMax of ttrpc/channel.go
MOST_FRAME = _MESSAGE.size + _MOST_MESSAGE
_NO_FLAGS = 0


class BadMessage(ValueError):
    """The bytes are no message of NRI."""


class NriMessage(NamedTuple):
    """One request or response; `call` joins the two."""

    call: int
    kind: int
    body: bytes


def framed(service: int, message: NriMessage) -> bytes:
    """Return the bytes of a message for the socket."""
    content = _MESSAGE.pack(len(message.body), message.call, message.kind, _NO_FLAGS) + message.body
    return FRAME.pack(service, len(content)) + content


class Messages:
    """What has come for one service: frames may end within a message."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def take(self, content: bytes) -> Iterator[NriMessage]:
        """Take the content of one frame; yield the messages that are whole now.

        Raises:
            BadMessage: a message is longer than ttrpc permits.
        """
        self._buffer += content
        while len(self._buffer) >= _MESSAGE.size:
            length, call, kind, _ = _MESSAGE.unpack_from(self._buffer)
            if length > _MOST_MESSAGE:
                raise BadMessage(f"a message says that it has {length} bytes; ttrpc permits {_MOST_MESSAGE}")
            end = _MESSAGE.size + length
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[_MESSAGE.size : end])
            del self._buffer[:end]
            yield NriMessage(call, kind, body)

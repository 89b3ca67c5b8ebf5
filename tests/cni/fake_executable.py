"""A fake plugin executable: sends and receives whole frames, or any bytes."""

import asyncio
import json
import select
import socket
from collections.abc import Iterable
from pathlib import Path

from cni.host import frames

ENVIRON = {
    b"CNI_COMMAND": b"ADD",
    b"CNI_CONTAINERID": b"c0ffee",
    b"CNI_NETNS": b"/run/netns/cni-1",
    b"CNI_IFNAME": b"eth0",
    b"CNI_PATH": b"/opt/cni/bin",
    b"CNI_ARGS": b"IgnoreUnknown=1;K8S_POD_NAMESPACE=ml;K8S_POD_NAME=train-0;K8S_POD_UID=uid-1",
}
PRIMARY = "/etc/cni/net.d/10-flannel.conflist"
CONF = json.dumps({"cniVersion": "0.3.1", "name": "cbr0", "type": "railnet", "primary": PRIMARY}).encode()


def a_request(environ: dict[bytes, bytes] = ENVIRON, stdin: bytes = CONF) -> bytes:
    return frames.frame(frames.REQUEST, frames.blobs(frames.environ_blob(environ), stdin))


class FakeExecutable:
    """Owns its socket."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._socket = connection
        self.close = connection.close

    @classmethod
    async def connected(cls, path: Path) -> "FakeExecutable":
        connection = socket.socket(socket.AF_UNIX)
        executable = cls(connection)
        await asyncio.get_running_loop().sock_connect(connection, str(path))
        return executable

    async def send(self, *parts: bytes) -> None:
        for part in parts:
            await asyncio.get_running_loop().sock_sendall(self._socket, part)

    def send_with_descriptors(self, data: bytes, fds: Iterable[int]) -> None:
        socket.send_fds(self._socket, [data], list(fds))

    async def send_byte_by_byte(self, data: bytes) -> None:
        for position in range(len(data)):
            await self.send(data[position : position + 1])
            await asyncio.sleep(0)

    def is_readable(self) -> bool:
        return bool(select.select([self._socket], [], [], 0)[0])

    async def receive(self) -> tuple[int, bytes]:
        """Receive a frame; type 0 for the end of the connection."""
        header = await self._read(frames.HEADER_BYTES)
        if not header:
            return 0, b""
        kind, length = frames.parse_header(header)
        return kind, await self._read(length)

    async def handshake(self, request: bytes) -> None:
        """Send a request, receive HELLO and send GO."""
        await self.send(request)
        kind, _ = await self.receive()
        assert kind == frames.HELLO
        await self.send(frames.frame(frames.GO))

    async def executed(self) -> tuple[bytes, str, str, bytes]:
        """Receive an EXEC: its number, plugin, command and stdin."""
        kind, payload = await self.receive()
        assert kind == frames.EXEC, f"frame {kind} came in place of EXEC"
        plugin, environ, stdin = frames.parse_blobs(payload[4:], 3)
        return payload[:4], plugin.decode(), frames.parse_environ(environ)[b"CNI_COMMAND"].decode(), stdin

    async def answer(self, stdout: bytes, status: int = 0, stderr: bytes = b"") -> str:
        """Receive an EXEC and answer it. Return its command and plugin."""
        number, plugin, command, _ = await self.executed()
        await self.send(output(number, stdout, status, stderr))
        return f"{command} {plugin}"

    async def done(self) -> tuple[int, bytes]:
        """Receive DONE: its status and stdout."""
        kind, payload = await self.receive()
        assert kind == frames.DONE, f"frame {kind} came in place of DONE"
        return payload[0], frames.parse_blobs(payload[1:], 1)[0]

    async def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            chunk = await asyncio.get_running_loop().sock_recv(self._socket, count - len(data))
            if not chunk:
                break
            data += chunk
        return data


def output(number: bytes, stdout: bytes, status: int = 0, stderr: bytes = b"") -> bytes:
    return frames.frame(frames.OUTPUT, number + frames.i32(status) + frames.blobs(stdout, stderr))

"""HTTP without TLS: /healthz while the event loop runs, /readyz with the reasons why the node is not served, and /metrics.

The node has one port for its daemon. A daemon that waits for the end of another daemon takes the port when it is free. The
admission helper's port belongs to its pod.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus

_log = logging.getLogger(__name__)
_LOOPBACK = "127.0.0.1"
_PATIENCE_SECONDS = 5.0
_RETRY_SECONDS = 1.0


class Health:
    """The answers: `reasons` returns why the node is not served, empty if it is; `metrics` returns the text of /metrics."""

    def __init__(self) -> None:
        """Be not ready until `reasons` is set."""
        self.reasons: Callable[[], list[str]] = lambda: ["it is starting"]
        self.metrics: Callable[[], str] = str

    @asynccontextmanager
    async def serving(self, port: int, host: str | None = _LOOPBACK) -> AsyncIterator[None]:
        """Answer on a port, from when it is free until the end of the block; on all addresses if `host` is None."""
        task = asyncio.create_task(self._serve(port, host))
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def answer(self, request: str) -> tuple[HTTPStatus, str]:
        """Answer a request line; /readyz with one line of text for each reason."""
        method, _, rest = request.partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if method not in ("GET", "HEAD"):
            return HTTPStatus.METHOD_NOT_ALLOWED, "only GET is answered\n"
        if path == "/healthz":
            return HTTPStatus.OK, "ok\n"
        if path == "/metrics":
            return HTTPStatus.OK, self.metrics()
        if path != "/readyz":
            return HTTPStatus.NOT_FOUND, "there are /healthz, /readyz and /metrics\n"
        reasons = "".join(f"{reason}\n" for reason in self.reasons())
        return (HTTPStatus.SERVICE_UNAVAILABLE, reasons) if reasons else (HTTPStatus.OK, "ok\n")

    async def _serve(self, port: int, host: str | None) -> None:
        said = False
        while True:
            try:
                # With start_serving=True, start_server awaits once more; a cancellation there would leave the sockets open.
                async with await asyncio.start_server(self._connection, host, port, start_serving=False) as server:
                    await server.serve_forever()
            except OSError as error:
                if not said:
                    _log.warning("health is not answered on %s:%d yet: %s", host or "*", port, error.strerror)
                said = True
            await asyncio.sleep(_RETRY_SECONDS)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A client that goes away, stays silent or sends no line of text is ignored.
        with suppress(OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
            async with asyncio.timeout(_PATIENCE_SECONDS):
                request = (await reader.readline()).decode("ascii")
                while (await reader.readline()).strip():
                    pass  # headers: a socket closed with unread input is reset, and the answer lost
                status, text = self.answer(request)
                writer.write(_response(status, text.encode(), with_body=not request.startswith("HEAD")))
                await writer.drain()
        writer.close()


def _response(status: HTTPStatus, body: bytes, *, with_body: bool) -> bytes:
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (body if with_body else b"")

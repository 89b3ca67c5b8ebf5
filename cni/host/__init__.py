"""Container runtimes execute this on the host: the plugin executable, the primary chain, and the slow lane without a daemon.

The host contract: it starts in milliseconds. No dataclasses, typing, asyncio or grpc. `plugin`, with all that it imports at its
top, uses only modules that are built into the interpreter; the other modules import `_json` and `json` at most.
"""

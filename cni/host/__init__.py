"""What runs on the host, as container runtimes execute it: the plugin executable, the primary chain, the slow lane.

Its contract: it must start in milliseconds on whatever Python a node has. No dataclasses, typing, asyncio or grpc;
`plugin` and what it imports at its top use only modules built into the interpreter, the rest imports `json` at most.
"""

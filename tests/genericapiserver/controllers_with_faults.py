"""`railnet controllers` with a fault in its requests: `before` and `after` end the process at the first write, before or after it is done,
as SIGKILL does; `refused` has every other write answered with 429; `cut:FILE` lets no watch begin while the file exists.

Writes of Services and their slices are meant; with `before:pods` and so on, patches and evictions of pods. A leader that dies writes one
thing at a time, so that it has written once or not at all. `none` is no fault. With each, what waits for half a minute waits a second, and a
leader leads on for a minute without an API server: a test starts that anew, which takes longer than a Lease on a machine that is busy.
"""

import os
import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from itertools import count
from pathlib import Path

from apiserver import lease
from apiserver.client import Answer, Stream
from apiserver.kubernetes_transport import KubernetesTransport
from apiserver.request import Request, Verb
from controllers import informer
from controllers.gangs import evictions
from railnet.__main__ import main

_WRITES = (Verb.CREATE, Verb.PATCH, Verb.DELETE)
_numbers = count()
_one_write = threading.Lock()
_exchange, _stream = KubernetesTransport.exchange, KubernetesTransport.stream


def exchange(transport: KubernetesTransport, request: Request, headers: Mapping[str, str], most_bytes: int) -> Answer:
    if request.verb not in _WRITES or request.about.resource not in _kinds:
        return _exchange(transport, request, headers, most_bytes)
    if _fault == "refused" and next(_numbers) % 2 == 0:
        return Answer(429, "application/json", "1", b'{"message": "too many requests"}')
    if _fault in ("before", "after"):
        _one_write.acquire()  # for ever
    if _fault == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    answer = _exchange(transport, request, headers, most_bytes)
    if _fault == "after":
        os.kill(os.getpid(), signal.SIGKILL)
    return answer


def stream(
    transport: KubernetesTransport, request: Request, headers: Mapping[str, str], most_bytes: int
) -> AbstractContextManager[Stream]:
    if _fault == "cut" and Path(_about).exists():
        raise OSError("the test lets no watch begin")
    return _stream(transport, request, headers, most_bytes)


if __name__ == "__main__":
    _fault, _, _about = sys.argv.pop(1).partition(":")
    _kinds = (_about,) if _about and _fault != "cut" else ("services", "endpointslices")
    evictions.STUCK_SECONDS = informer.LONGEST_PAUSE_SECONDS = 1.0
    lease.lead = partial(lease.lead, seconds=lease.Seconds(lease=90.0, renew=60.0))
    KubernetesTransport.exchange = exchange  # type: ignore[method-assign]
    KubernetesTransport.stream = stream  # type: ignore[method-assign]
    main()

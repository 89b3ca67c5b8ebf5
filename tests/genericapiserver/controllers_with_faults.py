"""`railnet controllers` with a fault in its requests that write: `before` and `after` end the process at the first write, before or after
it is done, as SIGKILL does; `refused` has every other write answered with 429.
"""

import os
import signal
import sys
from collections.abc import Mapping
from itertools import count

from apiserver.client import Answer
from apiserver.kubernetes_transport import KubernetesTransport
from apiserver.request import Request, Verb
from railnet.__main__ import main

_WRITES = (Verb.CREATE, Verb.PATCH, Verb.DELETE)
_KINDS = ("services", "endpointslices")
_numbers = count()
_exchange = KubernetesTransport.exchange


def exchange(transport: KubernetesTransport, request: Request, headers: Mapping[str, str], most_bytes: int) -> Answer:
    if request.verb not in _WRITES or request.about.resource not in _KINDS:
        return _exchange(transport, request, headers, most_bytes)
    if _fault == "refused" and next(_numbers) % 2 == 0:
        return Answer(429, "application/json", "1", b'{"message": "too many requests"}')
    if _fault == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    answer = _exchange(transport, request, headers, most_bytes)
    if _fault == "after":
        os.kill(os.getpid(), signal.SIGKILL)
    return answer


if __name__ == "__main__":
    _fault = sys.argv.pop(1)
    KubernetesTransport.exchange = exchange  # type: ignore[method-assign]
    main()

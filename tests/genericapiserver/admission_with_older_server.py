"""`railnet admission` whose API server says that it is Kubernetes 1.26. The rest of what it says is its own: an older one cannot be built."""

import json
from collections.abc import Mapping

from apiserver.client import Answer
from apiserver.kubernetes_transport import KubernetesTransport
from apiserver.request import Request, ServerVersion
from railnet.__main__ import main

_exchange = KubernetesTransport.exchange


def exchange(transport: KubernetesTransport, request: Request, headers: Mapping[str, str], most_bytes: int) -> Answer:
    answer = _exchange(transport, request, headers, most_bytes)
    if not isinstance(request.about, ServerVersion):
        return answer
    said = json.loads(answer.body) | {"minor": "26", "gitVersion": "v1.26.15"}
    return Answer(answer.status, answer.content_type, answer.retry_after, json.dumps(said).encode())


if __name__ == "__main__":
    KubernetesTransport.exchange = exchange  # type: ignore[method-assign]
    main()

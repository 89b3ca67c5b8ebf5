"""An API server's reviews by the webhook: TLS, on a connection that is kept, with the time limit of the webhook configuration."""

import base64
import http.client
import json
import socket
import ssl
import time
import uuid
from http import HTTPStatus
from typing import Any

from railnet.admission.webhook_scope import PLAIN, pods

NAME = "railnet-admission.railnet.svc"  # the Service's name, which the certificate must have
LIMIT_SECONDS: float = pods()[0]["timeoutSeconds"]  # the API server refuses the pod after it
_POD_BYTES = 7 << 10  # a training pod has as many


class ReviewFailed(RuntimeError):
    """The API server would refuse the pod, or would create the pod without its rails."""


class ReviewClient:
    """One API server; one thread at a time may use it.

    Args:
        port: the webhook's port, on the loopback.
        authority: the certificate of the authority that the client trusts, in PEM.
        limit_seconds: the time limit of one review, with the handshake if there is one.
    """

    def __init__(self, port: int, authority: bytes, limit_seconds: float = LIMIT_SECONDS) -> None:
        self._address, self._limit_seconds = ("127.0.0.1", port), limit_seconds
        self._context = ssl.create_default_context(cadata=authority.decode())
        self._kept: ssl.SSLSocket | None = None

    def review(self) -> float:
        """Ask for the review of a training pod, and return the milliseconds until its answer.

        If the webhook has closed the kept connection, the request is sent once more on a new connection, as client-go does.

        Raises:
            ReviewFailed: there was no answer in time, or the answer does not give the pod its rails.
        """
        began = time.monotonic()
        try:
            answer = self._exchange_again(began) if self._kept is None else self._exchange_kept(self._kept, began)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            seconds = time.monotonic() - began
            raise ReviewFailed(
                f"a review got no answer: {type(error).__name__}: {error}, after {seconds:.1f} s"
            ) from None
        _require_patch(answer)
        return 1000 * (time.monotonic() - began)

    def close(self) -> None:
        """Close the kept connection; the next review makes another."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _exchange_kept(self, kept: ssl.SSLSocket, began: float) -> bytes:
        try:
            return self._exchange(kept, began)
        except (ConnectionError, ssl.SSLEOFError, http.client.HTTPException):
            return self._exchange_again(began)

    def _exchange_again(self, began: float) -> bytes:
        self.close()
        plain = socket.create_connection(self._address, self._left(began))
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as Go does
            self._kept = self._context.wrap_socket(plain, server_hostname=NAME)
        except BaseException:
            plain.close()
            raise
        return self._exchange(self._kept, began)

    def _exchange(self, connection: ssl.SSLSocket, began: float) -> bytes:
        connection.settimeout(self._left(began))
        connection.sendall(request())
        with http.client.HTTPResponse(connection, method="POST") as response:
            response.begin()
            body = response.read()
        self._left(began)
        if response.status != HTTPStatus.OK:
            raise http.client.HTTPException(f"status {response.status}, {body[:200]!r}")
        return body

    def _left(self, began: float) -> float:
        """Return the rest of the time limit, in seconds; raise TimeoutError if there is none."""
        left = began + self._limit_seconds - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"the limit is {self._limit_seconds:g} s")
        return left


def request() -> bytes:
    """Return a review's request as the API server sends it, about a training pod that gets rails."""
    body = json.dumps(_review()).encode()
    head = (
        f"POST {PLAIN}?timeout={LIMIT_SECONDS:g}s HTTP/1.1\r\nHost: {NAME}:443\r\nUser-Agent: kube-apiserver-admission\r\n"
        f"Content-Length: {len(body)}\r\nAccept: application/json, */*\r\nContent-Type: application/json\r\n\r\n"
    )
    return head.encode() + body


def _review() -> dict[str, Any]:
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    return {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": str(uuid.uuid4()),
            "kind": kind,
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": "default",
            "operation": "CREATE",
            "userInfo": {"username": "system:serviceaccount:kubeflow:training-operator"},
            "object": {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "train", "namespace": "default", "labels": {"railnet.io/net1": "true"}},
                "spec": {"containers": [{"name": "main", "env": [{"name": "OPTIONS", "value": "x" * _POD_BYTES}]}]},
            },
            "oldObject": None,
            "dryRun": False,
        },
    }


def _require_patch(answer: bytes) -> None:
    try:
        patch = json.loads(base64.b64decode(json.loads(answer)["response"]["patch"]))
        paths = {one["path"] for one in patch}
    except (ValueError, KeyError, TypeError) as error:
        raise ReviewFailed(f"a review has no patch ({error!r}): {answer[:400]!r}") from None
    if "/spec/containers/0/resources" not in paths:
        raise ReviewFailed(f"a review gives the pod no VF: {answer[:400]!r}")

"""The keeper's requests, answered by the fake without a connection: for tests that make thousands."""

import json
from collections.abc import Mapping

from cryptography import x509

from railnet.admission.certificates.authority import ServerCertificate, signed_by
from railnet.admission.certificates.cluster_objects import NAME, ClusterObjects
from railnet.admission.certificates.reconcile_step import Keeper
from railnet.apiserver.client import Answer, ApiServer
from railnet.apiserver.request import Request
from tests.railnet.admission.api_server import NAMES, NAMESPACE, FakeApiServer, Refusal
from tests.railnet.admission.clock import Clock


class _InMemory:
    def __init__(self, fake: FakeApiServer):
        self._fake = fake

    def exchange(self, request: Request, headers: Mapping[str, str], most_bytes: int) -> Answer:
        try:
            status, found = 200, self._fake.do(request.method, request.path, request.body)
        except Refusal as refusal:
            status, found = refusal.status, {"message": str(refusal)}
        return Answer(status, "application/json", "", json.dumps(found).encode())


def in_memory(fake: FakeApiServer) -> ApiServer:
    return ApiServer(_InMemory(fake), lambda: "a-token", NAME)


class Replica:
    """One of several: the certificate that it shows is carried from look to look."""

    def __init__(self, api: ApiServer, clock: Clock):
        self.keeper = Keeper(ClusterObjects(api, NAMESPACE), NAMES, clock)
        self.shown: ServerCertificate | None = None
        self.trouble = ""
        self.waits = False
        self.trusted: frozenset[x509.Certificate] = frozenset()

    def look(self) -> "Replica":
        seen = self.keeper.look(self.shown)
        self.shown, self.trouble, self.waits, self.trusted = seen.leaf, seen.trouble, seen.waits, seen.trusted
        return self

    def shows_one_of(self, authorities: list[x509.Certificate]) -> bool:
        return self.shown is not None and any(signed_by(self.shown.certificate, one) for one in authorities)

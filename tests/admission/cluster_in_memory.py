"""The keeper's own requests, done by the fake without a connection: for tests that make thousands."""

from typing import Any

from cryptography import x509

from admission.certificates import cluster_objects
from admission.certificates.authority import Leaf, signed_by
from admission.certificates.cluster_objects import ApiServer
from admission.certificates.keeper import Keeper
from tests.admission.api_server import NAMES, NAMESPACE, FakeApiServer, Refusal
from tests.admission.clock import Clock


class InMemory(ApiServer):
    def __init__(self, fake: FakeApiServer):
        self._fake = fake
        self._of_namespace(NAMESPACE)

    def _send(self, request: cluster_objects._Request) -> dict[str, Any]:
        try:
            return self._fake.do(request.method, request.path, request.body)
        except Refusal as refusal:
            raise cluster_objects._failure(
                request, refusal.status, b'{"message": "%s"}' % str(refusal).encode()
            ) from None


class Replica:
    """One of several: what it shows is carried from look to look."""

    def __init__(self, of: ApiServer, clock: Clock):
        self.keeper = Keeper(of, NAMES, clock)
        self.shown: Leaf | None = None
        self.trouble = ""
        self.waits = False
        self.trusted: frozenset[x509.Certificate] = frozenset()

    def look(self) -> "Replica":
        seen = self.keeper.look(self.shown)
        self.shown, self.trouble, self.waits, self.trusted = seen.leaf, seen.trouble, seen.waits, seen.trusted
        return self

    def shows_one_of(self, authorities: list[x509.Certificate]) -> bool:
        return self.shown is not None and any(signed_by(self.shown.certificate, one) for one in authorities)

"""The keeper against an API server: what is in the Secret, whom the webhooks trust, and what each replica shows."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from admission.certificates import authority
from admission.certificates.authority import Leaf, signed_by
from admission.certificates.cluster import ApiServer
from admission.certificates.keeper import Keeper
from tests.admission.api_server import NAMES, NAMESPACE, FakeApiServer, serving
from tests.admission.clock import Clock


class Replica:
    """One of several: what it shows is carried from look to look."""

    def __init__(self, account: Path, clock: Clock):
        self.keeper = Keeper(ApiServer(NAMESPACE, account), NAMES, clock)
        self.shown: Leaf | None = None
        self.trouble = ""
        self.waits = False
        self.trusted = frozenset()

    def look(self) -> "Replica":
        seen = self.keeper.look(self.shown)
        self.shown, self.trouble, self.waits, self.trusted = seen.leaf, seen.trouble, seen.waits, seen.trusted
        return self


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApiServer]:
    fake = FakeApiServer()
    fake.add_webhooks(None, None)
    with serving(fake, tmp_path) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        yield fake


@pytest.fixture
def replica(cluster: FakeApiServer, tmp_path: Path, clock: Clock) -> Replica:
    return Replica(tmp_path, clock)


@pytest.fixture
def other(cluster: FakeApiServer, tmp_path: Path, clock: Clock) -> Replica:
    return Replica(tmp_path, clock)


def is_trusted(cluster: FakeApiServer, leaf: Leaf | None) -> bool:
    assert leaf is not None
    return any(signed_by(leaf.certificate, one) for one in authority.parse_certificates(cluster.pem))


def test_first_look_makes_all_and_has_every_webhook_trust_it(cluster: FakeApiServer, replica: Replica):
    replica.look()

    assert replica.shown == cluster.kept.leaf
    assert cluster.bundles == [[cluster.kept.signer.certificate.subject.rfc4514_string()]] * 2
    assert is_trusted(cluster, replica.shown)
    assert (replica.trouble, replica.waits) == ("", False)


def test_second_look_and_second_replica_change_nothing(cluster: FakeApiServer, replica: Replica, other: Replica):
    replica.look()
    cluster.requests.clear()

    assert replica.look().shown == other.look().shown
    assert cluster.requests == ["GET webhooks", "GET secrets"] * 2

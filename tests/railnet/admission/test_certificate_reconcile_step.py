"""The reconcile step against an API server: the Secret, the authorities that the webhooks trust, and the certificate of each replica."""

import base64
import os
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from railnet.admission.certificates import authority, secret_content
from railnet.admission.certificates.cluster_objects import NAME, ROTATE
from railnet.admission.certificates.renewal import FINISHED, SETTLED
from railnet.admission.certificates.secret_content import Kept
from railnet.apiserver import service_account
from railnet.apiserver.client import ApiServer, RequestFailed
from railnet.apiserver.kubernetes_package_transport import KubernetesTransport
from tests.railnet.admission.api_server import NAMES, FakeApiServer, Refusal, serving
from tests.railnet.admission.clock import Clock
from tests.railnet.admission.cluster_in_memory import Replica


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
def new_replica(cluster: FakeApiServer, tmp_path: Path, clock: Clock) -> Callable[[], Replica]:
    account = service_account.find(os.environ, tmp_path)
    return lambda: Replica(ApiServer(KubernetesTransport(account), account.token, NAME), clock)


@pytest.fixture
def replica(new_replica: Callable[[], Replica]) -> Replica:
    return new_replica()


@pytest.fixture
def other(new_replica: Callable[[], Replica]) -> Replica:
    return new_replica()


def subjects(found: Kept) -> list[str]:
    return [one.subject.rfc4514_string() for one in found.authorities]


def test_first_look_makes_the_certificates_and_has_every_webhook_trust_them(cluster: FakeApiServer, replica: Replica):
    replica.look()

    assert replica.shown == cluster.kept.leaf
    assert cluster.bundles == [subjects(cluster.kept)] * 2
    assert replica.shows_one_of(cluster.trusted)
    assert (replica.trouble, replica.waits) == ("", False)


def test_second_look_and_second_replica_change_nothing(cluster: FakeApiServer, replica: Replica, other: Replica):
    replica.look()
    cluster.requests.clear()

    assert replica.look().shown == other.look().shown
    assert cluster.requests == ["GET webhooks", "GET secrets"] * 2


def test_fields_that_others_wrote_into_the_objects_stay(cluster: FakeApiServer, replica: Replica, clock: Clock):
    replica.look()
    cluster.put_secret(cluster.data, annotations={"theirs": "stays", ROTATE: "now"}, labels={"a": "b"})

    replica.look()

    assert cluster.secret is not None
    assert cluster.webhooks is not None
    assert cluster.secret["metadata"]["annotations"] == {"theirs": "stays"}
    assert cluster.secret["metadata"]["labels"] == {"a": "b"}
    assert cluster.secret["type"] == "kubernetes.io/tls"
    assert cluster.webhooks["metadata"]["labels"] == {"another": "owner"}
    assert [one["failurePolicy"] for one in cluster.webhooks["webhooks"]] == ["Fail", "Fail"]


def test_of_two_replicas_that_start_at_once_one_makes_the_certificates_and_the_other_reads_them(
    cluster: FakeApiServer, replica: Replica, other: Replica
):
    both_have_read = threading.Barrier(2, timeout=20)

    def together(method: str, kind: str) -> None:
        if (method, kind) == ("POST", "secrets"):
            both_have_read.wait()

    cluster.interfere = together
    threads = [threading.Thread(target=one.look) for one in (replica, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert cluster.requests.count("POST secrets") == 2
    assert replica.shown == other.shown == cluster.kept.leaf
    assert cluster.bundles == [subjects(cluster.kept)] * 2


def test_secret_that_changes_between_reading_and_writing_is_read_again(
    cluster: FakeApiServer, replica: Replica, other: Replica, clock: Clock
):
    replica.look()
    clock.forward(days=61)
    said: list[str] = []

    def be_faster(method: str, kind: str) -> None:
        if (method, kind) == ("PUT", "secrets") and not said:
            said.append("once")
            other.look()

    cluster.interfere = be_faster
    replica.look()

    assert replica.shown == other.shown == cluster.kept.leaf
    assert replica.shown is not None
    assert replica.shown.begins > clock.now - timedelta(days=1)


def test_older_bundle_is_never_written_over_a_newer_one(
    cluster: FakeApiServer, replica: Replica, other: Replica, clock: Clock
):
    replica.look()
    cluster.add_webhooks(None, None)
    cluster.put_secret(cluster.data, annotations={ROTATE: "now"})
    secret_with_one = cluster.data
    said: list[str] = []

    def be_faster(method: str, kind: str) -> None:
        # The other replica has rotated and patched after this one has read both objects.
        if (method, kind) == ("PATCH", "webhooks") and not said:
            said.append("once")
            cluster.put_secret(cluster.data, annotations={ROTATE: "again"})
            other.look()

    cluster.interfere = be_faster
    replica.look()

    assert cluster.data != secret_with_one
    assert cluster.bundles == [subjects(cluster.kept)] * 2
    assert len(cluster.kept.others) == 1


def test_overwritten_bundle_is_written_again(cluster: FakeApiServer, replica: Replica):
    replica.look()
    cluster.add_webhooks(base64.b64encode(b"a placeholder").decode(), None, "")

    replica.look()

    assert cluster.bundles == [subjects(cluster.kept)] * 3


def test_leaf_is_renewed_after_two_thirds_by_the_same_authority_and_shown_at_once(
    cluster: FakeApiServer, replica: Replica, clock: Clock
):
    before = replica.look().shown
    signer = cluster.kept.signer.certificate
    clock.forward(days=59)
    assert replica.look().shown == before

    clock.forward(days=1)
    replica.look()

    assert replica.shown != before
    assert cluster.kept.signer.certificate == signer
    assert cluster.bundles == [subjects(cluster.kept)] * 2


def test_authority_is_rotated_while_every_certificate_that_is_shown_stays_trusted(
    cluster: FakeApiServer, replica: Replica, other: Replica, clock: Clock
):
    old = replica.look().shown
    other.look()
    (first,) = subjects(cluster.kept)
    cluster.put_secret(cluster.data, annotations={ROTATE: "now"})

    replica.look()
    second = subjects(cluster.kept)[0]
    assert second != first
    assert cluster.bundles == [[second, first]] * 2
    assert replica.shown == cluster.kept.leaf == old
    assert replica.waits

    clock.forward(seconds=SETTLED.total_seconds() - 1)
    assert replica.look().shown == other.look().shown == old

    clock.forward(seconds=1)
    replica.look()
    assert replica.shown == cluster.kept.leaf != old
    assert cluster.kept.issuer == cluster.kept.signer.certificate
    assert other.shown == old  # it has not looked yet, and is trusted still
    assert other.shows_one_of(cluster.trusted)
    assert cluster.bundles == [[second, first]] * 2

    clock.forward(seconds=SETTLED.total_seconds())
    assert other.look().shown == cluster.kept.leaf

    clock.forward(seconds=FINISHED.total_seconds())
    replica.look()
    other.look()
    assert cluster.bundles == [[second]] * 2
    assert replica.shown == other.shown == cluster.kept.leaf


@pytest.mark.slow
@pytest.mark.parametrize("days", [0, 61])  # alone, and when the certificate is due as well
def test_annotation_that_asks_for_a_rotation_stays_until_the_rotation_begins(
    cluster: FakeApiServer, replica: Replica, clock: Clock, days: int
):
    replica.look()
    seen = set()
    cluster.put_secret(cluster.data, annotations={ROTATE: "now"})
    clock.forward(days=days)
    for minute in range(200):
        seen.add(cluster.kept.signer.certificate)
        replica.look()
        if minute == 30:
            assert len(cluster.kept.others) == 1  # in the middle of the first one
            cluster.put_secret(cluster.data, annotations={ROTATE: "again"})
        clock.forward(minutes=1)

    assert len(seen) == 3
    assert cluster.kept.others == ()


@pytest.mark.slow
def test_rotation_waits_while_the_bundle_cannot_be_set(cluster: FakeApiServer, replica: Replica, clock: Clock):
    old = replica.look().shown
    cluster.put_secret(cluster.data, annotations={ROTATE: "now"})
    cluster.interfere = forbid("PATCH", "webhooks")
    for _ in range(50):
        replica.look()
        clock.forward(days=1)

    assert replica.shown == cluster.kept.leaf == old
    assert "lacks the right 'patch' on mutatingwebhookconfigurations/railnet-admission" in replica.trouble


def test_deleted_secret_is_made_again_and_the_certificate_that_is_shown_stays_trusted(
    cluster: FakeApiServer, replica: Replica, other: Replica, new_replica: Callable[[], Replica], clock: Clock
):
    old = replica.look().shown
    cluster.secret = None

    assert new_replica().look().shown == cluster.kept.leaf != old  # it shows what there is: it has nothing else
    assert replica.look().shown == old
    assert replica.waits
    assert replica.shows_one_of(cluster.trusted)

    clock.forward(seconds=SETTLED.total_seconds())
    assert replica.look().shown == cluster.kept.leaf
    clock.forward(seconds=FINISHED.total_seconds())
    replica.look()
    assert cluster.bundles == [subjects(cluster.kept)] * 2
    assert cluster.kept.others == ()


def test_old_authority_is_removed_at_once_if_the_webhooks_are_new_as_well(
    cluster: FakeApiServer, replica: Replica, other: Replica
):
    old = replica.look().shown
    other.look()
    cluster.webhooks = cluster.secret = None
    replica.look()
    cluster.add_webhooks(None, None)

    replica.look()
    other.look()

    assert cluster.bundles == [subjects(cluster.kept)] * 2
    assert cluster.kept.others == ()
    assert replica.shown == other.shown == cluster.kept.leaf != old
    assert replica.trusted == other.trusted == frozenset(cluster.trusted)


DAMAGE = {
    "no authority": ({"ca.crt": b""}, "ca.crt is missing"),
    "an authority that is none": ({"ca.crt": b"rubbish"}, "ca.crt holds no certificates"),
    "no key of the authority": ({"ca.key": b""}, "ca.key is missing"),
    "a key that is none": ({"ca.key": b"rubbish"}, "ca.key holds no private key"),
    "another authority's key": (
        {"ca.key": authority.key_pem(authority.make(Clock().now).key)},
        "ca.key is the key of no authority in ca.crt",
    ),
}
DAMAGED_LEAF = {
    "no certificate": ({"tls.crt": b""}, "tls.crt is missing"),
    "no key": ({"tls.key": b"-----BEGIN PRIVATE KEY-----\nx\n"}, "tls.key holds no private key"),
    "a key of something else": (
        {"tls.key": authority.key_pem(authority.make(Clock().now).key)},
        "tls.key is not the key of the first certificate in tls.crt",
    ),
}


@pytest.mark.parametrize(("damage", "words"), DAMAGE.values(), ids=DAMAGE.keys())
def test_damaged_authority_is_logged_and_everything_is_made_again(
    damage: dict[str, bytes], words: str, cluster: FakeApiServer, replica: Replica, caplog: pytest.LogCaptureFixture
):
    replica.look()
    before = cluster.kept
    cluster.put_secret(cluster.data | damage)

    with caplog.at_level("INFO"):
        replica.look()

    assert words in caplog.text
    assert cluster.kept.signer.certificate != before.signer.certificate
    assert cluster.kept.others == (before.signer.certificate,)
    assert replica.shown == before.leaf  # trusted, and not replaced before the new one is, too


@pytest.mark.parametrize(("damage", "words"), DAMAGED_LEAF.values(), ids=DAMAGED_LEAF.keys())
def test_damaged_leaf_is_logged_and_signed_again(
    damage: dict[str, bytes], words: str, cluster: FakeApiServer, replica: Replica, caplog: pytest.LogCaptureFixture
):
    replica.look()
    before = cluster.kept
    cluster.put_secret(cluster.data | damage)

    with caplog.at_level("INFO"):
        replica.look()

    assert words in caplog.text
    assert cluster.kept.signer.certificate == before.signer.certificate
    assert replica.shown == cluster.kept.leaf != before.leaf


def test_leaf_for_other_names_is_signed_again(cluster: FakeApiServer, replica: Replica, clock: Clock):
    replica.look()
    signer = cluster.kept.signer
    leaf = authority.sign(signer, ["another.svc"], clock.now)
    cluster.put_secret(cluster.data | {"tls.crt": leaf.chain, "tls.key": leaf.key})

    replica.look()

    assert cluster.kept.leaf is not None
    assert cluster.kept.leaf.lacks(NAMES) == []


def test_leaf_of_an_unknown_authority_is_signed_again(cluster: FakeApiServer, replica: Replica, clock: Clock):
    replica.look()
    leaf = authority.sign(authority.make(clock.now), list(NAMES), clock.now)
    cluster.put_secret(cluster.data | {"tls.crt": leaf.chain, "tls.key": leaf.key})

    assert replica.look().shown == cluster.kept.leaf != leaf


def test_ten_years_later_everything_is_made_again(cluster: FakeApiServer, replica: Replica, clock: Clock):
    replica.look()
    clock.forward(days=3650)

    replica.look()

    assert replica.shown is not None
    assert replica.shown.valid(clock.now)
    assert len(cluster.trusted) == 1
    assert replica.shows_one_of(cluster.trusted)


def forbid(method: str, kind: str) -> Callable[[str, str], None]:
    def interfere(asked: str, of: str) -> None:
        if (asked, of) == (method, kind):
            raise Refusal(403, f'User "system:serviceaccount:railnet:{NAME}" cannot do that')

    return interfere


@pytest.mark.parametrize(
    ("method", "right"),
    [("GET", "'get' on secrets/railnet-admission-tls in namespace railnet"), ("POST", "'create' on secrets")],
)
def test_missing_right_to_the_secret_is_named(cluster: FakeApiServer, replica: Replica, method: str, right: str):
    cluster.interfere = forbid(method, "secrets")

    with pytest.raises(RequestFailed, match=f"the service account railnet-admission lacks the right {right}"):
        replica.look()


def test_certificate_is_made_if_the_webhooks_may_not_be_read_and_the_missing_right_is_named(
    cluster: FakeApiServer, replica: Replica
):
    cluster.interfere = forbid("GET", "webhooks")

    replica.look()

    assert replica.shown == cluster.kept.leaf
    assert replica.trusted == frozenset()
    assert "lacks the right 'get' on mutatingwebhookconfigurations/railnet-admission" in replica.trouble


def test_bundle_that_was_set_by_hand_counts(cluster: FakeApiServer, replica: Replica, other: Replica):
    replica.look()
    cluster.interfere = forbid("PATCH", "webhooks")

    assert other.look().trusted == frozenset({cluster.kept.signer.certificate})


def test_webhooks_that_do_not_exist_trust_no_authority(cluster: FakeApiServer, replica: Replica):
    assert replica.look().trusted
    cluster.webhooks = None

    replica.look()

    assert replica.trusted == frozenset()
    assert "not found" in replica.trouble
    assert replica.shown == cluster.kept.leaf


def test_authorities_stay_trusted_while_the_webhooks_cannot_be_read(cluster: FakeApiServer, replica: Replica):
    before = replica.look().trusted

    def fail(method: str, kind: str) -> None:
        if kind == "webhooks":
            raise Refusal(503, "the server is currently unable to handle the request")

    cluster.interfere = fail
    replica.look()

    assert replica.trusted == before
    assert "HTTP 503" in replica.trouble


def test_authorities_stay_trusted_when_a_clock_that_was_ahead_is_set_back(
    cluster: FakeApiServer, replica: Replica, other: Replica, clock: Clock
):
    """A node that has just started may have its clock's local time for UTC, until its time service answers."""
    replica.look()
    clock.forward(hours=8)
    other.look()
    clock.forward(hours=-8)

    other.look()

    assert (other.trouble, other.trusted) == ("", frozenset(cluster.trusted))
    assert other.shows_one_of(cluster.trusted)


def test_rotation_goes_on_five_seconds_after_a_clock_was_set_back(
    cluster: FakeApiServer, replica: Replica, clock: Clock
):
    replica.look()
    cluster.put_secret(cluster.data, annotations={ROTATE: "now"})
    replica.look()
    clock.forward(minutes=-30)
    replica.look()
    clock.forward(seconds=SETTLED.total_seconds())

    replica.look()

    assert cluster.kept.issuer == cluster.kept.signer.certificate
    assert replica.trusted == frozenset(cluster.trusted)


def test_refused_change_of_the_secret_is_reported_in_the_words_of_the_api_server(
    cluster: FakeApiServer, replica: Replica, clock: Clock
):
    replica.look()
    clock.forward(days=61)

    def refuse(method: str, kind: str) -> None:
        if method == "PUT":
            raise Refusal(422, "data: Forbidden: field is immutable when `immutable` is set")

    cluster.interfere = refuse
    with pytest.raises(RequestFailed, match="field is immutable"):
        replica.look()


def test_stopped_api_server_is_a_failure_that_names_the_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock
):
    with serving(FakeApiServer(), tmp_path) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        account = service_account.find(os.environ, tmp_path)
        replica = Replica(ApiServer(KubernetesTransport(account), account.token, NAME), clock)

    with pytest.raises(RequestFailed, match="cannot get secrets/railnet-admission-tls in namespace railnet"):
        replica.look()


def test_entries_of_the_secret_are_written_as_they_are_read(cluster: FakeApiServer, replica: Replica):
    replica.look()

    assert secret_content.data(cluster.kept) == cluster.data
    assert cluster.data.keys() == {"ca.crt", "ca.key", "tls.crt", "tls.key"}

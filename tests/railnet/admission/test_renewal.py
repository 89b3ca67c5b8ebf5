"""Which step is decided at which time, and the result for two replicas that look at random times."""

from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from cryptography import x509
from hypothesis import given, settings
from hypothesis import strategies as st

from railnet.admission.certificates import authority
from railnet.admission.certificates.authority import (
    AUTHORITY_LIFETIME,
    BACKDATED,
    LEAF_LIFETIME,
    ServerCertificate,
    signed_by,
)
from railnet.admission.certificates.cluster_objects import ROTATE
from railnet.admission.certificates.renewal import FINISHED, SETTLED, Act, next_step, shows
from railnet.admission.certificates.secret_content import Kept
from tests.railnet.admission.api_server import NAMES, FakeApiServer
from tests.railnet.admission.clock import START, Clock
from tests.railnet.admission.cluster_in_memory import Replica, in_memory

FIRST, SECOND = authority.make(START), authority.make(START)
LEAF, OF_SECOND = authority.sign(FIRST, NAMES, START), authority.sign(SECOND, NAMES, START)
PLAIN = Kept(FIRST, (), LEAF)
ROTATING = Kept(SECOND, (FIRST.certificate,), LEAF)
ROTATED = Kept(SECOND, (FIRST.certificate,), OF_SECOND)
LEAF_IS_DUE = START - BACKDATED + (LEAF_LIFETIME + BACKDATED) * 2 / 3
AUTHORITY_IS_DUE = START - BACKDATED + (AUTHORITY_LIFETIME + BACKDATED) * 2 / 3
MOMENT = timedelta(seconds=1)
MOST_MADE = 12  # authorities in one scenario: so many at once are taken over from the webhooks


def act(kept: Kept, now: datetime = START, trusted_for: timedelta | None = None, *, asked: bool = False) -> Act:
    return next_step(kept, now, trusted_for, asked=asked).act


def test_leaf_is_renewed_at_two_thirds_of_its_time():
    assert act(PLAIN, LEAF_IS_DUE - MOMENT) is Act.KEEP
    assert act(PLAIN, LEAF_IS_DUE) is Act.RENEW


def test_authority_is_rotated_at_two_thirds_of_its_time():
    def with_a_young_leaf(now: datetime) -> Kept:
        return Kept(FIRST, (), authority.sign(FIRST, NAMES, now))

    assert act(with_a_young_leaf(AUTHORITY_IS_DUE), AUTHORITY_IS_DUE - MOMENT) is Act.KEEP
    assert act(with_a_young_leaf(AUTHORITY_IS_DUE), AUTHORITY_IS_DUE) is Act.ROTATE


def test_authority_is_rotated_on_request_but_not_during_a_rotation():
    assert act(PLAIN, asked=True) is Act.ROTATE
    assert act(ROTATING, asked=True) is Act.KEEP
    assert act(ROTATED, asked=True) is Act.KEEP


def test_new_authority_signs_only_after_it_has_been_trusted_for_five_seconds():
    assert act(ROTATING, trusted_for=None) is Act.KEEP
    assert act(ROTATING, trusted_for=SETTLED - MOMENT) is Act.KEEP
    assert act(ROTATING, trusted_for=SETTLED) is Act.RENEW
    assert (
        act(ROTATING, LEAF_IS_DUE, trusted_for=None) is Act.KEEP
    )  # an old leaf is better than one that is not trusted
    assert act(ROTATING, LEAF.ends + MOMENT, trusted_for=None) is Act.RENEW  # an expired leaf has no use


def test_old_authority_is_removed_an_hour_after_the_new_one_signed():
    assert act(ROTATED, START + FINISHED - MOMENT) is Act.KEEP
    assert act(ROTATED, START + FINISHED) is Act.FINISH


def test_certificate_that_is_not_valid_yet_is_made_again_and_the_reason_doubts_the_clock():
    step = next_step(PLAIN, START - BACKDATED - MOMENT, None)

    assert step.act is Act.MAKE
    assert "is this node's clock right?" in step.why


def test_clock_that_is_a_little_behind_changes_nothing():
    assert act(PLAIN, START - BACKDATED) is Act.KEEP


def test_expired_authority_is_made_again():
    assert act(PLAIN, FIRST.certificate.not_valid_after_utc + MOMENT) is Act.MAKE


@given(st.timedeltas(timedelta(), AUTHORITY_LIFETIME))
def test_leaf_never_outlives_its_authority(after: timedelta):
    leaf = authority.sign(FIRST, NAMES, START + after)

    assert leaf.ends <= FIRST.certificate.not_valid_after_utc
    assert signed_by(leaf.certificate, FIRST.certificate)
    assert leaf.lacks(NAMES) == []


@given(st.sampled_from([PLAIN, ROTATING, ROTATED]), st.timedeltas(timedelta(), timedelta(days=800)), st.booleans())
def test_unusable_certificate_is_never_kept(kept: Kept, after: timedelta, asked: bool):
    now = START + after
    leaf = kept.leaf
    assert leaf is not None

    if act(kept, now, asked=asked) in (Act.KEEP, Act.FINISH, Act.ROTATE):
        assert leaf.valid(now)
        assert now <= kept.signer.certificate.not_valid_after_utc


@pytest.mark.parametrize(
    ("shown", "trusted_for", "changes"),
    [
        (None, None, True),  # it has no other certificate to show
        (LEAF, None, False),
        (LEAF, SETTLED - MOMENT, False),
        (LEAF, SETTLED, True),
        (authority.sign(SECOND, NAMES, START), None, True),  # an API server that trusts this one trusts the other
    ],
)
def test_replica_shows_the_leaf_of_another_authority_only_when_that_is_trusted(
    shown: ServerCertificate | None, trusted_for: timedelta | None, changes: bool
):
    assert shows(shown, ROTATED, START, trusted_for) is changes


def test_replica_with_an_expired_leaf_shows_the_leaf_of_the_secret():
    assert shows(LEAF, ROTATED, LEAF.ends + MOMENT, None)


class Watched(FakeApiServer):
    """Records which authorities were trusted since when."""

    def __init__(self, clock: Clock):
        super().__init__()
        self._clock = clock
        self.history: list[tuple[datetime, list[x509.Certificate]]] = []

    def do(self, method: str, path: str, body: object) -> dict[str, object]:
        done = super().do(method, path, body)
        if method == "PATCH":
            self.history.append((self._clock.now, self.trusted))
        return done

    def may_be_known(self, now: datetime) -> list[list[x509.Certificate]]:
        """Return each list of authorities that an API server may still know if it is a little behind."""
        behind = now - (SETTLED - MOMENT)
        ended = [(until, trusted) for (_, trusted), (until, _) in pairwise(self.history)]
        return [trusted for until, trusted in ended if until > behind] + [self.history[-1][1]]


class Cluster:
    """Two replicas and an API server over time."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.api = Watched(self.clock)
        self.api.add_webhooks(None, None)
        self.ready: set[Replica] = set()
        self.made = 0
        self.replicas = [self.started(), self.started()]
        self.both_look()
        self.clock.forward(seconds=60)
        self.api.history[:-1] = []  # before the first authority, none was trusted

    def started(self) -> Replica:
        return Replica(in_memory(self.api), self.clock)

    def both_look(self) -> None:
        for one in self.replicas:
            one.look()
            self.check()

    def check(self) -> None:
        """Every API server, however far behind, trusts the certificate of a ready replica; and the replica stays ready."""
        for one in self.replicas:
            if one.shows_one_of(list(one.trusted)):
                self.ready.add(one)
            if one in self.ready:
                assert one.shows_one_of(list(one.trusted))
                assert one.shown is not None
                assert one.shown.valid(self.clock.now)
                assert all(one.shows_one_of(trusted) for trusted in self.api.may_be_known(self.clock.now))

    def come_to_rest(self) -> None:
        for _ in range(20):
            self.both_look()
            if not any(one.waits for one in self.replicas):
                return
            self.clock.forward(seconds=1)
        raise AssertionError("the replicas never come to rest")

    def happen(self, event: str, number: int) -> None:
        self.made += event in ("ask", "delete", "damage")
        if self.made <= MOST_MADE:
            getattr(self, event)(number)

    def look(self, number: int) -> None:
        self.replicas[number % 2].look()

    def moment(self, number: int) -> None:
        self.clock.forward(seconds=number / 4)

    def hours(self, number: int) -> None:
        self.come_to_rest()
        self.clock.forward(hours=number)
        self.come_to_rest()

    def restart(self, number: int) -> None:
        self.replicas[number % 2] = self.started()

    def ask(self, number: int) -> None:
        if self.api.secret is not None:
            self.api.put_secret(self.api.data, annotations={ROTATE: str(number)})

    def delete(self, number: int) -> None:
        self.api.secret = None

    def damage(self, number: int) -> None:
        if self.api.secret is not None:
            name = ("ca.crt", "ca.key", "tls.crt", "tls.key")[number % 4]
            self.api.put_secret(self.api.data | {name: b"rubbish"})


EVENTS = st.tuples(
    st.sampled_from(["look"] * 6 + ["moment"] * 6 + ["ask", "delete", "damage", "restart", "hours"]), st.integers(0, 20)
)


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(EVENTS, max_size=60))
def test_replica_that_is_ready_is_trusted_after_any_sequence_of_events(events: list[tuple[str, int]]):
    cluster = Cluster()

    for event, number in events:
        cluster.happen(event, number)
        cluster.check()

    for _ in range(3):  # a request in the middle of a rotation causes another rotation
        cluster.hours(2)
    first, second = cluster.replicas
    assert first.shown == second.shown == cluster.api.kept.leaf
    assert cluster.api.trusted == [cluster.api.kept.signer.certificate]


@pytest.mark.slow
def test_two_years_pass_without_an_administrator():
    cluster = Cluster()
    seen = set()
    for _ in range(150):
        cluster.clock.forward(days=5)
        cluster.come_to_rest()
        assert all(one.shows_one_of(list(one.trusted)) for one in cluster.replicas)
        seen.add(cluster.api.kept.signer.certificate)

    assert len(seen) == 4  # the first, and one every eight months

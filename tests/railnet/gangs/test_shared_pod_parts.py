"""Large parts of pods, of which a namespace may have its share."""

import gc

import pytest

from railnet.gangs.shared_pod_parts import KeptParts
from railnet.jobs.gang.request import GangRequest


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> KeptParts[GangRequest]:
    monkeypatch.setattr("railnet.gangs.shared_pod_parts.MOST_BYTES", 100_000)
    return KeptParts()


def test_equal_parts_are_kept_once(parts: KeptParts[GangRequest]) -> None:
    first = parts.keep("a", GangRequest("bert"), 60_000)

    assert first is not None
    assert parts.keep("a", GangRequest("bert"), 60_000) is first
    assert parts.keep("b", GangRequest("bert"), 60_000) is first


def test_namespace_has_its_share_and_takes_none_of_another(parts: KeptParts[GangRequest]) -> None:
    hostile = [parts.keep("hostile", GangRequest(f"gang-{number}"), 20_000) for number in range(10)]
    other = [parts.keep("other", GangRequest(f"other-{number}"), 20_000) for number in range(10)]

    assert [part is not None for part in hostile].count(True) == 5
    assert [part is not None for part in other].count(True) == 2


def test_part_that_nothing_has_any_more_makes_room(parts: KeptParts[GangRequest]) -> None:
    first = parts.keep("a", GangRequest("one"), 90_000)
    full = parts.keep("a", GangRequest("two"), 90_000)
    del first
    gc.collect()

    assert full is None
    assert parts.keep("a", GangRequest("two"), 90_000) is not None


def test_many_namespaces_that_fit_together_are_refused_nothing(parts: KeptParts[GangRequest]) -> None:
    kept = [parts.keep(f"team-{number}", GangRequest(f"gang-{number}"), 2_000) for number in range(40)]

    assert None not in kept
    assert parts.keep("team-0", GangRequest("large"), 20_000) is not None


def test_share_is_never_less_than_a_sixteenth(parts: KeptParts[GangRequest]) -> None:
    kept = [parts.keep(f"hostile-{number}", GangRequest(f"gang-{number}"), 2_000) for number in range(50)]

    first = parts.keep("other", GangRequest("other"), 6_000)

    assert None not in kept
    assert first is not None
    assert parts.keep("other", GangRequest("another"), 6_000) is None

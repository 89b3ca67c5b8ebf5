"""What Kubernetes pauses is known by its rules, and a pause is explained by a fault of the node alone."""

import pytest

from simnode.chaos.job_pauses import AFTER_FAULT_SECONDS, PodSeen, Span, explained, pauses

FAULT = Span(1000.0, 1004.0)


@pytest.mark.parametrize(
    ("pods", "found"),
    [
        ([PodSeen(1000.0), PodSeen(1000.0)], ()),
        ([PodSeen(1000.0, 1003.0), PodSeen(1010.0)], (Span(1003.0, 1010.0),)),
        ([PodSeen(1000.0, 1003.0), PodSeen(1010.0, place="1")], ()),
        ([PodSeen(1000.0, 1000.0), PodSeen(1000.0, place="1"), PodSeen(1010.0)], (Span(1000.0, 1010.0),)),
        ([PodSeen(1000.0, 1003.0), PodSeen(1030.0)], (Span(1003.0, 1013.0),)),
        (
            [PodSeen(1000.0, 1003.0), PodSeen(1000.0, 1003.0, place="1"), PodSeen(1040.0)],
            (Span(1003.0, 1023.0),),
        ),
        (
            [PodSeen(1000.0, 1003.0), PodSeen(1010.0, 1012.0), PodSeen(1090.0)],
            (Span(1003.0, 1010.0), Span(1012.0, 1032.0)),
        ),
    ],
    ids=["none failed", "failed", "no next pod", "within a second", "no longer than the rule", "two at once", "again"],
)
def test_pause_after_a_failed_pod_lasts_until_the_next_one_but_no_longer_than_the_rule(
    pods: list[PodSeen], found: tuple[Span, ...]
) -> None:
    assert pauses(pods) == found


@pytest.mark.parametrize(
    ("pod", "found"),
    [
        (PodSeen(1000.0, tried=(1001.0,), started=1013.0), (Span(1001.0, 1013.0),)),
        (PodSeen(1000.0, tried=(1001.0,), started=1040.0), (Span(1001.0, 1017.0),)),
        (PodSeen(1000.0, tried=(1001.0,)), ()),
        (PodSeen(1000.0, started=1013.0), ()),
        (PodSeen(1000.0, tried=(1001.0, 1003.0), started=1014.0), (Span(1001.0, 1014.0), Span(1003.0, 1014.0))),
    ],
    ids=["tried again", "no longer than the rule", "not started", "nothing failed", "tried twice"],
)
def test_pause_after_a_sandbox_lasts_until_its_container_starts_but_no_longer_than_the_rule(
    pod: PodSeen, found: tuple[Span, ...]
) -> None:
    assert pauses([pod]) == found


def test_longest_pause_is_ten_minutes() -> None:
    pods = [PodSeen(1000.0, 1001.0)] * 9

    assert pauses([*pods, PodSeen(9000.0)])[0] == Span(1001.0, 1601.0)


@pytest.mark.parametrize(
    ("spans", "seconds"),
    [
        ([Span(1003.0, 1010.0)], 7.0),
        ([Span(1003.0, 1023.0), Span(1003.0, 1023.0)], 20.0),
        ([Span(1003.0, 1010.0), Span(1012.0, 1032.0)], 27.0),
        ([Span(1005.0, 1010.0), Span(1001.0, 1008.0)], 9.0),
        ([Span(1004.0 + AFTER_FAULT_SECONDS, 1030.0)], 16.0),
        ([Span(1004.5 + AFTER_FAULT_SECONDS, 1030.0)], 0.0),
        ([Span(998.0, 1010.0)], 0.0),
    ],
    ids=["in the fault", "shared", "two", "overlapping", "shortly after", "too late", "before the fault"],
)
def test_pause_is_explained_by_a_fault_that_was_when_it_began(spans: list[Span], seconds: float) -> None:
    assert explained(spans, [FAULT]) == seconds


def test_nothing_is_explained_without_a_fault() -> None:
    assert explained([Span(1003.0, 1023.0)], []) == 0.0

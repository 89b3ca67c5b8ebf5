from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railnet.objects.pod_requests import pod_requests


def container(cpu: str, restarts: str | None = None) -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": cpu}}, **({"restartPolicy": restarts} if restarts else {})}


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        ({"containers": [container("1"), container("2")]}, 3),
        ({"containers": [container("1")], "initContainers": [container("5"), container("2")]}, 5),
        ({"containers": [container("1")], "initContainers": [container("2", "Always")]}, 3),
        # The second init container runs beside the sidecar before it; the first one before the sidecar.
        ({"containers": [container("1")], "initContainers": [container("2", "Always"), container("4")]}, 6),
        ({"containers": [container("1")], "initContainers": [container("4"), container("2", "Always")]}, 4),
        ({"containers": [container("1")], "overhead": {"cpu": "250m"}}, Fraction(5, 4)),
        ({"containers": [container("1")], "resources": {"requests": {"cpu": "9"}}}, 9),
        ({"containers": [{"resources": {"limits": {"cpu": "2"}}}]}, 2),
        ({"containers": [{"resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}}]}, 1),
        ({"containers": [container("many")]}, 0),
        ({"containers": [{}]}, 0),
        ({}, 0),
    ],
)
def test_requests_are_as_the_scheduler_counts_them(spec: dict[str, Any], cpu: Fraction) -> None:
    assert pod_requests(spec).get("cpu", 0) == cpu


_MILLI = st.integers(0, 50)


@given(st.lists(_MILLI, min_size=1, max_size=4), st.lists(st.tuples(_MILLI, st.booleans()), max_size=5))
def test_requests_are_the_most_that_runs_at_one_moment(mains: list[int], inits: list[tuple[int, bool]]) -> None:
    """The pod's life is played through: what is requested is the largest sum of containers that are there together."""
    moments, sidecars = [], 0
    for amount, stays in inits:
        moments.append(sidecars + amount)
        sidecars += amount if stays else 0
    moments.append(sidecars + sum(mains))
    spec = {
        "containers": [container(f"{one}m") for one in mains],
        "initContainers": [container(f"{one}m", "Always" if stays else None) for one, stays in inits],
    }

    assert pod_requests(spec)["cpu"] * 1000 == max(moments)

"""Hostile tenants beside well-behaved ones: some minutes of `scripts/soak`, and one tenant's pods that are as costly as they can be."""

from collections.abc import Callable
from pathlib import Path

import pytest

from simnode.chaos.soak_judgement import judged, rendered, summary
from tests.control_plane import soak
from tests.control_plane.hostile_crowd import beside_crowd
from tests.control_plane.server import ApiServer

pytestmark = pytest.mark.long_module

SEED = 20261127  # another seed is another schedule: scripts/soak accepts any
MINUTES = 3.0
CROWD = 2000  # `scripts/soak --crowd 10000` has more


def test_hostile_tenants_harm_no_job_of_others(
    server: ApiServer, tmp_path: Path, measured: Callable[[str], None]
) -> None:
    soaked = soak.soak(server, tmp_path, SEED, MINUTES)
    measured("\n".join(rendered(summary(soaked))))

    assert judged(soaked) == []


def test_costly_pods_of_one_tenant_fit_into_the_controllers(
    server: ApiServer, tmp_path: Path, measured: Callable[[str], None]
) -> None:
    beside = beside_crowd(server, tmp_path, CROWD)
    measured(str(beside))

    assert beside.missed() == []

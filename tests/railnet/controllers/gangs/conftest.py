"""The cluster of most tests of gangs; a file with another one has a fixture of the same name."""

import pytest

from tests.railnet.controllers.gangs.gang_cluster import GangCluster


@pytest.fixture
def cluster() -> GangCluster:
    """Two leaves of four nodes with eight GPUs."""
    gang_cluster = GangCluster()
    for leaf in ("a", "b"):
        for number in range(4):
            gang_cluster.add_node(f"{leaf}-{number}", leaf)
    return gang_cluster

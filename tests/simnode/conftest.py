import os
from pathlib import Path

import pytest

from simnode.hardware.fabric import Fabric
from simnode.hardware.hca import Hca
from simnode.hardware.pf import SimulatedPf
from simnode.linux import namespaces, netns


@pytest.fixture(autouse=True, scope="session")
def _inside_a_simulated_node():
    if not namespaces.inside():
        pytest.exit(
            "these tests write to /sys and /run of a simulated node: run `python -m simnode exec -- pytest tests/simnode`",
            returncode=4,
        )


@pytest.fixture
def fabric():
    fabric = Fabric()
    yield fabric
    fabric.close()


@pytest.fixture
def hca(fabric):
    hca = Hca({SimulatedPf(): fabric}, Path("/sys"), Path("/dev"))
    yield hca
    hca.close()


@pytest.fixture
def pod_netns():
    """Make network namespaces; those that are left are removed at the end."""
    made = []

    def make(name):
        path = Path("/run/netns") / name
        netns.create(path)
        made.append(path)
        return path

    yield make
    for path in made:
        netns.remove(path)


@pytest.fixture
def cni_plugins():
    """The folder of the real flannel, bridge, host-local and portmap."""
    cache = os.environ.get("RAILNET_CACHE", os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")) + "/railnet")
    return Path(os.environ.get("RAILNET_CNI_PLUGINS", f"{cache}/cni-plugins"))

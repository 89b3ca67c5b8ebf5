"""A cluster that runs jobs of an operator: all nodes have Railnet, its webhook and its controllers, and one fabric joins the rails."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.cluster.admission_on_node import Admission
from tests.cluster.chart import ENABLED
from tests.cluster.controllers_on_node import Controllers
from tests.cluster.node import PFS, VFS, ClusterNode
from tests.cluster.operators import Operator, installed

_LOOK_SECONDS = 0.5


@contextlib.contextmanager
def operated(node: ClusterNode, operator: Operator, folder: Path) -> Iterator[None]:
    """Install all of it for the time of the block, after which nothing may be left over on any node.

    Pods with one VF each are on both rails of a node, so the rails are joined.

    Args:
        node: the cluster.
        operator: what is installed.
        folder: an empty one, for the operator's image.
    """
    node.railnet.start()
    node.wait_for_vfs(VFS * len(PFS))
    with contextlib.ExitStack() as made:
        made.enter_context(node.joined_rails())
        made.enter_context(Admission(node, {"webhook": {**ENABLED, "hostNetwork": ENABLED}}))
        controllers = made.enter_context(Controllers(node))
        made.enter_context(installed(node, operator, folder))
        made.enter_context(node.all_nodes())
        yield
        # What they ask about is what the operator makes: the roles must permit it.
        assert {key: count for key, count in controllers.requests().items() if key[2] == "failed"} == {}
        assert "forbidden" not in controllers.log()
    assert node.left_over() == []

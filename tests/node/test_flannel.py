"""A primary's DEL that fails is done by the next one, although flannel throws its state away: flannel, a bridge that fails once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from simnode.kubernetes.runtime import CniFailed
from simnode.node import Node
from tests.node.primaries import PLUGINS, primary_of, write_stub

# As bridge, but its first DEL fails before it has done anything.
FAILS_ONCE = """\
if [ $CNI_COMMAND = DEL ] && [ ! -e /run/stub-failed ]; then
  touch /run/stub-failed; cat >/dev/null; printf '{"code": 100, "msg": "not today"}'; exit 1
fi
exec /opt/cni/bin/bridge"""
# Debian 12's plugin still leaves its state where the delegate failed; since v1.2.0 it is gone.
FORGETS = """\
/opt/cni/bin/.flannel; status=$?
[ $CNI_COMMAND = DEL ] && rm -f /var/lib/cni/flannel/$CNI_CONTAINERID
exit $status"""
FLANNEL = {"type": "flannel", "delegate": {"type": "stub", "isGateway": True, "isDefaultGateway": True}}


@pytest.fixture(params=["of Debian 12", "since v1.2.0"])
def flannel(request: pytest.FixtureRequest) -> Iterator[None]:
    real = PLUGINS / "flannel"
    if request.param == "of Debian 12":
        yield
        return
    aside = real.rename(PLUGINS / ".flannel")
    write_stub("flannel", FORGETS)
    yield
    aside.replace(real)


def test_del_that_a_delegate_failed_is_done_by_the_next_one(node: Node, flannel: None, daemon: str) -> None:
    write_stub("stub", FAILS_ONCE)
    primary_of(FLANNEL)
    pod = node.run_pod("pod")

    with pytest.raises(CniFailed, match="not today"):
        node.runtime.delete(pod.sandbox)
    kept = [path.name for path in Path("/var/lib/cni/flannel").iterdir()]
    node.remove_pod(pod)

    assert kept == [pod.container_id]  # and `node` finds nothing left over

"""After a failed DEL the next DEL succeeds, although flannel deletes its state: flannel with a bridge plugin that fails once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from simnode.kubernetes.runtime import CniFailed
from simnode.node import Node
from tests.node.primaries import PLUGINS, primary_of, write_stub

# The plugin bridge, but the first DEL fails before it has done anything.
FAILS_ONCE = """\
if [ $CNI_COMMAND = DEL ] && [ ! -e /run/stub-failed ]; then
  touch /run/stub-failed; cat >/dev/null; printf '{"code": 100, "msg": "not today"}'; exit 1
fi
exec /opt/cni/bin/bridge"""
# Debian 12's flannel keeps its state if the delegate failed. Since v1.2.0 flannel deletes it.
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


def test_del_that_failed_in_a_delegate_succeeds_the_next_time(node: Node, flannel: None, daemon: str) -> None:
    write_stub("stub", FAILS_ONCE)
    primary_of(FLANNEL)
    pod = node.run_pod("pod")

    with pytest.raises(CniFailed, match="not today"):
        node.runtime.delete(pod.sandbox)
    kept = [path.name for path in Path("/var/lib/cni/flannel").iterdir()]
    node.remove_pod(pod)

    assert kept == [pod.container_id]  # the fixture `node` asserts that nothing is left over

"""A storm of errors on a rail's port, for a real API server and scheduler: condition, taint, no new pod, and healthy again.

The daemon's own code looks at simulated cards, by a clock of the test, and writes with its token under the policy. The node is kwok's.
"""

import asyncio
import http.client
from collections.abc import Iterator
from pathlib import Path

import pytest

from railnet.apiserver.client import RequestFailed
from railnet.apiserver.request import JsonObject, Request
from railnet.daemon.node_object.loop import ApiServerOfNode, NodeObjectLoop
from railnet.daemon.node_object.rails_condition import RailsCondition, RailsTaint
from railnet.fabric.rails_condition import TAINT, TYPE
from tests.cluster.chart import ENABLED
from tests.cluster.process import until_found, wait_until
from tests.control_plane.daemon_tokens import OF_NODE_A, daemons
from tests.control_plane.server import ApiServer
from tests.railnet.daemon.node_object.test_rail_errors import Node
from tests.railnet.kernel.tree import PF

_NODE, _PODS = "/api/v1/nodes/node-a", "/api/v1/namespaces/default/pods"
_SECONDS = 120.0


class Daemon:
    """The parts of node-a's daemon that look at rails and write the node's object."""

    def __init__(self, server: ApiServer, token: str, cards: Node) -> None:
        self._api, self._token, self.cards = server.api, token, cards
        condition = RailsCondition(
            cards.configuration, cards.table, cards.told.append, lambda: (), cards.clock, cards.errors.errors
        )
        cards.port_state = condition.port_state
        taint = NodeObjectLoop(RailsTaint(condition, on=True), cards.table, clock=cards.clock)
        self._loops = NodeObjectLoop(condition, cards.table, taint, cards.clock), taint
        self._cluster = ApiServerOfNode(self._send, "node-a")

    def _send(self, request: Request) -> JsonObject:
        answer = self._api.send(request.method, request.path, request.body, self._token, request.content_type)
        if answer.status >= http.client.BAD_REQUEST:
            raise RequestFailed(answer.message, answer.status)
        return answer.object

    def looks(self, times: int) -> None:
        """Look and write each ten seconds of the test's clock."""
        for _ in range(times):
            self.cards.looks()
            for loop in self._loops:
                asyncio.run(loop.step(self._cluster))

    @property
    def trouble(self) -> list[str | None]:
        return [loop.trouble for loop in self._loops]

    @property
    def condition(self) -> dict[str, str]:
        conditions = self._api.get(_NODE).object["status"]["conditions"]
        (own,) = (one for one in conditions if one["type"] == TYPE)
        return {key: own[key] for key in ("status", "reason")}

    @property
    def is_tainted(self) -> bool:
        return any(taint["key"] == TAINT for taint in self._api.get(_NODE).object["spec"].get("taints", ()))


@pytest.fixture
def daemon(server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    with daemons(server, {"railsCondition": {**ENABLED, "taint": True}}) as tokens:
        yield Daemon(server, tokens[OF_NODE_A], Node(tmp_path, monkeypatch))
        server.api.delete(f"{_PODS}/late?gracePeriodSeconds=0")


def test_storm_of_symbol_errors_keeps_new_pods_away_until_it_is_over(server: ApiServer, daemon: Daemon) -> None:
    def pod() -> JsonObject:
        found: JsonObject = server.api.get(f"{_PODS}/late").object
        return found

    def refusal() -> str:
        conditions = pod().get("status", {}).get("conditions", ())
        return next((str(one["message"]) for one in conditions if one.get("reason") == "Unschedulable"), "")

    daemon.looks(2)
    first = daemon.condition
    daemon.cards.count(PF, "symbol_error", 5000)
    daemon.looks(2)
    stormy = daemon.condition, daemon.is_tainted
    spec = {"nodeSelector": {"kubernetes.io/hostname": "node-a"}, "containers": [{"name": "main", "image": "i"}]}
    made = server.api.create(_PODS, {"metadata": {"name": "late"}, "spec": spec})
    refused = until_found(refusal, _SECONDS, "the scheduler to refuse the pod")
    daemon.looks(12)
    over = daemon.condition, daemon.is_tainted
    wait_until(lambda: pod()["spec"].get("nodeName") == "node-a", _SECONDS, "the pod to be bound")

    assert (made.status, daemon.trouble) == (http.client.CREATED, [None, None])
    assert first == {"status": "True", "reason": "RailsActive"}
    assert stormy == ({"status": "False", "reason": "PortErrors"}, True)
    assert "untolerated taint" in refused
    assert over == ({"status": "True", "reason": "RailsActive"}, False)

"""The golden pods: pods as operators make them, the source of that, and the exact answer of a review.

Each pod has one file under `golden/`, in its operator's folder. The pod is as its controller sends it, with the requests that the API
server computes from its limits. `net1` is the label of its namespace, `configuration` the content of node.yaml, `host_port` the port
that is free; without it, host-network mode is switched off.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from railnet import configuration
from railnet.admission.decision import FreePort
from railnet.admission.review_configuration import Policy
from railnet.webhook.explain_command import policy

FOLDER = Path(__file__).parent / "golden"


@dataclass(frozen=True)
class Golden:
    name: str
    facts: list[dict[str, Any]]
    pod: dict[str, Any]
    expected: dict[str, Any]
    net1: bool | None = None
    configuration: dict[str, Any] | None = None
    host_port: int | None = None

    @property
    def free_port(self) -> FreePort | None:
        port = self.host_port
        return None if port is None else lambda _: port

    @property
    def page(self) -> str:
        return self.name.partition("/")[0]

    @property
    def namespace(self) -> str:
        return str(self.pod["metadata"]["namespace"])

    @cached_property
    def policy(self) -> Policy:
        return policy(configuration.parse(yaml.safe_dump(self.configuration), self.name))


def read(path: Path) -> Golden:
    document = yaml.load(path.read_text(), _LOADER)  # noqa: S506 - a SafeLoader
    return Golden(str(path.relative_to(FOLDER).with_suffix("")), **document)


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
GOLDENS = [read(path) for path in sorted(FOLDER.rglob("*.yaml"))]

"""The configuration by the cluster's administrator: the resources of rails, the rails of a node, networks, and a PriorityClass."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from railnet.errors import Misconfigured
from railnet.jobs import railnet_labels
from railnet.vf.permitted_networks import Networks

_SWITCH = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Policy:
    """The part of the node configuration that a review reads.

    Attributes:
        resources: the extended resources of the pools. A pod that asks for none of them gets the first that its namespace may have.
        rails: how many rails a node has, for `railnet.io/vf: auto`; None if it is not configured.
        networks: all networks, and the limit of each namespace.
        priority_class: the PriorityClass of training pods that have none; None for none.
        environment: whether pods that say nothing of it get the variables that name net1.
    """

    resources: tuple[str, ...] = ("rdma/ib_vf",)
    rails: int | None = None
    networks: Networks = field(default_factory=Networks)
    priority_class: str | None = None
    environment: bool = True


@dataclass(frozen=True, slots=True)
class Namespace:
    """A pod's namespace.

    Attributes:
        net1: the value of its label `railnet.io/net1`; None if it has no such label.
        sticky: whether its label `railnet.io/sticky` is "true".
    """

    name: str
    net1: bool | None = None
    sticky: bool = False


def switch(labels: Mapping[str, str], kind: str) -> bool | None:
    """Return the value of the label that switches rails on or off; None without the label. `kind` is "pod" or "namespace".

    Raises:
        Misconfigured: the label is neither "true" nor "false".
    """
    value = labels.get(railnet_labels.NET1)
    if value is not None and value not in _SWITCH:
        raise Misconfigured(
            f'the label {railnet_labels.NET1} of the {kind} is {value!r:.80}; it should be "true" or "false"'
        )
    return None if value is None else _SWITCH[value]

"""What the cluster's administrator settled: what a rail is called, how many a node has, and which namespace may use which network."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from training import label_keys
from vf.errors import Misconfigured
from vf.network import Networks

_SWITCH = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Policy:
    """The part of the node configuration that pods are checked against.

    Attributes:
        resources: the extended resources that are rails; a pod that asks for none is given the first.
        rails: how many rails a node has, for `railnet.io/vf: auto`; None if the administrator set none.
        networks: all networks, and each namespace's limit.
    """

    resources: tuple[str, ...] = ("rdma/ib_vf",)
    rails: int | None = None
    networks: Networks = field(default_factory=Networks)


@dataclass(frozen=True, slots=True)
class Namespace:
    """A pod's namespace; `net1` is what its label says of all its pods, None where it has none."""

    name: str
    net1: bool | None = None


def switch(labels: Mapping[str, str], of: str) -> bool | None:
    """Read the label that switches rails on or off, of a pod or a namespace.

    Raises:
        Misconfigured: it is neither "true" nor "false".
    """
    value = labels.get(label_keys.NET1)
    if value is not None and value not in _SWITCH:
        raise Misconfigured(f'the label {label_keys.NET1} of the {of} is {value!r:.80}; it should be "true" or "false"')
    return None if value is None else _SWITCH[value]

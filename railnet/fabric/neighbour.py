"""The node at the other end of an InfiniBand port's cable, as it describes itself."""

from typing import Literal, NamedTuple

from railnet.vf.guid import Guid

Kind = Literal["CA", "switch", "router"]


class Neighbour(NamedTuple):
    """One neighbour; `port` is its own port that the cable hangs on. A CA (channel adapter) is another node's card."""

    kind: Kind
    node_guid: Guid
    port: int

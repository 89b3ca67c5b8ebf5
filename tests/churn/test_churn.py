"""Pods come and go while whatever can die dies; in the end nothing is left over."""

import os
from pathlib import Path

from simnode.chaos import churn
from simnode.chaos.tally import rendered

SEED = 20261121  # another one finds other things: scripts/churn takes any
OPERATIONS = 10_000
RAIL_ADDS_PERCENT, KILLS = 40, 200


def test_churn_leaves_nothing() -> None:
    plugins = Path(os.environ["RAILNET_CNI_PLUGINS"])

    summary = churn.run(plugins, SEED, OPERATIONS, at_once=32)

    print("\n" + "\n".join(rendered(summary)))  # noqa: T201 - it is what CI shows
    assert summary["left_over_items"] == []
    assert summary["operations"] >= OPERATIONS
    assert summary["rail_adds_ok_percent"] >= RAIL_ADDS_PERCENT
    assert summary["kills"] >= KILLS

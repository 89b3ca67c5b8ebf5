"""Pods come and go while processes and namespaces are killed; in the end nothing is left over."""

import os
from pathlib import Path

from simnode.chaos import churn
from simnode.chaos.churn_statistics import rendered

SEED = 20261121  # another seed is another schedule: scripts/churn accepts any
OPERATIONS = 10_000
RAIL_ADDS_PERCENT, KILLS = 35, 200  # ADDs that are tried again on a disturbed card count as operations, too


def test_churn_leaves_nothing() -> None:
    plugins = Path(os.environ["RAILNET_CNI_PLUGINS"])

    summary = churn.run(plugins, SEED, OPERATIONS, at_once=32)

    print("\n" + "\n".join(rendered(summary)))  # noqa: T201 - CI shows it
    assert summary["left_over_items"] == []
    assert summary["operations"] >= OPERATIONS
    assert summary["rail_adds_ok_percent"] >= RAIL_ADDS_PERCENT
    assert summary["kills"] >= KILLS

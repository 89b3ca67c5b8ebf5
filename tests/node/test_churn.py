"""A short churn; `tests/churn` has the long one."""

import os
from pathlib import Path

from simnode.chaos import churn

OPERATIONS = 100


def test_pods_come_and_go_and_nothing_is_left_over() -> None:
    summary = churn.run(Path(os.environ["RAILNET_CNI_PLUGINS"]), seed=5, operations=OPERATIONS, at_once=8)

    assert summary["left_over_items"] == []
    assert summary["operations"] >= OPERATIONS
    assert summary["rail_adds_ok_percent"] > 30

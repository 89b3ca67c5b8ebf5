"""The dashboard of the chart, as a file."""

import json
from collections.abc import Iterator
from typing import Any

from tests.monitoring.exported import ROOT

FILE = ROOT / "charts/railnet/files/dashboard.json"
DASHBOARD: dict[str, Any] = json.loads(FILE.read_text())
PANELS: list[dict[str, Any]] = [one for one in DASHBOARD["panels"] if one["type"] != "row"]
VARIABLES: list[dict[str, Any]] = DASHBOARD["templating"]["list"]


def expressions() -> Iterator[str]:
    """Yield the expressions of all panels."""
    return (target["expr"] for panel in PANELS for target in panel["targets"])

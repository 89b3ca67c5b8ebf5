"""Debian's promtool, which scripts/setup fetches: it parses expressions, runs unit tests of rules, and checks metrics."""

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from tests.monitoring.exported import Series

_PROMTOOL = os.environ.get("RAILNET_PROMTOOL", "RAILNET_PROMTOOL is not set: run this by scripts/test or scripts/setup")


def promtool(*arguments: str | Path, stdin: str = "") -> str:
    """Run promtool and return what it prints; what it does not accept fails the test."""
    status, printed = answer(*arguments, stdin=stdin)
    assert status == 0, printed
    return printed


def answer(*arguments: str | Path, stdin: str = "") -> tuple[int, str]:
    """Run promtool and return its exit status and all that it printed."""
    done = subprocess.run([_PROMTOOL, *arguments], input=stdin, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def check_expressions(folder: Path, expressions: Iterable[str]) -> tuple[int, str]:
    """Have promtool parse expressions, as recording rules."""
    rules = [{"record": f"expression:{number}", "expr": one} for number, one in enumerate(expressions)]
    path = folder / "expressions.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "expressions", "rules": rules}]}))
    return answer("check", "rules", path)


def find_series(folder: Path, expressions: Iterable[str], exported: Iterable[Series]) -> tuple[int, str]:
    """Have promtool evaluate expressions on exported samples, which have counted for an hour: each must find at least one number."""
    (folder / "none.yaml").write_text("groups: []\n")
    tests = [
        # A sample that is no number equals nothing.
        {
            "expr": f"count(({one}) == ({one})) > bool 0",
            "eval_time": "1h",
            "exp_samples": [{"labels": "{}", "value": 1}],
        }
        for one in expressions
    ]
    path = folder / "find.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "rule_files": ["none.yaml"],
                "evaluation_interval": "1m",
                "tests": [
                    {"interval": "1m", "input_series": [*map(_input, exported)], "promql_expr_test": tests},
                ],
            }
        )
    )
    return answer("test", "rules", path)


def _input(one: Series) -> dict[str, Any]:
    labels = ",".join(f'{name}="{value}"' for name, value in one.labels.items())
    growth = one.value + 1 if one.kind in ("counter", "histogram") else 0
    return {"series": f"{one.name}{{{labels}}}", "values": f"{one.value:f}+{growth:f}x60"}

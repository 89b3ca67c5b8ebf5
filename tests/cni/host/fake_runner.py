"""A fake runner of chains: it executes nothing, answers from a table, and logs each `Exec`."""

import json
from collections.abc import Generator
from typing import Any, TypeVar

from cni.host.chain import Exec, ExecOutput, Primary, parse

Result = TypeVar("Result")


class Runner:
    """Answers each `Exec` by plugin type and command; those that are not in the table succeed with a result."""

    def __init__(self, outputs: dict[tuple[str, str], ExecOutput] | None = None) -> None:
        self.executed: list[Exec] = []
        self.answers = outputs or {}

    def drive(self, steps: Generator[Exec, ExecOutput, Result]) -> Result:
        try:
            step = next(steps)
            while True:
                self.executed.append(step)
                step = steps.send(self.answers.get((step.plugin, step.command)) or printed({"by": step.plugin}))
        except StopIteration as stop:
            return stop.value

    @property
    def calls(self) -> list[str]:
        return [f"{step.command} {step.plugin} {step.ifname}".rstrip() for step in self.executed]

    def conf(self, call: str) -> dict[str, Any]:
        """Return the configuration that one call got on stdin."""
        return json.loads(self.executed[self.calls.index(call)].stdin)


def printed(value: object) -> ExecOutput:
    return ExecOutput(0, json.dumps(value).encode(), b"")


def a_primary(*plugins: str | dict[str, Any], **changes: object) -> Primary:
    """Return a chain of plugins, each a type or a whole configuration."""
    listed = [{"type": plugin} if isinstance(plugin, str) else plugin for plugin in plugins]
    conflist = {"cniVersion": "1.0.0", "name": "cbr0", "plugins": listed, **changes}
    return parse(json.dumps(conflist).encode(), "/etc/cni/net.d/10-flannel.conflist")

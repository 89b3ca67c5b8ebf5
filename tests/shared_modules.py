"""A pytest plugin for several processes that share the test modules: each takes the next module that no other process has taken.

So all processes end at nearly the same time, however long a module takes: modules of some minutes have the mark `long_module` and are taken first.
Each process collects all tests, in the same order. A module is taken by a folder of its number, in a folder that all processes see: the kernel
makes it for one of them only (mkdir(2)).
"""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

LONG_MODULE = "long_module"


class SharedModules:
    """Runs the tests of the modules that this process has taken."""

    def __init__(self, taken: Path) -> None:
        """Share the modules with the processes that have the same folder."""
        self._taken = taken

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run them in place of pytest's own loop (`_pytest.main.pytest_runtestloop`), which knows all tests before it runs the first one."""
        options = session.config.option
        if options.collectonly or (session.testsfailed and not options.continue_on_collection_errors):
            return None
        for item, following in itertools.pairwise(itertools.chain(self._own(session.items), (None,))):
            assert item is not None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
        return True

    def _own(self, items: Sequence[pytest.Item]) -> Iterator[pytest.Item]:
        """Yield the tests of a module as soon as it is taken. The next module is taken when the last test of one begins, which
        has to know what is still needed after it.
        """
        modules = [tuple(of_module) for _, of_module in itertools.groupby(items, lambda item: item.path)]
        modules.sort(key=lambda of_module: of_module[0].get_closest_marker(LONG_MODULE) is None)
        for number, of_module in enumerate(modules):
            try:
                (self._taken / str(number)).mkdir()
            except FileExistsError:
                continue
            yield from of_module

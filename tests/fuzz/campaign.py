"""A fuzzing campaign: many inputs for one parser, with findings, time for each input, and coverage of branches."""

import faulthandler
import json
import resource
import signal
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from random import Random
from tempfile import NamedTemporaryFile

import coverage

from tests.fuzz.mutation import Mutator
from tests.fuzz.parser import Parser
from tests.fuzz.parsers import CORPUS, PARSERS, corpus

SHARE = 5_000  # inputs with a separate random generator, so that several processes can share the work
HANG_SECONDS = 2.0  # of this process's CPU time for one input: the load of other processes does not count
_DEAD_SECONDS = 600.0  # for a hang in C code, which no signal handler interrupts
_DEEP = 150
_MEMORY_BYTES = 1 << 30  # that the process may use in addition to its memory at the start


class Hang(BaseException):
    """One input took longer than `HANG_SECONDS`. It is not an Exception, so that no parser catches it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """An input that a parser neither accepts nor refuses by a documented error. `where` identifies the finding."""

    where: str
    words: str
    data: bytes


@dataclass(slots=True)
class Result:
    """The result of some inputs: their number, the seconds of all and of the slowest, and the findings by `where`."""

    inputs: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    findings: dict[str, Finding] = field(default_factory=dict)

    def add(self, other: "Result") -> None:
        """Add another result to this one. Of equal findings, the one with the shortest input is kept."""
        self.inputs += other.inputs
        self.seconds += other.seconds
        self.slowest = max(self.slowest, other.slowest)
        for finding in other.findings.values():
            self.find(finding)

    def find(self, finding: Finding) -> None:
        """Keep a finding if it is new, or if its input is shorter than that of the equal finding."""
        known = self.findings.get(finding.where)
        if known is None or len(finding.data) < len(known.data):
            self.findings[finding.where] = finding


def inputs(parser: Parser, seed: int, share: int, count: int) -> Iterator[bytes]:
    """Yield inputs, always the same for the same seed, share and corpus. The first share begins with the corpus itself."""
    kept = corpus(parser.name)
    mutator = Mutator(Random(f"{seed}/{parser.name}/{share}"), kept, parser.mend, parser.largest)  # noqa: S311 - no secrets
    first = kept[:count] if share == 0 else []
    yield from first
    for _ in range(count - len(first)):
        yield mutator.next()


def run_share(name: str, seed: int, share: int, count: int) -> Result:
    """Try a share of a parser's inputs in this process."""
    return run(PARSERS[name], inputs(PARSERS[name], seed, share, count))


def run(parser: Parser, tried: Iterator[bytes]) -> Result:
    """Try inputs one by one under a watchdog, and return the result."""
    result = Result()
    with _watchdog():
        for data in tried:
            began = time.process_time()
            finding = judge(parser, data)
            took = time.process_time() - began
            result.inputs += 1
            result.seconds += took
            result.slowest = max(result.slowest, took)
            if finding is not None:
                result.find(finding)
    return result


def judge(parser: Parser, data: bytes) -> Finding | None:
    """Try one input. Return the finding, or None."""
    try:
        signal.setitimer(signal.ITIMER_PROF, HANG_SECONDS)
        try:
            parser.try_one(data)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    except (Exception, Hang) as error:  # noqa: BLE001 - every error is a finding
        return _finding(error, data)
    return None


def _finding(error: BaseException, data: bytes) -> Finding:
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1]
    frame_of_project = next((frame for frame in reversed(frames) if "site-packages" not in frame.filename), last)
    where = f"{type(error).__name__} {Path(frame_of_project.filename).name}:{frame_of_project.name}"
    if not isinstance(error, Hang | RecursionError | MemoryError):
        where += f":{frame_of_project.lineno}"
    stack = "".join(traceback.format_exception(error)[-12:])
    return Finding(where, stack if len(stack) < 4000 else f"{stack[:2000]}\n…\n{stack[-2000:]}", data)


@contextmanager
def _watchdog() -> Iterator[None]:
    """Limit time and memory for the inputs. Restore the process's limits at the end."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + _MEMORY_BYTES, hard))

    def hang(*_: object) -> None:
        raise Hang(f"more than {HANG_SECONDS:g} s for one input")

    before = signal.signal(signal.SIGPROF, hang)
    faulthandler.dump_traceback_later(_DEAD_SECONDS, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def shortened(parser: Parser, finding: Finding, seconds: float = 5.0) -> Finding:
    """Remove bytes from a finding's input as long as the finding stays, for some seconds at most."""
    give_up, best, size = time.monotonic() + seconds, finding, len(finding.data) // 2
    with _watchdog():
        while size and time.monotonic() < give_up:
            place, shorter = 0, False
            while place < len(best.data) and time.monotonic() < give_up:
                tried = judge(parser, best.data[:place] + best.data[place + size :])
                if tried is not None and tried.where == finding.where:
                    best, shorter = tried, True
                else:
                    place += size
            size = size if shorter and size == 1 else size // 2
    return best


def keep(name: str, finding: Finding) -> Path:
    """Write a finding's input into the corpus, and return the file's path."""
    words = "".join(character if character.isalnum() else "-" for character in finding.where)
    path = CORPUS / name / f"found-{words}-{sha256(finding.data).hexdigest()[:6]}"
    path.write_bytes(finding.data)
    return path


@dataclass(frozen=True, slots=True)
class Coverage:
    """The part of a parser that inputs reach: branches and lines with their totals, and those that no input reached."""

    reached: int
    branches: int
    lines: int
    of_lines: int
    missing: tuple[str, ...]

    @property
    def percent(self) -> float:
        """Return the percentage of reached branches, 100 if there is no branch."""
        return 100.0 * self.reached / self.branches if self.branches else 100.0

    @property
    def percent_of_lines(self) -> float:
        """Return the percentage of reached lines, 100 if there is no line."""
        return 100.0 * self.lines / self.of_lines if self.of_lines else 100.0


def covered(name: str, seed: int, count: int) -> Coverage:
    """Try inputs under coverage.py's branch measurement, which is a few times slower."""
    parser = PARSERS[name]
    files = {module: f"{module.replace('.', '/')}.py" for module in parser.covers}
    measuring = coverage.Coverage(branch=True, data_file=None, include=list(files.values()), config_file=False)
    with measuring.collect():
        for share in range(-(-count // SHARE)):
            for data in inputs(parser, seed, share, min(SHARE, count - share * SHARE)):
                # No watchdog: the measurement is slow, and a Hang might be raised while coverage.py holds a lock.
                if not _is_deep(data):
                    with suppress(Exception):
                        parser.try_one(data)
    if not files:
        return Coverage(0, 0, 0, 0, ())
    with NamedTemporaryFile("r") as report:
        measuring.json_report(outfile=report.name)
        measured = json.load(report)["files"]
    found = [one for module, path in files.items() for one in _functions(measured[path], path, parser.covers[module])]
    return Coverage(
        sum(one.reached for one in found),
        sum(one.branches for one in found),
        sum(one.lines for one in found),
        sum(one.of_lines for one in found),
        tuple(line for one in found for line in one.missing),
    )


def _is_deep(data: bytes) -> bool:
    """Return whether an input may reach the recursion limit. Inside coverage.py, that would leave a lock held for ever."""
    return any(data.count(opening) > _DEEP for opening in (b"[", b"{", b"- ", b":"))


def _functions(
    file: "dict[str, dict[str, dict[str, object]]]", path: str, wanted: tuple[str, ...]
) -> Iterator[Coverage]:
    for name, function in file["functions"].items():
        if name and (not wanted or any(name == one or name.startswith(f"{one}.") for one in wanted)):
            summary: dict[str, int] = function["summary"]  # type: ignore[assignment]
            lines: list[int] = function["missing_lines"]  # type: ignore[assignment]
            arcs: list[list[int]] = function["missing_branches"]  # type: ignore[assignment]
            missing = [f"{path}:{line} ({name})" for line in lines]
            missing += [
                f"{path}:{begin}→{end} ({name})" for begin, end in arcs if begin not in lines and end not in lines
            ]
            counts = (summary[key] for key in ("covered_branches", "num_branches", "covered_lines", "num_statements"))
            yield Coverage(*counts, tuple(missing))

"""A parser as the fuzzer sees it: its judge, its documented errors, and the functions that inputs should cover."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.fuzz.mutation import LARGE_BYTES

LONGEST_MESSAGE = 4096  # characters of an error message: runtimes, kubelet and events repeat it


@dataclass(frozen=True, slots=True)
class Parser:
    """One parser; `name` is the name of its folder in the corpus.

    Attributes:
        judge: parses an input and checks the result. It raises the parser's documented errors, and AssertionError for a wrong result.
        errors: the parser's documented errors.
        covers: modules with the functions that belong to the parser; no function means all of the module.
        mend: repairs a value that would stop nearly every input early, such as a checksum.
        largest: the limit of a repetition in bytes, lower for a slow parser.
    """

    name: str
    judge: Callable[[bytes], None]
    errors: tuple[type[Exception], ...]
    covers: Mapping[str, tuple[str, ...]]
    mend: Callable[[bytes], bytes] | None = field(default=None)
    largest: int = LARGE_BYTES

    def try_one(self, data: bytes) -> None:
        """Judge an input.

        Raises:
            Exception: the input is a finding: an undocumented error, an error with a very long message, or a wrong result.
        """
        try:
            self.judge(data)
        except self.errors as error:
            length = len(str(error))
            assert length <= LONGEST_MESSAGE, f"the message of {type(error).__name__} has {length} characters"

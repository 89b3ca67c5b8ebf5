"""What a parser is to the fuzzer: what takes an input and judges what came of it, and which errors it says it raises."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.fuzz.mutation import LARGE_BYTES

MOST_WORDS = 4096  # of an error's message: runtimes, kubelet and events repeat it


@dataclass(frozen=True, slots=True)
class Parser:
    """One parser, by the name of its folder in the corpus.

    Attributes:
        judge: takes an input; lets the documented errors pass, and raises any other for what should not be.
        errors: what the parser says it raises.
        covers: modules, and the functions in them that are the parser; none named means all of the module.
        mend: makes right what would keep nearly every input from the parser proper, such as a checksum.
        largest: how many bytes a repetition may come to, less where a parser takes its time.
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
            Exception: it is a finding: an error that is not documented, one that is told at any length, or an answer that
                contradicts itself.
        """
        try:
            self.judge(data)
        except self.errors as error:
            words = len(str(error))
            assert words <= MOST_WORDS, f"{type(error).__name__} has {words} characters"

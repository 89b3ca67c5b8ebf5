"""All parsers of bytes from outside Railnet, and their corpora."""

from pathlib import Path

from tests.fuzz import (
    admission_parsers,
    cni_parsers,
    controller_parsers,
    kernel_parsers,
    node_parsers,
    plan_parsers,
    socket_parsers,
    train_parsers,
    validate_parsers,
)
from tests.fuzz.parser import Parser

CORPUS = Path(__file__).parent / "corpus"
PARSERS: dict[str, Parser] = {
    parser.name: parser
    for module in (
        admission_parsers,
        cni_parsers,
        socket_parsers,
        kernel_parsers,
        node_parsers,
        plan_parsers,
        controller_parsers,
        train_parsers,
        validate_parsers,
    )
    for parser in module.PARSERS
}


def corpus(name: str) -> list[bytes]:
    """Read the corpus of a parser: valid inputs, and every input that was once a finding."""
    return [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]

"""Pairs of ed25519 keys in OpenSSH's form, for the ssh of one job. A user's machine need have neither ssh-keygen nor the package `cryptography`.

Only the public half of a key is computed here (RFC 8032, section 5.1.5). Nothing is signed, and the numbers are not kept from who shares the processor:
it is the machine of who makes the key.
"""

import base64
import hashlib
import secrets
import struct
from collections.abc import Callable

from railnet.jobs.train_mpi_objects import KeyPair, SshKeys

_TYPE = b"ssh-ed25519"
_SEED_BYTES = 32
_BLOCK = 8  # openssh-portable, PROTOCOL.key: the block size of the cipher "none"
_LINE = 70  # characters, as ssh-keygen writes
_Point = tuple[int, int]

# RFC 8032, section 5.1: the field, the curve's d, and the base point.
_P = 2**255 - 19
_D = -121665 * pow(121666, -1, _P) % _P
_BASE: _Point = (
    15112221349535400772501151409588531511454012693041857206046113283949847762202,
    46316835694926478169428394003475163141307993866256225615783033603165251855960,
)


def ssh_keys(random: Callable[[int], bytes] = secrets.token_bytes) -> SshKeys:
    """Return new keys: the one that lets in, and the one of the hosts."""
    return SshKeys(key_pair(random), key_pair(random))


def key_pair(random: Callable[[int], bytes]) -> KeyPair:
    """Return a new key, of so many random bytes as the function is asked for."""
    seed, check = random(_SEED_BYTES), random(4)
    public = public_bytes(seed)
    blob = _string(_TYPE) + _string(public)
    private = check * 2 + blob + _string(seed + public) + _string(b"")
    private += bytes(range(1, 1 + -len(private) % _BLOCK))
    document = (
        b"openssh-key-v1\0"
        + _string(b"none") * 2
        + _string(b"")
        + struct.pack(">I", 1)
        + _string(blob)
        + _string(private)
    )
    text = base64.b64encode(document).decode()
    lines = "\n".join(text[begin : begin + _LINE] for begin in range(0, len(text), _LINE))
    return KeyPair(
        f"-----BEGIN OPENSSH PRIVATE KEY-----\n{lines}\n-----END OPENSSH PRIVATE KEY-----\n",
        f"{_TYPE.decode()} {base64.b64encode(blob).decode()}",
    )


def public_bytes(seed: bytes) -> bytes:
    """Return the public key of a private key's 32 bytes."""
    number = int.from_bytes(hashlib.sha512(seed).digest()[:_SEED_BYTES], "little")
    x, y = _multiplied((number & (1 << 254) - 8) | 1 << 254)
    return (y | (x & 1) << 255).to_bytes(_SEED_BYTES, "little")


def _multiplied(scalar: int) -> _Point:
    """Return so many times the base point."""
    result, addend = (0, 1), _BASE
    while scalar:
        if scalar & 1:
            result = _added(result, addend)
        addend = _added(addend, addend)
        scalar >>= 1
    return result


def _added(first: _Point, second: _Point) -> _Point:
    """Add two points: the curve's law is complete, so there is no special case."""
    (x, y), (u, v) = first, second
    product = _D * x * y * u * v % _P
    return (
        (x * v + u * y) * pow(1 + product, -1, _P) % _P,
        (y * v + x * u) * pow(1 - product, -1, _P) % _P,
    )


def _string(text: bytes) -> bytes:
    """Return bytes as ssh writes them (RFC 4251, section 5)."""
    return struct.pack(">I", len(text)) + text

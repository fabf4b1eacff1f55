"""Who we say we are: what goes into CONNECT, and the signature of the server's nonce.

A credentials file holds a JWT, which the server may see, and the seed of an ed25519 key, which nobody may see. Nothing
that is raised or logged here has more than file names in it.
"""

from __future__ import annotations

import binascii
import re
from base64 import b32decode, urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from isthmus.runtime.log.interface import LogProblem

_BLOCK = re.compile(r"-----BEGIN (NATS USER JWT|USER NKEY SEED)-----\s+(\S+)\s+-+END", re.ASCII)
_MAX_FILE = 1 << 20
_SEED, _USER = 18 << 3, 20 << 3
"""The kinds in the first two bytes of a seed, five bits each: `S` and `U` in base 32."""


class Identity:
    """What the options say: nothing, a user and a password, a token, or credentials."""

    def __init__(self, options: Mapping[str, str], user: str = "") -> None:
        self._fields = {
            name: value
            for name, value in (
                ("user", options.get("username") or user),
                ("pass", options.get("password")),
                ("auth_token", options.get("token")),
            )
            if value
        }
        self._seed = b""
        if "credentials-file" in options:
            blocks = dict(_BLOCK.findall(_text_of(options["credentials-file"])))
            if len(blocks) != 2:
                raise LogProblem(
                    "credentials-file has not both a NATS USER JWT and a USER NKEY SEED. Write it anew, "
                    "for example with `nsc generate creds`"
                )
            self._fields["jwt"] = blocks["NATS USER JWT"]
            self._seed = _raw_seed(blocks["USER NKEY SEED"])

    def answer(self, nonce: str) -> dict[str, Any]:
        """What CONNECT says to a server that asks with this nonce."""
        if not self._seed:
            return dict(self._fields)
        try:
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        except ImportError:
            raise LogProblem("credentials-file takes the package cryptography: `pip install 'isthmus[nats]'`") from None
        signature = Ed25519PrivateKey.from_private_bytes(self._seed).sign(nonce.encode())
        return {**self._fields, "sig": urlsafe_b64encode(signature).decode().rstrip("=")}


def _text_of(path: str) -> str:
    try:
        with Path(path).open(encoding="ascii", errors="replace") as file:
            return file.read(_MAX_FILE)
    except OSError as error:
        raise LogProblem(f"credentials-file {path} cannot be read: {error.strerror}") from None


def _raw_seed(text: str) -> bytes:
    """The 32 bytes of an encoded seed: two bytes of kind, the seed, two bytes of checksum, all in base 32."""
    broken = LogProblem("the USER NKEY SEED in credentials-file is damaged. Write the file anew")
    try:
        raw = b32decode(text + "=" * (-len(text) % 8))
    except (ValueError, binascii.Error):
        raise broken from None
    body, checksum = raw[:-2], raw[-2:]
    if len(raw) != 36 or binascii.crc_hqx(body, 0) != int.from_bytes(checksum, "little"):
        raise broken
    if raw[0] & 0xF8 != _SEED or (raw[0] & 7) << 5 | raw[1] >> 3 != _USER:
        raise LogProblem("the seed in credentials-file is not that of a user")
    return body[2:]

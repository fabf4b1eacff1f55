"""Who isthmus says it is to a NATS server, and whom it takes for one."""

from __future__ import annotations

import binascii
import hashlib
import json
from base64 import b32encode, urlsafe_b64encode
from collections.abc import Sequence
from pathlib import Path

import pytest
from certificates import Authority
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from isthmus.adapters.nats import NatsLog
from isthmus.lab.brokers.nats import NatsServer
from isthmus.runtime.log.interface import LogProblem, LogSettings, Unavailable
from isthmus.runtime.loop import run

NO_STREAM = "has no stream orders"
"""What a server says to whom it has let in."""


def meet(directory: Path, lines: Sequence[str], scheme: str = "nats", host: str = "127.0.0.1", **options: str) -> str:
    """Open a log on a server with this configuration; returns what the problem is."""

    async def open_log(port: int) -> str:
        log = NatsLog(
            LogSettings(
                system="valencia",
                provider="nats",
                url=f"{scheme}://{host}:{port}",
                streams=("orders",),
                state="s",
                options={key.replace("_", "-"): value for key, value in options.items()},
            )
        )
        try:
            await log.open()
        except (LogProblem, Unavailable) as problem:
            return str(problem)
        finally:
            await log.close()
        return ""

    with NatsServer(directory / "server", lines=lines) as server:
        return run(open_log(server.port))


USER = ["authorization { user: ana, password: correct-horse }"]
TOKEN = ["authorization { token: correct-horse }"]


def test_a_user_with_a_password_and_a_token_are_let_in(tmp_path: Path) -> None:
    assert NO_STREAM in meet(tmp_path / "a", USER, username="ana", password="correct-horse")
    assert NO_STREAM in meet(tmp_path / "b", TOKEN, token="correct-horse")


@pytest.mark.parametrize(
    ("lines", "options"),
    [
        (USER, {"username": "ana", "password": "battery-staple"}),
        (USER, {}),
        (TOKEN, {"token": "battery-staple"}),
    ],
)
def test_a_wrong_secret_is_a_problem_that_does_not_tell_it(
    tmp_path: Path, lines: list[str], options: dict[str, str]
) -> None:
    said = meet(tmp_path, lines, **options)
    assert "does not let us in: Authorization Violation" in said
    assert "password-file" in said
    assert "staple" not in said


def test_a_user_who_may_not_use_jetstream_hears_what_is_not_permitted(tmp_path: Path) -> None:
    may = 'permissions { publish: "orders.>", subscribe: "_INBOX.>" }'
    said = meet(
        tmp_path,
        [f"authorization {{ users: [ {{ user: ana, password: correct-horse, {may} }} ] }}"],
        username="ana",
        password="correct-horse",
    )
    assert "does not permit what isthmus has to do" in said
    assert "$JS.API.INFO" in said


# TLS ------------------------------------------------------------------------------------------------------------------


def tls(authority: Authority, host: str = "localhost", verify: bool = False) -> list[str]:
    files = authority.issue(f"server-{host}", host=host)
    parts = [f"cert_file: {json.dumps(str(files.certificate))}", f"key_file: {json.dumps(str(files.key))}"]
    if verify:
        parts += [f"ca_file: {json.dumps(str(authority.path))}", "verify: true"]
    return ["tls { " + ", ".join(parts) + " }"]


@pytest.mark.parametrize("scheme", ["tls", "nats"])
def test_a_server_that_wants_tls_gets_it_by_either_scheme(tmp_path: Path, scheme: str) -> None:
    authority = Authority(tmp_path)
    said = meet(tmp_path, tls(authority), scheme, "localhost", ca_file=str(authority.path))
    assert NO_STREAM in said


def test_a_server_that_wants_a_certificate_gets_ours(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    ours = authority.issue("ours")
    lines = tls(authority, verify=True)
    files = {"certificate_file": str(ours.certificate), "key_file": str(ours.key), "ca_file": str(authority.path)}
    assert NO_STREAM in meet(tmp_path / "a", lines, "tls", "localhost", **files)
    assert NO_STREAM not in meet(tmp_path / "b", lines, "tls", "localhost", ca_file=str(authority.path))


def test_a_server_with_the_wrong_certificate_is_not_talked_to(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    said = meet(tmp_path / "a", [*tls(authority), *USER], "nats", "localhost", ca_file=str(other.path))
    assert "certificate that cannot be trusted" in said
    said = meet(tmp_path / "b", tls(authority, "elsewhere"), "tls", "localhost", ca_file=str(authority.path))
    assert "certificate that cannot be trusted" in said


def test_tls_that_a_server_does_not_have_is_insisted_on(tmp_path: Path) -> None:
    assert "has no TLS" in meet(tmp_path, [], "tls", "localhost")


def test_files_that_are_no_certificates_are_named(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    (tmp_path / "empty.pem").write_text("")
    said = meet(tmp_path, tls(authority), "tls", "localhost", ca_file=str(tmp_path / "empty.pem"))
    assert "Look at ca-file" in said


# Credentials ----------------------------------------------------------------------------------------------------------


class Key:
    """An nkey: an ed25519 key with a letter for what it is of."""

    def __init__(self, kind: str) -> None:
        self._key = Ed25519PrivateKey.generate()
        self._kind = {"O": 14 << 3, "A": 0, "U": 20 << 3}[kind]
        raw = self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.public = self._encode(bytes([self._kind]) + raw)

    @staticmethod
    def _encode(raw: bytes) -> str:
        return b32encode(raw + binascii.crc_hqx(raw, 0).to_bytes(2, "little")).decode().rstrip("=")

    @property
    def seed(self) -> str:
        raw = self._key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
        return self._encode(bytes([18 << 3 | self._kind >> 5, (self._kind & 31) << 3]) + raw)

    def signed(self, name: str, subject: str, nats: dict[str, object]) -> str:
        """A JWT that says `nats` of the key `subject`."""
        claims = {"jti": "", "iat": 1, "iss": self.public, "name": name, "sub": subject, "nats": nats | {"version": 2}}
        claims["jti"] = b32encode(hashlib.sha256(json.dumps(claims).encode()).digest()).decode().rstrip("=")
        text = ".".join(
            urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
            for part in ({"typ": "JWT", "alg": "ed25519-nkey"}, claims)
        )
        return f"{text}.{urlsafe_b64encode(self._key.sign(text.encode())).decode().rstrip('=')}"


ANY = -1
LIMITS = {"subs": ANY, "data": ANY, "payload": ANY, "imports": ANY, "exports": ANY, "wildcards": True, "conn": ANY}
LIMITS |= {"leaf": ANY, "mem_storage": ANY, "disk_storage": ANY, "streams": ANY, "consumer": ANY}


def credentials(jwt: str, seed: str) -> str:
    return (
        f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
        f"************************* IMPORTANT *************************\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )


def test_credentials_sign_what_the_server_asks_and_keep_the_seed(tmp_path: Path) -> None:
    operator, system, account, user, stranger = Key("O"), Key("A"), Key("A"), Key("U"), Key("U")
    claims = {"type": "account", "limits": LIMITS}
    jwts = {
        key.public: operator.signed(name, key.public, claims) for name, key in (("SYS", system), ("ORDERS", account))
    }
    lines = [
        f"operator: {operator.signed('op', operator.public, {'type': 'operator', 'system_account': system.public})}",
        f"system_account: {system.public}",
        "resolver: MEMORY",
        "resolver_preload {",
        *(f"  {public}: {jwt}" for public, jwt in jwts.items() if public == account.public),
        f"  {system.public}: {operator.signed('SYS', system.public, {'type': 'account'})}",
        "}",
    ]
    jwt = account.signed("ana", user.public, {"type": "user", "subs": ANY, "data": ANY, "payload": ANY})
    file = tmp_path / "ana.creds"
    file.write_text(credentials(jwt, user.seed))
    assert NO_STREAM in meet(tmp_path / "a", lines, credentials_file=str(file))
    file.write_text(credentials(jwt, stranger.seed))
    said = meet(tmp_path / "b", lines, credentials_file=str(file))
    assert "does not let us in" in said
    assert stranger.seed not in said
    assert jwt not in said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has not both"),
        (credentials("a.b.c", ""), "has not both"),
        (credentials("a.b.c", "SUAM"), "damaged"),
        (credentials("a.b.c", "!" * 58), "damaged"),
        (credentials("a.b.c", Key("A").seed), "not that of a user"),
    ],
)
def test_a_credentials_file_that_is_none_is_refused_in_words(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "bad.creds"
    file.write_text(text)
    said = meet(tmp_path, [], credentials_file=str(file))
    assert words in said
    assert "!!!" not in said


def test_a_credentials_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert "none.creds cannot be read" in meet(tmp_path, [], credentials_file=str(tmp_path / "none.creds"))

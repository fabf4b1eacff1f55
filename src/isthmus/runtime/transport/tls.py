"""TLS for links: who we are, and whom we let in.

Both ends show a certificate of one authority. A certificate names its gateway by a URI among its subject alternative
names, `isthmus://SYSTEM/GATEWAY`: host names say nothing about gateways, and a certificate that the same authority
gave to a web server must not open a link. TLS 1.3 only; nothing is resumed, so every connection shows its certificate.

No text made here holds more than file names, certificate names and OpenSSL's own reasons.
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isthmus.core.ids import ProcessName
from isthmus.runtime.link.wire import LinkError
from isthmus.runtime.problems import RuntimeProblem

log = logging.getLogger(__name__)

_SCHEME = "isthmus://"


class TlsUnusable(RuntimeProblem):
    """A certificate, key or authority cannot be used."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"{path} cannot be used for TLS: {reason}. Links need three PEM files: a certificate whose subject "
            f"alternative names hold the URI {_SCHEME}SYSTEM/GATEWAY, its key, not encrypted, and the authority's own "
            f"certificate, the same at both ends."
        )
        self.path = path


class LinkTls:
    """The files of one gateway. `allow` are the names (`valencia/g1`) that a peer may have; none: the link's far end.

    The files are read at once, so that mistakes show at the start, and read again for the next connection after they
    have changed: a renewed certificate needs no restart. Open connections stay open.
    """

    def __init__(
        self,
        certificate: str | os.PathLike[str],
        key: str | os.PathLike[str],
        authority: str | os.PathLike[str],
        allow: Sequence[str] = (),
    ) -> None:
        self.certificate = Path(certificate)
        self.key = Path(key)
        self.authority = Path(authority)
        self.allow = tuple(allow)
        self._stamp = self._stamp_now()
        self._contexts = self._load(ssl.PROTOCOL_TLS_CLIENT), self._load(ssl.PROTOCOL_TLS_SERVER)

    def __repr__(self) -> str:
        return (
            f"LinkTls(certificate={str(self.certificate)!r}, authority={str(self.authority)!r}, allow={self.allow!r})"
        )

    def dialling(self) -> ssl.SSLContext:
        self._refresh()
        return self._contexts[0]

    def listening(self) -> ssl.SSLContext:
        self._refresh()
        return self._contexts[1]

    def check(self, certificate: Mapping[str, Any] | None, far: ProcessName) -> None:
        """Let the holder of this certificate be the far end of a link to `far`, or raise `LinkError`.

        That it was signed by the authority, and is valid today, TLS has seen to before.
        """
        allowed = {_SCHEME + name for name in self.allow or (str(far),)}
        names = [name for kind, name in (certificate or {}).get("subjectAltName", ()) if kind == "URI"]
        if allowed.isdisjoint(names):
            shown = ", ".join(names[:3]) or f"nobody ({_SCHEME}… is missing)"
            raise LinkError(f"its certificate is for {shown}, not for {', '.join(sorted(allowed))}")

    def _load(self, protocol: int) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        # Names are checked by `check`, at both ends: a gateway is not called by its host.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        if protocol == ssl.PROTOCOL_TLS_SERVER:
            context.num_tickets = 0
        for path in (self.certificate, self.key, self.authority):
            try:
                path.read_bytes()
            except OSError as error:
                raise TlsUnusable(path, error.strerror or "it cannot be read") from None
        try:
            context.load_verify_locations(self.authority)
        except (ssl.SSLError, OSError) as error:
            raise TlsUnusable(self.authority, f"no certificate of an authority in it ({reason_of(error)})") from None
        try:
            context.load_cert_chain(self.certificate, self.key, password=_no_password)
        except _Encrypted:
            raise TlsUnusable(self.key, "the key is encrypted, and there is nobody to ask for the password") from None
        except (ssl.SSLError, OSError) as error:
            raise TlsUnusable(
                self.certificate, f"certificate and key do not work together ({reason_of(error)})"
            ) from None
        return context

    def _refresh(self) -> None:
        stamp = self._stamp_now()
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._contexts = self._load(ssl.PROTOCOL_TLS_CLIENT), self._load(ssl.PROTOCOL_TLS_SERVER)
            except TlsUnusable as problem:
                log.warning("TLS goes on with the former files: %s", problem)

    def _stamp_now(self) -> tuple[object, ...]:
        stamps: list[object] = []
        for path in (self.certificate, self.key, self.authority):
            try:
                status = path.stat()
                stamps.append((status.st_mtime_ns, status.st_size, status.st_ino))
            except OSError:
                stamps.append(None)
        return tuple(stamps)


def reason_of(error: BaseException) -> str:
    """Why there is no connection, or why a file could not be used, in a few words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate was not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        words = (error.reason or "TLS failed").replace("_", " ").lower()
        return f"it does not accept our certificate: {words}" if " alert " in f" {words} " else words
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    if isinstance(error, ConnectionError):
        return "it hung up"
    return str(error) or type(error).__name__


class _Encrypted(Exception):
    pass


def _no_password() -> str:
    """Refuse a key with a password: OpenSSL would ask for it at the terminal."""
    raise _Encrypted

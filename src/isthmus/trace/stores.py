"""Hadoop's settings of stores, and the file systems of pyarrow that they stand for: the one mapping between the two.

Spark is told of a store by Hadoop's settings, and so are we; nothing has to be said twice. What a setting does not say
the environment may, and what neither says is left to the library of the store: profiles, the role of a machine.

| Hadoop's setting | environment | what it is |
|---|---|---|
| `fs.s3a.access.key`, `fs.s3a.secret.key`, `fs.s3a.session.token` | `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, \
`AWS_SESSION_TOKEN` | the keys; all three from one side |
| `fs.s3a.endpoint` | `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL` | host and port, or a URL |
| `fs.s3a.endpoint.region` | `AWS_REGION`, `AWS_DEFAULT_REGION` | the region |
| `fs.s3a.connection.ssl.enabled` | | `false`: http, where the endpoint does not say it |
| `fs.s3a.path.style.access` | | `false`: the bucket is in the host's name; else, with an endpoint, in the path |
| `fs.s3a.aws.credentials.provider` | | one named `Anonymous…`: no keys at all |
| `fs.azure.account.key.ACCOUNT.dfs.core.windows.net` | | the key of an account |

For one bucket, `fs.s3a.bucket.NAME.…` wins over `fs.s3a.…`, as in Hadoop. Settings belong to a process: a driver takes
those of its session, and every task those of its driver. They hold secrets, so they are never printed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any

CONNECT_SECONDS = 3
SILENT_SECONDS = 6
ATTEMPTS = 3
"""A store that is away, or takes calls and says nothing, is given up after some twenty seconds."""

_KEYS = {
    "fs.s3a.access.key": ("AWS_ACCESS_KEY_ID",),
    "fs.s3a.secret.key": ("AWS_SECRET_ACCESS_KEY",),
    "fs.s3a.session.token": ("AWS_SESSION_TOKEN",),
}
_WHERE = {
    "fs.s3a.endpoint": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "fs.s3a.endpoint.region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
}
NAMES = (
    *_KEYS,
    *_WHERE,
    "fs.s3a.connection.ssl.enabled",
    "fs.s3a.path.style.access",
    "fs.s3a.aws.credentials.provider",
)
PREFIXES = ("fs.s3a.bucket.", "fs.azure.account.key.")
"""The settings that are used; all others of a store are Spark's business."""


class StoreSettings:
    """Settings by the names that Hadoop has for them."""

    def __init__(self, given: Mapping[str, str] | None = None, environment: Mapping[str, str] | None = None) -> None:
        """Take what concerns stores out of some settings, with or without `spark.hadoop.` before their names."""
        named = {name.removeprefix("spark.hadoop."): value for name, value in (given or {}).items()}
        self._known = {
            name: value for name, value in named.items() if value and (name in NAMES or name.startswith(PREFIXES))
        }
        wanted = _WHERE if "fs.s3a.access.key" in self._known else _WHERE | _KEYS
        for name, variables in wanted.items():
            said = [value for each in variables if (value := (environment or {}).get(each))]
            if said:
                self._known.setdefault(name, said[0])

    def __repr__(self) -> str:
        return f"StoreSettings({', '.join(sorted(self._known))})"  # names only: values may be secrets

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoreSettings) and self._known == other._known

    def __hash__(self) -> int:
        return hash(frozenset(self._known.items()))

    def get(self, name: str, bucket: str = "") -> str | None:
        """A setting, for a bucket if there is one for it."""
        own = name.replace("fs.s3a.", f"fs.s3a.bucket.{bucket}.", 1)
        return self._known.get(own) or self._known.get(name)


_current: StoreSettings | None = None
_systems: dict[tuple[str, str], Any] = {}


def use(settings: StoreSettings) -> None:
    """From now on this process reaches stores with these settings."""
    global _current  # noqa: PLW0603 - settings are of a process, like its environment
    if settings != _current:
        _current = settings
        _systems.clear()


def file_system(scheme: str, authority: str) -> Any:
    """The file system of pyarrow for a store, by the beginning of an address: `s3a` and a bucket, for example."""
    key = scheme, authority
    if key not in _systems:
        _systems[key] = _MAKERS[scheme](import_module("pyarrow.fs"), authority, _settings())
    return _systems[key]


def endpoint_of(bucket: str) -> str:
    """Where the store of a bucket is, if anybody says it; for people to read."""
    return _settings().get("fs.s3a.endpoint", bucket) or ""


def _settings() -> StoreSettings:
    return StoreSettings({}, os.environ) if _current is None else _current


def _s3(fs: Any, bucket: str, settings: StoreSettings) -> Any:
    def said(name: str) -> str | None:
        return settings.get(f"fs.s3a.{name}", bucket)

    options: dict[str, Any] = {
        "connect_timeout": CONNECT_SECONDS,
        "request_timeout": SILENT_SECONDS,
        "retry_strategy": fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
    }
    if "Anonymous" in (said("aws.credentials.provider") or ""):
        options["anonymous"] = True
    elif said("access.key"):
        options |= {"access_key": said("access.key"), "secret_key": said("secret.key") or ""}
        if said("session.token"):
            options["session_token"] = said("session.token")
    endpoint = said("endpoint")
    if endpoint:
        scheme, _, host = endpoint.rpartition("://")
        options["endpoint_override"] = host.rstrip("/")
        options["scheme"] = scheme or ("http" if (said("connection.ssl.enabled") or "").lower() == "false" else "https")
        options["force_virtual_addressing"] = (said("path.style.access") or "true").lower() == "false"
        options["region"] = said("endpoint.region") or "us-east-1"
    elif said("endpoint.region"):
        options["region"] = said("endpoint.region")
    return fs.S3FileSystem(**options)


def _hdfs(fs: Any, authority: str, settings: StoreSettings) -> Any:
    host, _, port = authority.partition(":")
    return fs.HadoopFileSystem(host or "default", int(port or (8020 if host else 0)))


def _azure(fs: Any, authority: str, settings: StoreSettings) -> Any:
    account = authority.rpartition("@")[2]
    key = settings.get(f"fs.azure.account.key.{account}")
    return fs.AzureFileSystem(account.partition(".")[0], **({"account_key": key} if key else {}))


_MAKERS = {"s3a": _s3, "hdfs": _hdfs, "abfss": _azure}

SCHEMES = (*_MAKERS, "file")

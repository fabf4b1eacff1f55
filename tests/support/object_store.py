"""A pytest plugin: a server of the S3 protocol on loopback, for tests that read and write at addresses.

It checks keys: only those of `ObjectStore.settings` may do anything.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.request import Request, urlopen

import pytest

_EVERYTHING = {"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "*", "Resource": "*"}}
_REGION = "us-east-1"


class ObjectStore(NamedTuple):
    """A store with a bucket, as its users know it."""

    endpoint: str
    key: str
    secret: str
    bucket: str = "isthmus"

    @property
    def address(self) -> str:
        return f"s3a://{self.bucket}"

    @property
    def settings(self) -> dict[str, str]:
        """As Spark is told."""
        return {
            "spark.hadoop.fs.s3a.endpoint": self.endpoint,
            "spark.hadoop.fs.s3a.access.key": self.key,
            "spark.hadoop.fs.s3a.secret.key": self.secret,
            "spark.hadoop.fs.s3a.path.style.access": "true",
        }

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_REGION": _REGION,
        }

    def client(self) -> Any:
        """The library of the store itself: a second opinion about what is in it."""
        return _client("s3", self.endpoint, self.key, self.secret)

    def put(self, name: str, data: bytes) -> str:
        """Put a file there and give its address."""
        self.client().put_object(Bucket=self.bucket, Key=name, Body=data)
        return f"{self.address}/{name}"

    def remove(self, below: str) -> None:
        client = self.client()
        for name in self.names(below):
            client.delete_object(Bucket=self.bucket, Key=name)

    def names(self, below: str = "") -> list[str]:
        listed = self.client().list_objects_v2(Bucket=self.bucket, Prefix=below)
        return [each["Key"] for each in listed.get("Contents", ())]


def _client(service: str, endpoint: str, key: str, secret: str) -> Any:
    import boto3

    return boto3.client(
        service, endpoint_url=endpoint, aws_access_key_id=key, aws_secret_access_key=secret, region_name=_REGION
    )


@pytest.fixture(scope="session")
def object_store() -> Iterator[ObjectStore]:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    try:
        iam = _client("iam", endpoint, "nobody", "nothing")
        iam.create_user(UserName="tests")
        iam.put_user_policy(UserName="tests", PolicyName="all", PolicyDocument=json.dumps(_EVERYTHING))
        made = iam.create_access_key(UserName="tests")["AccessKey"]
        store = ObjectStore(endpoint, made["AccessKeyId"], made["SecretAccessKey"])
        store.client().create_bucket(Bucket=store.bucket)
        # From now on keys are checked.
        plain = {"Content-Type": "text/plain"}
        urlopen(Request(f"{endpoint}/moto-api/reset-auth", b"0", plain, method="POST"), timeout=30).close()
        yield store
    finally:
        server.stop()


@pytest.fixture
def away() -> Iterator[str]:
    """Where a store was and is no more: a port that answers nobody."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{reserved.getsockname()[1]}"

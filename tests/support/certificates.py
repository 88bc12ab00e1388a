"""A certificate authority for the tests, contexts that trust it, and its files for programs that need files."""

import dataclasses
import functools
import ssl
from pathlib import Path
from typing import Any

import pytest

HOST = "localhost"  # what the server's certificate is for
OTHER_HOST = "other.example"  # what the certificate of other_server is for, which is asked for by SNI
CLIENT = "client@example.org"  # the subject of the client's certificate

TLS_1_2, TLS_1_3 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
VERSIONS = [TLS_1_2, TLS_1_3]
every_version = pytest.mark.parametrize("version", VERSIONS, ids=["TLS 1.2", "TLS 1.3"])


WITHOUT_TRUSTME = "trustme is not installed: the cryptography it is made on has no wheel for this Python"


@dataclasses.dataclass(frozen=True)
class Files:
    """PEM files: the authority's certificate, and one file each with the key and certificates of server and client."""

    authority: str
    server: str
    client: str


class Certificates:
    """The certificates that one authority has issued. Contexts are new each time, because tests change them."""

    def __init__(self) -> None:
        trustme = pytest.importorskip("trustme", reason=WITHOUT_TRUSTME)
        self.authority = trustme.CA()
        self.server = self.authority.issue_cert(HOST, "127.0.0.1", "::1")
        self.other_server = self.authority.issue_cert(OTHER_HOST)
        self.client = self.authority.issue_cert(CLIENT)

    def server_context(
        self, version: ssl.TLSVersion | None = None, *, other: bool = False, asks_for_certificate: bool = False
    ) -> ssl.SSLContext:
        """A server's context, with the certificate for HOST or for OTHER_HOST; it may require one of the client."""
        context = _only(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), version)
        (self.other_server if other else self.server).configure_cert(context)
        if asks_for_certificate:
            context.verify_mode = ssl.CERT_REQUIRED
            self.authority.configure_trust(context)
        return context

    def client_context(
        self, version: ssl.TLSVersion | None = None, *, has_certificate: bool = False, trusts: bool = True
    ) -> ssl.SSLContext:
        """A client's context, which checks the host's name. Unless it `trusts` this authority, it trusts none."""
        context = _only(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), version)
        if trusts:
            self.authority.configure_trust(context)
        if has_certificate:
            self.client.configure_cert(context)
        return context

    def context(self, side: str, version: ssl.TLSVersion | None = None, **options: Any) -> ssl.SSLContext:
        return (self.server_context if side == "server" else self.client_context)(version, **options)

    def write_files(self, folder: Path) -> Files:
        names = {name: folder / f"{name}.pem" for name in ("authority", "server", "client")}
        self.authority.cert_pem.write_to_path(names["authority"])
        self.server.private_key_and_cert_chain_pem.write_to_path(names["server"])
        self.client.private_key_and_cert_chain_pem.write_to_path(names["client"])
        return Files(**{name: str(path) for name, path in names.items()})


def _only(context: ssl.SSLContext, version: ssl.TLSVersion | None) -> ssl.SSLContext:
    if version is not None:
        context.minimum_version = context.maximum_version = version
    return context


@functools.cache
def issued() -> Certificates:
    """The certificates of this run. Making keys takes a while, so it is done once, and only when a test needs them."""
    return Certificates()


@pytest.fixture(scope="session", name="certificates")
def _certificates() -> Certificates:
    return issued()


@pytest.fixture(scope="session", name="certificate_files")
def _certificate_files(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Files:
    return certificates.write_files(tmp_path_factory.mktemp("certificates"))

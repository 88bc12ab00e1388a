"""The certificate of the benchmark's TLS servers: for the loopback address, new for each row.

Its key is ECDSA on P-256, the most common kind on the web. Certificate and key are in one file: the servers present it,
and the load generator trusts it.
"""

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

SECONDS_TO_MAKE = 100
CERTIFICATE = (
    *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"),
    *("-subj", "/CN=hotloop benchmark", "-addext", "subjectAltName=IP:127.0.0.1"),
)


def unavailable() -> str | None:
    """The reason why no loop can have a TLS server on this machine; None if there is none."""
    if importlib.util.find_spec("_ssl") is None:
        return "this Python has no ssl module"
    if shutil.which("openssl") is None:
        return "the certificate is made by the openssl command, which is not installed"
    return None


def make(path: str) -> None:
    """Write a new certificate and its key to the file; RuntimeError with what openssl says if it cannot."""
    key = f"{path}.key"
    command = ["openssl", *CERTIFICATE, "-keyout", key, "-out", path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_TO_MAKE, check=False)
    if done.returncode:
        raise RuntimeError(f"openssl made no certificate: {done.stderr.strip()[-200:]!r}")
    with open(path, "a", encoding="ascii") as certificate:
        certificate.write(Path(key).read_text(encoding="ascii"))
    os.unlink(key)


def server_context(path: str) -> "ssl.SSLContext":
    """The context that most programs make: TLS 1.3 with any client that knows it.

    Call it in the worker, after the loop's module is loaded: one of the loops has to see the file of load_cert_chain().
    """
    import ssl

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(path)
    return context

"""Who the TLS servers of the benchmark are: a certificate of this machine's loopback address, made for each row.

Its key is ECDSA on P-256, as most of the web's are now. Certificate and key are in one file, which the load generator
trusts and the servers show.
"""

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

SECONDS_TO_MAKE = 30
CERTIFICATE = (
    *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"),
    *("-subj", "/CN=hotloop benchmark", "-addext", "subjectAltName=IP:127.0.0.1"),
)


def unavailable() -> str | None:
    """Why there can be no TLS server on this machine, on no loop, if so."""
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
    """As programs make it: TLS 1.3 with any client that knows it. To be called in the worker, after the loop's module
    is loaded: one of the loops must see which file the certificate comes from."""
    import ssl

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(path)
    return context

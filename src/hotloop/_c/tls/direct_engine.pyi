from typing import final

from hotloop._c.tls.engine import TlsEngine

@final
class DirectEngine(TlsEngine): ...

def why_openssl_is_not_called() -> str | None: ...

# Made by Cython: the functions that other compiled modules cimport.
__pyx_capi__: dict[str, object]
__test__: dict[str, str]

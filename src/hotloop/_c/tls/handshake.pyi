from typing_extensions import disjoint_base

from hotloop._c.tls.sender import TlsSender

@disjoint_base
class TlsHandshake(TlsSender): ...

# Made by Cython: the functions that other compiled modules cimport.
__pyx_capi__: dict[str, object]
__test__: dict[str, str]

from typing_extensions import disjoint_base

from hotloop._c.tls.sender import TlsSender

@disjoint_base
class TlsHandshake(TlsSender): ...

__test__: dict[str, str]

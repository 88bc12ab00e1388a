from typing_extensions import disjoint_base

from hotloop._c.tls.receiver import TlsReceiver

@disjoint_base
class TlsSender(TlsReceiver): ...

__test__: dict[str, str]

from typing_extensions import disjoint_base

from hotloop._c.delivery import ByteProtocol

@disjoint_base
class TlsReceiver(ByteProtocol): ...

__test__: dict[str, str]

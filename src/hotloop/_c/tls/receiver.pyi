from typing_extensions import disjoint_base

from hotloop._c.transports.protocol_kind import ByteProtocol

@disjoint_base
class TlsReceiver(ByteProtocol):
    def get_buffer(self, sizehint: int) -> bytearray: ...
    def buffer_updated(self, nbytes: int) -> None: ...

__test__: dict[str, str]

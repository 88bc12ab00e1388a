from typing import final

from hotloop._c.tls.engine import TlsEngine

@final
class MemoryEngine(TlsEngine): ...

__test__: dict[str, str]

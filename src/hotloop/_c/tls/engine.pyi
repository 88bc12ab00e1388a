from typing_extensions import disjoint_base

@disjoint_base
class TlsEngine: ...

__test__: dict[str, str]

from typing_extensions import disjoint_base

@disjoint_base
class TaskCore: ...

__test__: dict[str, str]

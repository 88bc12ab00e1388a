import asyncio

# What the class Condition has in C; not for programs.
class ConditionFields:
    locked: object
    acquire: object
    release: object

Condition = asyncio.Condition

__test__: dict[str, str]

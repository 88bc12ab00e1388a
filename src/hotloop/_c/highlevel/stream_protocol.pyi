import asyncio

# What the class StreamReaderProtocol has in C; not for programs.
class StreamReaderProtocolFields: ...

StreamReaderProtocol = asyncio.StreamReaderProtocol

# Made by Cython: the functions that other compiled modules cimport.
__pyx_capi__: dict[str, object]
__test__: dict[str, str]

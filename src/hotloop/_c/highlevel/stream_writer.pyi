import asyncio

# What the class StreamWriter has in C; not for programs.
class StreamWriterFields: ...

StreamWriter = asyncio.StreamWriter
open_connection = asyncio.open_connection
start_server = asyncio.start_server
open_unix_connection = asyncio.open_unix_connection
start_unix_server = asyncio.start_unix_server

__test__: dict[str, str]

from typing import final

from hotloop._c.transports.stream_receiver import StreamReceiver

@final
class StreamTransport(StreamReceiver): ...

# Made by Cython: the functions that other compiled modules cimport.
__pyx_capi__: dict[str, object]
__test__: dict[str, str]

"""Memoryviews that asyncio would take for views of single bytes."""

from typing import Any


def as_single_bytes(data: Any) -> Any:
    """The data to write, as bytes if it is a memoryview with larger items: asyncio's transports drop as many items as
    the kernel has taken bytes. A view with gaps stays as it is, for the kernel to refuse."""
    if isinstance(data, memoryview) and data.ndim and data.c_contiguous and (data.itemsize != 1 or data.ndim != 1):
        return data.tobytes()
    return data


def view_of_bytes(data: Any) -> Any:
    """A view of the data's single bytes, which a socket's send() counts. The data itself if there is none: the send()
    of a program's socket may take anything."""
    try:
        view = memoryview(data)
        return view.cast("B") if view.ndim and view.nbytes and view.c_contiguous else view
    except TypeError:
        return data

"""What asyncio's own writelines() of this Python does with items that are false."""

from types import SimpleNamespace

from hotloop._asyncio.internals import selector_events


def skips_falsy_items() -> bool:
    """Whether it skips them before it looks whether they are bytes-like: since CPython 3.14.10 (gh-155888)."""
    transport = SimpleNamespace(_eof=False, _empty_waiter=None, _conn_lost=0, _buffer=[])
    try:
        selector_events._SelectorSocketTransport.writelines(transport, [None])
    except (TypeError, AttributeError):
        # AttributeError: the transport has other attributes there.
        return False
    return True


SKIPS_FALSY_ITEMS = skips_falsy_items()

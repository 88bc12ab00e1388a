"""How asyncio's create_task() names the tasks of a task factory. That differs between versions, even between patch
releases: the factory gets the name, or the task does, after it was made; and a task without a name may be called None.
"""

from asyncio import base_events
from typing import Any

from hotloop._asyncio.own_create_task import create_task_is_asyncios

EagerNames = tuple[bool, bool]


class _Recorder:
    """A loop, for create_task(), and the task that its factory makes."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def _check_closed(self) -> None:
        pass

    def _task_factory(self, _loop: object, _coro: object, **keywords: object) -> object:
        self.calls.append({name: value for name, value in keywords.items() if value is not None})
        return self

    def set_name(self, name: object) -> None:
        self.calls.append(name)


def _calls(**keywords: Any) -> list[object]:
    recorder: Any = _Recorder()
    base_events.BaseEventLoop.create_task(recorder, recorder, **keywords)
    return recorder.calls  # type: ignore[no-any-return]


def eager_names() -> EagerNames | None:
    """Whether a factory gets the name, and whether a task that was given none is named None afterwards. None for a
    create_task() that does neither of what asyncio's have done so far, and for one that is not asyncio's: a tracer that
    has replaced it would be called with no coroutine."""
    if not create_task_is_asyncios():
        return None
    without_name, with_name = _calls(), _calls(name="name", context="context")
    if with_name == [{"name": "name", "context": "context"}] and without_name == [{}]:
        return True, False
    if with_name == [{"context": "context"}, "name"] and without_name in ([{}], [{}, None]):
        return False, without_name == [{}, None]
    return None

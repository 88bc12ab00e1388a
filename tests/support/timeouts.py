"""For tests of asyncio's timeouts: outcomes that can be compared, and the timers that are left."""


async def outcome(awaitable):
    """What awaiting gives, to be compared with another's."""
    try:
        return await awaitable
    except BaseException as error:
        return described(error)


def described(error, depth=4):
    """All of an exception that can be compared, with those that it comes from."""
    if error is None or depth == 0:
        return None
    return (
        type(error).__name__,
        text_of(error),
        described(error.__cause__, depth - 1),
        described(error.__context__, depth - 1),
        error.__suppress_context__,
        [described(each, depth - 1) for each in getattr(error, "exceptions", ())],
    )


def call(function, *arguments, **keywords):
    """What a call gives, to be compared with another's."""
    try:
        return function(*arguments, **keywords)
    except BaseException as error:
        return type(error).__name__, text_of(error)


def text_of(error):
    # An attribute that is missing is one of a class with __slots__, whose full name Python tells since 3.12.
    return str(error).replace("'asyncio.timeouts.Timeout'", "'Timeout'")


def pending_timers(loop):
    return len([handle for handle in loop._scheduled if not handle.cancelled()])

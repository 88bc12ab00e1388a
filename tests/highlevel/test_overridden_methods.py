"""Subclasses of the compiled classes: what a subclass, an object or a later patch replaces is called as asyncio does.

Each test does the same with asyncio's own classes and with the compiled ones and compares every call, in order.
"""

import asyncio
import collections
import functools
import sys
import typing

import hypothesis
import pytest
from hypothesis import strategies
from support.comparing import description, on_both_loops, outcome_of, same_on_both, turns

pytestmark = on_both_loops

QUEUES = ("Queue", "PriorityQueue", "LifoQueue")
LOCKS = ("Lock", "Semaphore", "BoundedSemaphore")
KINDS = (*QUEUES, *LOCKS, "Event")
METHODS = {
    kind: sorted(
        name
        for name in dir(getattr(asyncio, kind))
        if callable(getattr(getattr(asyncio, kind), name)) and (not name.startswith("__") or name.startswith("__a"))
    )
    for kind in KINDS
}


def watched(cls, name, log):
    """The method `name` of `cls`, with each call written to `log`."""
    original = getattr(cls, name)

    def method(self, *arguments):
        log.append((name, *(argument for argument in arguments if isinstance(argument, int))))
        return original(self, *arguments)

    return method


async def tried(log, action, *arguments):
    try:
        result = action(*arguments)
        result = await result if asyncio.iscoroutine(result) else result
    except AttributeError:
        result = "AttributeError"  # a C field has another text
    except Exception as error:
        result = type(error).__name__, str(error)
    except asyncio.CancelledError:
        log.append((getattr(action, "__name__", "?"), "cancelled"))
        raise
    log.append((getattr(action, "__name__", "?"), result))


async def used(made, log):
    """Use a queue, a lock or an event in each way that it has, with tasks that wait and one that is cancelled."""
    if isinstance(made, asyncio.Queue):
        await use_queue(made, log)
    elif isinstance(made, asyncio.Event):
        await use_event(made, log)
    else:
        await use_lock(made, log)
    return log


async def use_queue(queue, log):
    async def worker():
        for _ in range(2):
            await tried(log, queue.get)
            await tried(log, queue.task_done)

    for item in (3, 1, 2):
        await tried(log, queue.put, item) if item != 2 else await tried(log, queue.put_nowait, item)
    for name in ("full", "empty", "qsize", "get_nowait"):
        await tried(log, getattr(queue, name))
    tasks = [asyncio.create_task(worker()) for _ in range(3)]
    await turns(2)
    tasks[2].cancel()
    tasks += [asyncio.create_task(tried(log, queue.put, item)) for item in (8, 7, 6, 5, 4)]
    await turns(1)
    tasks[-1].cancel()
    tasks.append(asyncio.create_task(tried(log, queue.join)))
    await turns(3)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def use_lock(lock, log):
    async def worker():
        await tried(log, lock.acquire)
        await turns(2)
        await tried(log, lock.release)
        try:
            async with lock:
                log.append("inside")
        except Exception as error:
            log.append(type(error).__name__)

    tasks = [asyncio.create_task(worker()) for _ in range(3)]
    await turns(1)
    await tried(log, lock.locked)
    tasks[1].cancel()
    await turns(8)
    await tried(log, lock.release)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def use_event(event, log):
    async def worker():
        await tried(log, event.wait)

    for name in ("is_set", "set", "is_set", "wait", "clear"):
        await tried(log, getattr(event, name))
    tasks = [asyncio.create_task(worker()) for _ in range(3)]
    await turns(1)
    tasks[0].cancel()
    await tried(log, event.set)
    await turns(2)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def made(cls):
    """An object of the class: a queue of three places, a semaphore of one."""
    return cls(3) if issubclass(cls, asyncio.Queue) else cls()


PLACES = [
    "subclass", "grandchild", "base before", "base after", "object", "object before", "patched class", "patched object",
    "patched and restored",
]  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", KINDS)
def test_each_method_replaced(loop, kind, place):
    async def run(module, name):
        log = []
        cls = getattr(module, kind)
        own = type("Own", (cls,), {})
        method = watched(cls, name, log)
        other = type("Other", (), {name: method})
        if place == "subclass":
            return await used(made(type("Own", (cls,), {name: method})), log)
        if place == "grandchild":
            return await used(made(type("Grandchild", (type("Own", (cls,), {name: method}),), {})), log)
        if place == "base before":
            return await used(made(type("Own", (other, cls), {})), log)
        if place == "base after":
            return await used(made(type("Own", (cls, other), {})), log)
        changed = own.__new__(own)
        if place == "object before":
            setattr(changed, name, method.__get__(changed))
        changed.__init__(*([3] if kind in QUEUES else []))
        if place == "object":
            setattr(changed, name, method.__get__(changed))
        elif place != "object before":
            await used(changed, log)
            changed = made(own)
            if place == "patched object":
                setattr(changed, name, method.__get__(changed))
            else:
                setattr(own, name, method)
        if place == "patched and restored":
            await used(changed, log)
            delattr(own, name)
            changed = made(own)
        return await used(changed, log)

    for name in METHODS[kind]:
        same_on_both(loop, functools.partial(run, name=name))


@pytest.mark.parametrize("bases", [("PriorityQueue", "LifoQueue"), ("LifoQueue", "PriorityQueue")])
def test_two_compiled_bases(loop, bases):
    async def run(module):
        return await used(made(type("Both", tuple(getattr(module, name) for name in bases), {})), [])

    same_on_both(loop, run)


@pytest.mark.parametrize("name", ["acquire", "locked"])
def test_a_class_between_two_compiled_ones(loop, name):
    async def run(module):
        log = []
        between = type("Between", (module.Semaphore,), {name: watched(module.Semaphore, name, log)})
        return await used(type("Both", (module.BoundedSemaphore, between), {})(), log)

    same_on_both(loop, run)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("special", ["__getattribute__", "__getattr__", "__setattr__", "__delattr__"])
@pytest.mark.parametrize("later", [False, True])
def test_access_to_attributes_is_watched(loop, kind, special, later):
    async def run(module):
        log = []
        cls = getattr(module, kind)

        def access(self, name, *value):
            if not name.startswith("__"):
                log.append((special, name))
            if special == "__getattr__":
                raise AttributeError(name)
            return getattr(object, special)(self, name, *value)

        own = type("Own", (cls,), {} if later else {special: access})
        subject = made(own)
        if later:
            await used(subject, log)
            subject = made(own)
            setattr(own, special, access)
        return await used(subject, log)

    same_on_both(loop, run)


FIELDS = {
    "Queue": ["_queue", "_getters", "_putters", "_maxsize", "_unfinished_tasks", "_finished"],
    "Lock": ["_waiters", "_locked"],
    "Semaphore": ["_waiters", "_value"],
    "BoundedSemaphore": ["_value", "_bound_value"],
    "Event": ["_waiters", "_value"],
}
NAMED_FIELDS = [(kind, field) for kind, fields in FIELDS.items() for field in fields]


@pytest.mark.parametrize(("kind", "field"), NAMED_FIELDS)
@pytest.mark.parametrize("way", ["property", "slot", "class attribute", "deleted", "in the dictionary"])
def test_fields_of_a_subclass(loop, kind, field, way):
    async def run(module):
        log = []

        def read(self):
            log.append(("read", field))
            return self.__dict__[f"own{field}"]

        def write(self, value):
            log.append(("written", field))
            self.__dict__[f"own{field}"] = value

        namespace = {
            "property": {field: property(read, write)},
            "slot": {"__slots__": (field,)},
            "class attribute": {field: collections.deque()},
        }
        subject = made(type("Own", (getattr(module, kind),), namespace.get(way, {})))
        if way == "deleted":
            delattr(subject, field)
        elif way == "in the dictionary" and module is not asyncio:
            # Nothing reads it: the field is found first.
            vars(subject)[field] = "unused"
        await used(subject, log)
        return log

    same_on_both(loop, run)


@pytest.mark.parametrize("way", ["class changed", "other keys", "many attributes", "a new dictionary"])
@pytest.mark.parametrize("kind", KINDS)
def test_objects_with_attributes(loop, kind, way):
    async def run(module):
        log = []
        cls = getattr(module, kind)
        subject = made(type("Own", (cls,), {}))
        names = METHODS[kind]
        if way == "class changed":
            subject.__class__ = type("Watched", (cls,), {name: watched(cls, name, log) for name in names})
        elif way == "other keys":
            vars(subject)[1] = vars(subject)["text"] = 2
        elif way == "many attributes":
            vars(subject).update({f"attribute_{number}": number for number in range(300)})
            await used(subject, log)
            subject = made(type(subject))
            vars(subject).update({f"attribute_{number}": number for number in range(300)})
            setattr(subject, names[-1], watched(cls, names[-1], log).__get__(subject))
        else:
            subject.__dict__ = {**vars(subject), names[0]: watched(cls, names[0], log).__get__(subject)}
        return await used(subject, log)

    same_on_both(loop, run)


@hypothesis.settings(max_examples=60, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(
    kind=strategies.sampled_from(KINDS),
    in_class=strategies.lists(strategies.integers(0, 30), max_size=4),
    in_child=strategies.lists(strategies.integers(0, 30), max_size=2),
    in_object=strategies.lists(strategies.integers(0, 30), max_size=2),
)
def test_random_overrides(loop, kind, in_class, in_child, in_object):
    names = METHODS[kind]

    async def run(module):
        log = []
        cls = getattr(module, kind)
        for chosen in (in_class, in_child):
            chosen_names = {names[index % len(names)] for index in chosen}
            cls = type("Own", (cls,), {name: watched(cls, name, log) for name in chosen_names})
        subject = made(cls)
        for index in in_object:
            name = names[index % len(names)]
            setattr(subject, name, watched(cls, name, log).__get__(subject))
        return await used(subject, log)

    same_on_both(loop, run)


# -- what programs make of queues --------------------------------------------------------------------------------------


def container(make, put, get):
    """The three hooks of a queue whose items are in a container of another type."""
    return {
        "_init": lambda self, maxsize: setattr(self, "_queue", make()),
        "_put": lambda self, item: put(self._queue, item),
        "_get": lambda self: get(self._queue),
    }


class Sized:
    """A container with no more than what a queue needs."""

    def __init__(self):
        self.items = []

    def __len__(self):
        return len(self.items)


CONTAINERS = {
    "set": container(set, set.add, set.pop),
    "dict": container(dict, lambda items, item: items.update({item: 1}), lambda items: items.popitem()[0]),
    "ordered dict": container(
        collections.OrderedDict, lambda items, item: items.update({item: 1}), lambda items: items.popitem(False)[0]
    ),
    "list": container(list, list.append, lambda items: items.pop(0)),
    "bounded deque": container(
        lambda: collections.deque(maxlen=2), lambda items, item: items.append(item), lambda items: items.popleft()
    ),
    "other": container(Sized, lambda items, item: items.items.append(item), lambda items: items.items.pop()),
    "none": {"_init": lambda self, maxsize: None},
    "raises in _put": {"_put": lambda self, item: 1 / 0},
    "raises in _get": {"_get": lambda self: 1 / 0},
    "loses what it is given": {"_put": lambda self, item: None},
    "only _init": {"_init": lambda self, maxsize: setattr(self, "_queue", [])},
    "another type": {"_init": lambda self, maxsize: vars(self).update(_queue=[]) or setattr(self, "_queue", {})},
    "replaces its items": {"_put": lambda self, item: setattr(self, "_queue", [item])},
    "deletes a field in _put": {"_put": lambda self, item: delattr(self, "_getters")},
    "deletes a field in _get": {"_get": lambda self: delattr(self, "_putters")},
    "becomes another class in _put": {"_put": lambda self, item: setattr(self, "__class__", type(self).__mro__[1])},
    "shuts down in _init": {"_init": lambda self, maxsize: setattr(self, "_is_shutdown", True)},
    "puts in _put": {"_put": lambda self, item: self._queue.append(item) or (item < 9 and self.put_nowait(item + 9))},
    "patches its class": {"_put": lambda self, item: setattr(type(self), "_get", lambda self: "patched")},
}  # fmt: skip


@pytest.mark.parametrize("kind", QUEUES)
@pytest.mark.parametrize("name", CONTAINERS)
def test_containers(loop, kind, name):
    async def run(module):
        # Some get stuck: what they have done by then is compared.
        log = []
        subject = made(type("Own", (getattr(module, kind),), CONTAINERS[name]))
        task = asyncio.create_task(use_queue(subject, log))
        await turns(300)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return log

    same_on_both(loop, run)


class Falsy:
    def __bool__(self):
        return False


class Unclear:
    def __bool__(self):
        raise ValueError("neither")


FALSY, UNCLEAR = Falsy(), Unclear()

# What full(), empty() or qsize() may do; `self` is the queue, `own` the method that is replaced.
ANSWERS = {
    "True": lambda self, own: True,
    "False": lambda self, own: False,
    "the opposite": lambda self, own: not own(),
    "None": lambda self, own: None,
    "falsy": lambda self, own: FALSY,
    "unclear": lambda self, own: UNCLEAR,
    "a float": lambda self, own: own() + 0.5,
    "raises": lambda self, own: 1 / 0,
    "deletes _getters": lambda self, own: delattr(self, "_getters"),
    "deletes _putters": lambda self, own: delattr(self, "_putters"),
    "deletes _maxsize": lambda self, own: own() or delattr(self, "_maxsize"),
    "deletes _finished": lambda self, own: own() or delattr(self, "_finished"),
    "deletes _unfinished_tasks": lambda self, own: own() or delattr(self, "_unfinished_tasks"),
    "replaces its items": lambda self, own: setattr(self, "_queue", []),
    "changes its class": lambda self, own: (
        own() if type(self).__name__ != "Own" else setattr(self, "__class__", type(self).__mro__[1])
    ),
    "patches put_nowait and get_nowait": lambda self, own: (
        own()
        or setattr(self, "put_nowait", lambda item: ("patched", item))
        or setattr(self, "get_nowait", lambda: "patched")
    ),
    "patches _put and _get": lambda self, own: (
        setattr(type(self), "_put", lambda self, item: None) or setattr(type(self), "_get", lambda self: 1) or own()
    ),
    "shuts down": lambda self, own: own() or setattr(self, "_is_shutdown", True),
}  # fmt: skip


@pytest.mark.parametrize("kind", QUEUES)
@pytest.mark.parametrize("method", ["full", "empty", "qsize"])
@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("place", ["class", "object"])
def test_answers_about_items(loop, kind, method, answer, place):
    async def run(module):
        log, cls = [], getattr(module, kind)

        def asked(self):
            log.append(method)
            return ANSWERS[answer](self, lambda: getattr(cls, method)(self))

        subject = made(type("Own", (cls,), {method: asked} if place == "class" else {}))
        if place == "object":
            setattr(subject, method, asked.__get__(subject))
        task = asyncio.create_task(use_queue(subject, log))
        await turns(60)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return log

    same_on_both(loop, run)


@pytest.mark.parametrize("method", ["full", "empty"])
@pytest.mark.parametrize("ending", ["cancelled", "woken and cancelled", "thrown"])
def test_errors_of_answers_at_the_end_of_a_wait(loop, method, ending):
    """The error's context is the exception that has ended the wait, and that is handled while the method runs."""

    async def run(module):
        def asked(self):
            log.append(type(sys.exception()).__name__ if hasattr(sys, "exception") else None)
            if fails:
                raise ValueError("cannot tell")
            return getattr(module.Queue, method)(self)

        log, fails = [], False
        queue = type("Own", (module.Queue,), {method: asked})(1)
        if method == "full":
            queue.put_nowait(1)
        coroutine = queue.get() if method == "empty" else queue.put(2)
        if ending == "thrown":
            waited = coroutine.send(None)
            waited._asyncio_future_blocking = False
            fails = True
            try:
                coroutine.throw(KeyError("thrown"))
            except Exception as error:
                return log, description(error)
        task = asyncio.create_task(coroutine)
        await turns(1)
        fails = True
        if ending == "woken and cancelled":
            queue._wakeup_next(queue._getters if method == "empty" else queue._putters)
        task.cancel("stop")
        return log, await outcome_of(task)

    same_on_both(loop, run)


@pytest.mark.parametrize("kind", QUEUES)
def test_what_is_said_to_be_there_and_is_not(loop, kind):
    async def run(module):
        log = []
        queue = type("Own", (getattr(module, kind),), {"empty": lambda self: False})()
        for call in (queue.get_nowait, queue.get):
            try:
                result = call()
                log.append(await result if asyncio.iscoroutine(result) else result)
            except IndexError as error:
                log.append(str(error))
        return log

    same_on_both(loop, run)


def test_init_may_be_overridden_with_other_arguments(loop):
    async def run(module):
        class Own(module.Queue):
            def __init__(self, name, *, maxsize=0):
                self.name = name
                super().__init__(maxsize)
                self.calls = 0

            async def get(self):
                self.calls += 1
                return await super().get()

        queue = Own("own", maxsize=2)
        log = await used(queue, [])
        return queue.name, queue.calls, queue.maxsize, sorted(vars(queue).keys() & {"name", "calls"}), log

    same_on_both(loop, run)


def test_generic_and_abstract_subclasses(loop):
    T = typing.TypeVar("T")

    async def run(module):
        class Generic(module.Queue, typing.Generic[T]):
            pass

        class Child(Generic[int]):
            def _get(self):
                return -super()._get()

        return [await used(cls(3), []) for cls in (Generic, Generic[int], Child)]

    same_on_both(loop, run)


def test_metaclass_with_an_order_of_its_own(loop):
    async def run(module):
        class Reordered(type):
            def mro(cls):
                first, *rest = super().mro()
                return [first, asyncio.Queue, *(base for base in rest if base is not asyncio.Queue)]

        class Own(module.Queue, metaclass=Reordered):
            pass

        return await used(Own(3), [])

    same_on_both(loop, run)

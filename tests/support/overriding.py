"""For tests of subclasses: random overrides of methods, the same for asyncio's class and for the compiled one. Each
override notes how it was called and what came of it."""

import asyncio
import contextlib
import inspect
import types

from hypothesis import strategies
from support.comparing import turns

SPECIAL = ("__init__", "__aenter__", "__aexit__", "__anext__", "__repr__")
OF_OBJECTS = ("object", "object later")
PLACES = (*OF_OBJECTS, "class", "child", "first base", "last base", "class later")

# Of each override: which method it is, where it stands, and whether it is a coroutine function where asyncio's is one.
overrides = strategies.sampled_from([PLACES, OF_OBJECTS]).flatmap(
    lambda places: strategies.lists(
        strategies.tuples(strategies.integers(0, 60), strategies.sampled_from(places), strategies.booleans()),
        min_size=1,
        max_size=4,
    )
)


def module_with(module, log, chosen):
    """`module` with what makes other objects in place of the classes that `chosen` names, each with its overrides."""
    names = {name: getattr(module, name) for name in asyncio.__all__}
    names |= {name: maker(getattr(module, name), overrides, log) for name, overrides in chosen.items()}
    found = types.SimpleNamespace(**names)
    if "Timeout" in chosen:
        found.timeout = lambda delay: found.Timeout(delay and asyncio.get_running_loop().time() + delay)
        found.timeout_at = found.Timeout
    return found


def maker(cls, chosen, log):
    """What makes objects with overrides, of their class or their own. Those of places that end in "later" come when the
    object has been used for a while."""
    places = {place: {} for place in PLACES}
    for index, place, awaits in chosen:
        # The interpreter looks for special methods in the class; a last base that calls those of `cls` may call itself.
        names = methods_of(cls, special=place not in ("last base", *OF_OBJECTS))
        name = names[index % len(names)]
        places[place][name] = override(cls, name, log, awaits=awaits)

    def make(*arguments, **keywords):
        made = (child if derives else cls)(*arguments, **keywords)
        add_to_object(made, places["object"])
        if places["object later"] or places["class later"]:
            tasks.append(asyncio.get_running_loop().create_task(change_later(made)))
        return made

    async def change_later(made):
        await turns(3)
        add_to_object(made, places["object later"])
        for name, method in places["class later"].items():
            setattr(parent, name, method)

    tasks = []
    before, after = (
        [type("Mixin", (), places[place])] if places[place] else [] for place in ("first base", "last base")
    )
    parent = type(cls.__name__, (*before, cls, *after), places["class"])
    child = type(cls.__name__, (parent,), places["child"])
    # Without it the objects are of the class itself.
    derives = any(methods for place, methods in places.items() if place not in OF_OBJECTS)
    return make


def add_to_object(made, methods):
    for name, method in methods.items():
        setattr(made, name, types.MethodType(method, made))


def methods_of(cls, *, special):
    return sorted(
        name
        for name in dir(cls)
        if inspect.isfunction(getattr(cls, name)) and (name in SPECIAL if name.startswith("__") else True)
        if special or not name.startswith("__")
    )


def override(base, name, log, *, awaits):
    """The method `name` of `base`, with its calls, results and errors written to `log`."""
    original = getattr(base, name)

    @contextlib.contextmanager
    def noted(*arguments, **keywords):
        log.append((name, *map(plain, arguments), *keywords))
        results = []
        try:
            yield results
        except BaseException as error:
            log.append((name, "raises", type(error).__name__))
            raise
        log.append((name, "returns", *map(plain, results)))

    async def coroutine_method(self, *arguments, **keywords):
        with noted(*arguments, **keywords) as results:
            results.append(await original(self, *arguments, **keywords))
        return results[0]

    def method(self, *arguments, **keywords):
        with noted(*arguments, **keywords) as results:
            results.append(original(self, *arguments, **keywords))
        return results[0]

    return coroutine_method if awaits and inspect.iscoroutinefunction(original) else method


def plain(value):
    """What can be compared with the value of another run."""
    if value is None or isinstance(value, (int, float, bytes)):
        return value
    return "coroutine" if inspect.iscoroutine(value) else type(value).__name__

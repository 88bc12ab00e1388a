"""Bad input to the methods that watch and use descriptors: they raise asyncio's exceptions; see test_bad_input.py."""

import asyncio
import selectors

import pytest
from support.bad_input import collection, outcome
from support.stepping import run_once

CASES, case = collection()


@case()
def a_bad_descriptor(world):
    world.loop.add_reader(-1, int)


@case()
def removing_numbers_that_no_file_has(world):
    numbers = (2**31, 2**70)
    return list(map(world.loop.remove_reader, numbers)), list(map(world.loop.remove_writer, numbers))


@case()
def adding_a_number_below_every_int_of_c(world):
    world.loop.add_writer(-(2**40), int)


@case()
def removing_a_number_below_every_int_of_c(world):
    world.loop.remove_reader(-(2**40))


@case()
def a_descriptor_that_is_text(world):
    world.loop.add_reader("text", int)


@case()
def a_closed_descriptor(world):
    world.loop.add_reader(world.closed_fd(), int)


@case()
def a_closed_socket(world):
    one, _ = world.pair()
    one.close()
    world.loop.add_reader(one, int)


@case()
def a_descriptor_of_a_regular_file(world):
    file = open(__file__)  # noqa: SIM115 - closed with the world
    world.closing.append(file)
    world.loop.add_reader(file, int)


@case()
def a_second_reader_replaces_the_first(world):
    one, other = world.pair()
    other.send(b"x")
    world.loop.add_reader(one, world.reports.append, "first")
    world.loop.add_reader(one, world.reports.append, "second")
    run_once(world.loop, 2)
    removed = world.loop.remove_reader(one), world.loop.remove_reader(one)
    return sorted(set(world.reports)), removed


@case()
def removing_a_reader_that_was_never_there(world):
    one, _ = world.pair()
    return world.loop.remove_reader(one), world.loop.remove_writer(one)


@case()
def removing_the_reader_of_a_closed_socket(world):
    one, _ = world.pair()
    world.loop.add_reader(one, int)
    fd = one.fileno()
    world.loop.remove_reader(fd)
    one.close()
    world.loop.remove_reader(one)


@case()
def a_reader_that_is_no_callable(world):
    one, other = world.pair()
    other.send(b"x")
    world.loop.add_reader(one, "text")
    run_once(world.loop, 2)
    world.loop.remove_reader(one)
    del world.reports[1:]  # in between, any number of attempts may fail


@case()
def a_descriptor_of_a_transport(world):
    one, _ = world.pair()

    async def main():
        transport, _ = await world.loop.create_connection(asyncio.Protocol, sock=one)
        try:
            world.loop.add_reader(one, int)
        finally:
            transport.close()
            await asyncio.sleep(0.001)

    world.run(main())


@case()
def sock_recv_on_a_blocking_socket(world):
    one, other = world.pair()
    other.send(b"x")
    one.setblocking(True)
    return world.run(world.loop.sock_recv(one, 1))


@case()
def sock_recv_on_a_closed_socket(world):
    one, _ = world.pair()
    one.close()
    world.run(world.loop.sock_recv(one, 1))


@case()
def a_registration_of_nothing(world):
    with world.impl.DefaultSelector() as selector:
        selector.register(world.closed_fd(), selectors.EVENT_READ)


@case()
def a_registration_for_no_event(world):
    with world.impl.DefaultSelector() as selector:
        selector.register(0, 0)


@case()
def unregistering_a_number_that_no_file_has(world):
    with world.impl.DefaultSelector() as selector:
        selector.unregister(2**31)


@case()
def modifying_a_number_that_no_file_has(world):
    with world.impl.DefaultSelector() as selector:
        selector.modify(2**31, selectors.EVENT_READ)


@case()
def looking_up_a_number_that_no_file_has(world):
    with world.impl.DefaultSelector() as selector:
        return selector.get_map().get(2**31), selector.get_key(2**31)


@case()
def a_second_registration(world):
    one, _ = world.pair()
    with world.impl.DefaultSelector() as selector:
        selector.register(one, selectors.EVENT_READ)
        selector.register(one, selectors.EVENT_READ)


@case()
def unregistering_what_is_not_registered(world):
    one, _ = world.pair()
    with world.impl.DefaultSelector() as selector:
        selector.unregister(one)


@pytest.mark.parametrize("debug", [False, True], ids=["", "debug"])
@pytest.mark.parametrize("name", CASES)
def test_bad_input(impl, load_implementation, asyncio_log, name, debug):
    expected = outcome(load_implementation("asyncio"), CASES[name], debug, asyncio_log)
    assert outcome(impl, CASES[name], debug, asyncio_log) == expected

"""P26: each scenario of a server's life takes the same course as on the running Python's own loop.

The behaviour of close(), wait_closed() and serve_forever() has changed with almost every version. So a scenario states
no result: it runs on asyncio's loop first, and must take the same course on the implementation.
"""

import asyncio
import socket
import sys

import pytest
from support.endpoints import settle, until
from support.leftovers import close_checked
from support.recording import Recorder

SCENARIOS = {}


def scenario(function):
    SCENARIOS[function.__name__] = function
    return function


class Course:
    """A loop with a server, its clients, and a record in words of what happened."""

    def __init__(self, loop):
        self.loop = loop
        self.words = []
        self.clients = []
        self.accepted = []
        self.tasks = []
        self.server = None

    def say(self, *words):
        self.words.append(words)

    async def serve(self, **keywords):
        def factory():
            self.accepted.append(Recorder())
            return self.accepted[-1]

        self.server = await self.loop.create_server(factory, "127.0.0.1", 0, **keywords)
        self.address = self.server.sockets[0].getsockname()

    async def connect(self):
        count = len(self.accepted)
        client = socket.create_connection(self.address)
        client.setblocking(False)
        self.clients.append(client)
        await until(lambda: len(self.accepted) > count and self.accepted[-1].transport)
        return client

    async def attempt(self, name, awaitable):
        """Start it, and record its state when everything else has settled."""
        task = asyncio.ensure_future(awaitable)
        self.tasks.append((name, task))
        await settle()
        self.tell(name, task)
        return task

    def tell(self, name, task):
        if not task.done():
            self.say(name, "waits")
        elif task.cancelled():
            self.say(name, "cancelled")
        elif error := task.exception():
            self.say(name, type(error).__name__, str(error).split(" sockets=")[0].split(">")[-1])
        else:
            self.say(name, "returned", task.result())

    async def stand(self, word):
        """Record the state of everything."""
        await settle()
        self.say(word, self.server.is_serving(), len(self.server.sockets))
        for protocol in self.accepted:
            self.say(word, *protocol.events)
        for name, task in self.tasks:
            self.tell(name, task)

    async def finish(self):
        await self.stand("before the end")
        for client in self.clients:
            client.close()
        await until(lambda: all(protocol.lost for protocol in self.accepted))
        await self.stand("clients gone")
        self.server.close()
        await self.stand("closed")
        for _, task in self.tasks:
            task.cancel()
        await self.stand("the end")


@scenario
async def nothing_but_close(course):
    await course.serve()
    course.server.close()
    await course.stand("closed")
    course.server.close()
    await course.attempt("wait_closed", course.server.wait_closed())


@scenario
async def waiting_before_close(course):
    await course.serve()
    await course.attempt("wait_closed", course.server.wait_closed())
    await course.attempt("wait_closed again", course.server.wait_closed())
    course.server.close()
    await course.stand("closed")


@scenario
async def waiting_before_close_with_a_client(course):
    await course.serve()
    await course.connect()
    await course.attempt("wait_closed", course.server.wait_closed())
    course.server.close()
    await course.stand("closed")
    await course.attempt("wait_closed again", course.server.wait_closed())


@scenario
async def waiting_after_the_last_client_left(course):
    await course.serve()
    (await course.connect()).close()
    await until(lambda: course.accepted[0].lost)
    await course.attempt("wait_closed", course.server.wait_closed())
    course.server.close()
    await course.attempt("wait_closed after close", course.server.wait_closed())


@scenario
async def several_clients_leave_one_by_one(course):
    await course.serve()
    for _ in range(3):
        await course.connect()
    course.server.close()
    await course.attempt("wait_closed", course.server.wait_closed())
    for client in course.clients:
        client.close()
        await course.stand("one left")


@scenario
async def a_cancelled_wait_closed(course):
    await course.serve()
    await course.connect()
    course.server.close()
    (await course.attempt("wait_closed", course.server.wait_closed())).cancel()
    await course.attempt("wait_closed again", course.server.wait_closed())


@scenario
async def an_accepted_transport_is_aborted(course):
    await course.serve()
    await course.connect()
    course.server.close()
    await course.attempt("wait_closed", course.server.wait_closed())
    course.accepted[0].transport.abort()
    await course.stand("aborted")


@scenario
async def serve_forever_and_close(course):
    await course.serve(start_serving=False)
    await course.attempt("serve_forever", course.server.serve_forever())
    await course.attempt("serve_forever again", course.server.serve_forever())
    await course.connect()
    course.server.close()
    await course.stand("closed")
    await course.attempt("serve_forever when closed", course.server.serve_forever())


@scenario
async def serve_forever_is_cancelled(course):
    await course.serve()
    (await course.attempt("serve_forever", course.server.serve_forever())).cancel()
    await course.stand("cancelled")


@scenario
async def serve_forever_is_cancelled_with_a_client(course):
    """From 3.13.15 and 3.14.7 on the server closes the client's connection; earlier versions wait for its end."""
    await course.serve()
    await course.connect()
    (await course.attempt("serve_forever", course.server.serve_forever())).cancel()
    await course.stand("cancelled")


@scenario
async def the_context_manager_with_a_client(course):
    await course.serve()
    await course.connect()

    async def use():
        async with course.server as server:
            course.say("inside", server is course.server, server.is_serving())

    await course.attempt("the block", use())


@scenario
async def start_serving_when_closed(course):
    await course.serve(start_serving=False)
    course.server.close()
    with pytest.raises((TypeError, AttributeError, RuntimeError)) as caught:
        await course.server.start_serving()
    course.say(caught.type.__name__)


@scenario
async def closed_before_anything_was_accepted(course):
    """The client is in the queue of the listening socket when that socket is closed."""
    await course.serve()
    client = socket.create_connection(course.address)
    course.clients.append(client)
    course.server.close()
    await course.stand("closed")
    with pytest.raises(ConnectionError):
        client.send(b"x")
        client.recv(10)
        client.send(b"y")


@scenario
async def closed_by_the_protocol_of_a_connection(course):
    class Closing(Recorder):
        def connection_made(self, transport):
            super().connection_made(transport)
            course.server.close()

    def factory():
        course.accepted.append(Closing())
        return course.accepted[-1]

    course.server = await course.loop.create_server(factory, "127.0.0.1", 0)
    course.address = course.server.sockets[0].getsockname()
    await course.connect()
    await course.stand("closed from inside")
    await course.attempt("wait_closed", course.server.wait_closed())


@scenario
async def the_same_loop_and_the_same_sockets(course):
    await course.serve()
    course.say(course.server.get_loop() is course.loop, course.server.sockets[0].getsockname() == course.address)
    course.say(type(course.server.sockets).__name__, type(course.server.sockets[0]).__name__)
    course.say(repr(course.server).startswith("<Server sockets=(<asyncio.TransportSocket fd="))
    course.server.close()
    course.say(repr(course.server))


def fill(transport):
    while transport.get_write_buffer_size() == 0:
        transport.write(bytes(1_000_000))


async def end_the_clients(course, method):
    await course.serve()
    for _ in range(2):
        await course.connect()
    fill(course.accepted[0].transport)
    getattr(course.server, method)()
    await course.stand(method)
    await course.connect()
    course.server.close()
    await course.attempt("wait_closed", course.server.wait_closed())
    getattr(course.server, method)()
    await course.stand(method + " again")
    course.accepted[0].transport.abort()
    await course.stand("aborted")


@scenario
async def close_clients(course):
    if sys.version_info < (3, 13):
        pytest.skip("Server.close_clients() came with CPython 3.13")
    await end_the_clients(course, "close_clients")


@scenario
async def abort_clients(course):
    if sys.version_info < (3, 13):
        pytest.skip("Server.abort_clients() came with CPython 3.13")
    await end_the_clients(course, "abort_clients")


def course_of(impl, name):
    loop = impl.new_event_loop()
    course = Course(loop)
    loop.set_exception_handler(lambda loop, context: course.say("report", str(context.get("exception"))))

    async def main():
        await SCENARIOS[name](course)
        await course.finish()

    try:
        loop.run_until_complete(main())
    finally:
        for client in course.clients:
            client.close()
        close_checked(loop)
    return course.words


@pytest.mark.promise("P26")
@pytest.mark.parametrize("name", SCENARIOS)
def test_as_on_asyncios_own_loop(impl, load_implementation, name):
    expected = course_of(load_implementation("asyncio"), name)
    assert len(expected) > 3
    assert course_of(impl, name) == expected

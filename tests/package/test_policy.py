"""Event loop policies work wherever Python has them. asyncio, and nothing else, warns when one is used."""

import sys

import pytest

pytestmark = pytest.mark.only("c", "python", reason="asyncio's own policy is not the subject")

# asyncio's own warnings; a test fails on any other.
DEPRECATED = ("set_event_loop_policy", "get_event_loop_policy") if sys.version_info >= (3, 14) else ()
OPTIONS = [word for name in DEPRECATED for word in ("-W", f"ignore:'asyncio.{name}' is deprecated:DeprecationWarning")]

IN_USE = """if True:
    import hotloop
    async def main():
        assert type(asyncio.get_running_loop()) is hotloop.EventLoop, asyncio.get_running_loop()
"""


@pytest.mark.parametrize(
    "how",
    [
        "asyncio.set_event_loop_policy(hotloop.EventLoopPolicy())",
        "hotloop.install()",
        "from hotloop import install; install()",
    ],
)
def test_every_way_to_a_loop_leads_to_hotloop(impl, how):
    impl.run_script(
        IN_USE
        + f"""
    {how}
    asyncio.run(main())
    with asyncio.Runner() as runner:
        runner.run(main())
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    assert asyncio.get_event_loop() is loop
    loop.run_until_complete(main())
    loop.close()
    policy = asyncio.get_event_loop_policy()
    assert type(policy) is hotloop.EventLoopPolicy
    assert policy.get_event_loop() is loop
    asyncio.set_event_loop_policy(None)
    asyncio.run(asyncio.sleep(0))
    """,
        *OPTIONS,
    )


def test_is_a_policy(impl):
    impl.run_script("""if True:
        import hotloop
        base = getattr(asyncio.events, "AbstractEventLoopPolicy", None) or asyncio.events._AbstractEventLoopPolicy
        assert isinstance(hotloop.EventLoopPolicy(), base)
    """)


def test_naming_the_policy_does_not_warn(impl):
    impl.run_script("import hotloop; hotloop.EventLoopPolicy; from hotloop import EventLoopPolicy, install")


@pytest.mark.skipif(sys.version_info < (3, 14), reason="policies are deprecated from Python 3.14 on")
def test_setting_the_policy_warns_once_and_in_asyncios_words(impl):
    impl.run_script(
        """if True:
        import hotloop, warnings
        for use in (hotloop.install, lambda: asyncio.set_event_loop_policy(hotloop.EventLoopPolicy())):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                use()
            assert [warning.category for warning in caught] == [DeprecationWarning], caught
            assert "asyncio.set_event_loop_policy" in str(caught[0].message)
    """
    )


def test_python_without_policies(impl):
    """As in Python 3.16; until that exists, the test makes the running Python look like it."""
    impl.run_script("""if True:
        import hotloop
        hotloop.EventLoop
        if hasattr(asyncio.unix_events, "_DefaultEventLoopPolicy"):
            del asyncio.unix_events._DefaultEventLoopPolicy
        sys.version_info = (3, 16, 0, "final", 0)

        for name, kind in (("EventLoopPolicy", AttributeError), ("install", RuntimeError)):
            try:
                getattr(hotloop, name)()
            except kind as error:
                assert str(error).startswith("Python 3.16 has no event loop policies; use hotloop.run(main())"), error
            else:
                raise AssertionError(name)
        assert not hasattr(hotloop, "EventLoopPolicy")
        hotloop.run(asyncio.sleep(0))
    """)

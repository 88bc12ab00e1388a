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


# As in Python 3.16; until that exists, this makes the running Python look like it.
WITHOUT_POLICIES = """if True:
    import sys
    from asyncio import events, unix_events

    for module in (asyncio, events, unix_events):
        for name in [name for name in vars(module) if "policy" in name.lower()]:
            delattr(module, name)
    for module in (asyncio, events):
        module.new_event_loop = lambda: unix_events._UnixSelectorEventLoop()
        module.set_event_loop = lambda loop: None
"""

LOOPS = """
import asyncio

async def loop_class():
    kind = type(asyncio.get_running_loop())
    return f"{kind.__module__}.{kind.__qualname__}"

print(asyncio.run(loop_class()))
with asyncio.Runner() as runner:
    print(runner.run(loop_class()))
loop = asyncio.new_event_loop()
print(loop.run_until_complete(loop_class()))
loop.close()
"""


def test_without_policies(impl):
    impl.run_script(
        WITHOUT_POLICIES
        + """
    import hotloop
    from hotloop.policy import default_policy_class
    assert default_policy_class() is None
    for name, kind in (("EventLoopPolicy", AttributeError), ("install", RuntimeError)):
        try:
            getattr(hotloop, name)()
        except kind as error:
            version = f"Python {sys.version_info.major}.{sys.version_info.minor}"
            assert str(error).startswith(f"{version} has no event loop policies; use hotloop.run(main())"), error
        else:
            raise AssertionError(name)
    assert not hasattr(hotloop, "EventLoopPolicy")
    hotloop.run(asyncio.sleep(0))
    asyncio.run(asyncio.sleep(0), loop_factory=hotloop.new_event_loop) if sys.version_info >= (3, 12) else None
    loop = hotloop.new_event_loop()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    """
    )


def test_the_command_line_without_policies(impl, tmp_path):
    (tmp_path / "program.py").write_text(LOOPS)
    done = impl.run_script(
        WITHOUT_POLICIES
        + f"""
    import runpy
    sys.argv = ["hotloop", {str(tmp_path / "program.py")!r}]
    runpy.run_module("hotloop", run_name="__main__", alter_sys=True)
    """
    )
    assert done.stdout == "hotloop.loop.EventLoop\n" * 3


def test_the_pytest_plugin_without_policies(impl, tmp_path):
    (tmp_path / "test_program.py").write_text("""if True:
    import asyncio, hotloop, pytest

    @pytest.mark.hotloop
    async def test_loop():
        assert isinstance(asyncio.get_running_loop(), hotloop.EventLoop)
    """)
    done = impl.run_script(
        WITHOUT_POLICIES
        + f"""
    import os, pytest
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    options = ["-q", "-p", "no:cacheprovider", "-p", "hotloop.pytest_plugin", "--rootdir", {str(tmp_path)!r}]
    sys.exit(pytest.main([*options, {str(tmp_path)!r}]))
    """
    )
    assert "1 passed" in done.stdout

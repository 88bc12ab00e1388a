"""The entry point of the pytest plugin, under the name "hotloop": `-p no:hotloop` switches it off.

A plugin that is requested by `-p hotloop.pytest_plugin` or in `pytest_plugins` is registered under its module's name,
and pytest refuses to register one module under two names. So this module has the name "hotloop" and requests the other.
"""

pytest_plugins = ["hotloop.pytest_plugin"]

"""What pytest finds by itself: the plugin under the name "hotloop", which `-p no:hotloop` switches off.

pytest registers a plugin that a program names, by `-p hotloop.pytest_plugin` or in `pytest_plugins`, by its module's
name, and refuses one module under two names. So the module with the name "hotloop" is this one, which names the other.
"""

pytest_plugins = ["hotloop.pytest_plugin"]

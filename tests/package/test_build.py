"""setup.py: when it compiles again, and what it does without a compiler, or with code of Cython's that is new to it."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

import pytest

SETUP = Path(__file__).parents[2] / "setup.py"
BUILD_MODES = SETUP.parent / ".ci" / "check_build_modes.py"
# setup.py's own variables, and those with which a developer compiles.
SETTINGS = re.compile(r"HOTLOOP_.*|CC|C(PP)?FLAGS|LDFLAGS|LDSHARED|ARCHFLAGS")

pytestmark = [
    pytest.mark.skipif(not SETUP.is_file(), reason="only the repository has setup.py"),
    pytest.mark.skipif(
        not all(importlib.util.find_spec(name) for name in ("Cython", "setuptools")), reason="setup.py imports them"
    ),
    pytest.mark.skipif(
        not Path(sysconfig.get_path("include"), "Python.h").is_file() or not shutil.which("cc"),
        reason="nothing compiles",
    ),
]

PYPROJECT = """
[build-system]
requires = ["setuptools", "cython"]
build-backend = "setuptools.build_meta"

[project]
name = "hotloop"
version = "0"

[tool.setuptools]
package-dir = { "" = "src" }

[tool.setuptools.packages.find]
where = ["src"]
"""

MODULE = """
def number(text):
    try:
        return int(text)
    except ValueError:
        return None
"""


class Project:
    """A project of one module that setup.py builds as it builds hotloop's."""

    def __init__(self, folder):
        self.folder = folder
        sources = folder / "ext" / "hotloop" / "_c" / "runtime"
        sources.mkdir(parents=True)
        (sources / "tracebacks.h").touch()
        self.module = sources / "shared_object.pyx"
        self.module.write_text(MODULE)
        self.training = folder / "ext" / "training.py"
        self.training.write_text("import hotloop._c.runtime.shared_object\n")
        for package in ("hotloop", "hotloop/_c", "hotloop/_c/runtime"):
            (folder / "src" / package).mkdir(parents=True)
            (folder / "src" / package / "__init__.py").touch()
        shutil.copy(SETUP, folder)

    def build(self, **settings):
        """The build as it ended; `output` of it is all that it has said."""
        environment = {name: value for name, value in os.environ.items() if not SETTINGS.fullmatch(name)}
        return subprocess.run(
            [sys.executable, "setup.py", "build_ext"],
            cwd=self.folder,
            env=environment | {"HOTLOOP_BUILD_EXT": "yes"} | settings,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=100,
        )

    def compiles(self, **settings):
        """Whether a build, which succeeds, has compiled anything."""
        before = self.compiled()
        done = self.build(**settings)
        assert done.returncode == 0, done.stdout
        return self.compiled() != before

    def compiled(self):
        return {path: path.stat().st_mtime_ns for path in self.folder.glob("build/*/temp*/**/*.o")}


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)


def test_only_a_change_is_compiled(project):
    assert project.compiles()
    assert not project.compiles()
    project.module.write_text(MODULE.replace("None", "0"))
    assert project.compiles()


@pytest.mark.parametrize("name", ["CFLAGS", "LDFLAGS"])
def test_other_options_of_the_compiler_are_a_change(project, name):
    assert project.compiles()
    assert project.compiles(**{name: "-g"})
    assert not project.compiles(**{name: "-g"})
    assert project.compiles()


def test_what_failed_with_other_options_is_compiled_again(project):
    assert project.compiles()
    assert project.build(CFLAGS="-Werror -include nonsense.h").returncode != 0
    assert project.compiles()
    assert not project.compiles()


def test_a_changed_training_is_a_change_of_a_build_with_a_profile(project):
    done = project.build(HOTLOOP_PROFILE="yes")
    if "the C compiler is not GCC" in done.stdout:
        pytest.skip("profiles are made by GCC")
    assert done.returncode == 0, done.stdout
    assert not project.compiles(HOTLOOP_PROFILE="yes")
    project.training.write_text("from hotloop._c.runtime import shared_object\n")
    assert project.compiles(HOTLOOP_PROFILE="yes")


def test_code_of_cythons_that_cannot_be_mended_is_no_extension(project):
    (project.folder / "setup.py").write_text(SETUP.read_text().replace("GetTopmostException", "GetOtherException"))
    done = project.build()
    assert done.returncode != 0
    assert "mend_saved_exception() does not know the code of Cython" in done.stdout
    done = project.build(HOTLOOP_BUILD_EXT="auto")
    assert done.returncode == 0
    assert "THE COMPILED EXTENSION WAS NOT BUILT" in done.stdout
    assert "mend_saved_exception() does not know the code of Cython" in done.stdout


def test_code_of_cythons_that_is_called_otherwise_is_no_extension(project):
    (project.folder / "setup.py").write_text(SETUP.read_text().replace('"ExceptionSave"', '"KeepException"'))
    assert "mend_saved_exception() does not know the code of Cython" in project.build().stdout


@pytest.mark.skipif(not BUILD_MODES.is_file(), reason="only the repository has the checks")
@pytest.mark.parametrize("cython", [True, False])
def test_build_modes_are_checked_where_there_is_cython(project, tmp_path_factory, cython):
    """Without Cython there is no extension, either, for another reason than the check is about."""
    (project.folder / "pyproject.toml").write_text(PYPROJECT)
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(folder / "sdist.tar.gz", "w:gz") as archive:
        archive.add(project.folder, "hotloop-0")
    environment = {name: value for name, value in os.environ.items() if not SETTINGS.fullmatch(name)}
    if not cython:
        (folder / "Cython.py").write_text("raise ImportError('there is none')")
        environment["PYTHONPATH"] = os.fspath(folder)
    command = [sys.executable, BUILD_MODES, folder / "sdist.tar.gz"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    failed = re.findall("^FAILED +(.*)", done.stdout, re.MULTILINE)
    assert done.returncode == (not cython), done.stdout
    if cython:
        assert failed == []
    else:
        assert {"auto, no compiler: the pure wheel", "yes, no compiler: an error"} <= set(failed)

"""Settings of the whole test run: notebooks are run again in the environment in which they were made.

nbval starts its kernels with the variables of this process, so they are set here. Property tests draw the same
examples each time, however slow the machine. Nothing else belongs here.
"""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

from labsupport.authoring.environment import UNSET, kernel_environment

PROFILE = "LABSUPPORT_TEST_PROFILE"

#: To look for new examples: pytest --hypothesis-profile=default
settings.register_profile("book", derandomize=True, deadline=None)
settings.load_profile("book")


def pytest_configure() -> None:
    # The workers of pytest-xdist inherit the folder from the first process, which outlives them.
    if PROFILE not in os.environ:
        os.environ[PROFILE] = tempfile.mkdtemp(prefix="labsupport-ipython-")
    os.environ.update(kernel_environment(os.environ, Path(os.environ[PROFILE])))
    for name in UNSET:
        os.environ.pop(name, None)


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ.pop(PROFILE), ignore_errors=True)

"""Settings of the whole test run: notebooks are run again in the environment in which they were made.

nbval starts its kernels with the variables of this process, so they are set here. Nothing else belongs here.
"""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from labsupport.authoring.environment import UNSET, kernel_environment

PROFILE = "LABSUPPORT_TEST_PROFILE"


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

"""The environment in which notebooks are executed, the same for authoring and for the nbval run.

Nothing here may depend on the machine, the user or the time: what a cell shows must be the same everywhere.
"""

from collections.abc import Mapping
from pathlib import Path

#: Variables of every kernel, and why each is set.
KERNEL_ENV = {
    "LABSUPPORT_STATIC": "1",  # figures write their static twin only, no live widget
    "LABSUPPORT_PROGRESS": "off",  # no reader's progress is read or written
    "OMP_NUM_THREADS": "1",  # sums do not depend on the number of cores, and kernels do not fight for them
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MATPLOTLIBRC": str(Path(__file__).with_name("matplotlibrc")),  # a fixed salt for the ids inside an SVG
    "SOURCE_DATE_EPOCH": "0",  # matplotlib writes this instead of today's date
    "PYDEVD_DISABLE_FILE_VALIDATION": "1",  # no remark of the debugger about frozen modules
    "TZ": "UTC",
}
#: Variables that a kernel must not inherit: each would change what a cell shows.
UNSET = ("MPLBACKEND", "PYTHONSTARTUP", "PYTHONWARNINGS", "PYTHONOPTIMIZE")
#: Settings of the kernel itself, written into an otherwise empty IPython profile.
PROFILE = "c.IPKernelApp.log_level = 40  # a kernel's remark about its own transport is no output of a cell\n"


def kernel_environment(inherited: Mapping[str, str], profile: Path) -> dict[str, str]:
    """The variables of a kernel: ``inherited`` without what would change an output, with KERNEL_ENV.

    ``profile`` is an empty folder that becomes IPython's, so that no start-up file of the user runs.
    """
    settings = profile / "profile_default" / "ipython_kernel_config.py"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(PROFILE, encoding="utf-8")
    kept = {name: value for name, value in inherited.items() if name not in UNSET}
    return {**kept, **KERNEL_ENV, "IPYTHONDIR": str(profile)}

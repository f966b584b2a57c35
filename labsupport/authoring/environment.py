"""The environment in which notebooks are executed, the same for authoring and for the nbval run.

Nothing here may depend on the machine, the user or the time: what a cell shows must be the same everywhere.
"""

from pathlib import Path

#: Variables of every kernel, and why each is set.
KERNEL_ENV = {
    "LABSUPPORT_STATIC": "1",  # figures write their static twin only, no live widget
    "LABSUPPORT_PROGRESS": "off",  # no reader's progress is read or written
    "OMP_NUM_THREADS": "1",  # sums do not depend on the number of cores, and kernels do not fight for them
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    "MATPLOTLIBRC": str(Path(__file__).with_name("matplotlibrc")),  # a fixed salt for the ids inside an SVG
    "SOURCE_DATE_EPOCH": "0",  # matplotlib writes this instead of today's date
    "PYDEVD_DISABLE_FILE_VALIDATION": "1",  # the debugger's remark about frozen modules
    "TZ": "UTC",
    "LC_ALL": "C.UTF-8",
    "COLUMNS": "100",
}

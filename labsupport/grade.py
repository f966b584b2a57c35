"""``python -m labsupport.grade``: the command of ``labsupport.classroom``."""

import sys

from labsupport.classroom.batch import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

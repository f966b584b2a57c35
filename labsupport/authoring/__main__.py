"""``python -m labsupport.authoring``: see ``cli``."""

import sys

from labsupport.authoring.cli import main

if __name__ == "__main__":
    sys.exit(main())

"""``python -m bidual``."""

import sys

from bidual.cli import main

if __name__ == "__main__":
    sys.exit(main())

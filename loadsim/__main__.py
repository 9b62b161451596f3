"""Entry point of `python -m loadsim`."""

import sys

from loadsim.cli import main

sys.exit(main())

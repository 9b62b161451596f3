"""`python -m loadsim`: the same as the command `loadsim`."""

import sys

from loadsim.cli import main

sys.exit(main())

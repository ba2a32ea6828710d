"""``python -m minadv``: the command line."""

import sys

from minadv.cli import main

sys.exit(main())

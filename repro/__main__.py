"""`python -m repro`."""

import sys

from repro.commands.cli import main

sys.exit(main())

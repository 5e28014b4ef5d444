"""``python -m densecal``."""

from __future__ import annotations

import sys

from densecal.cli import main

sys.exit(main())

"""`fermata` and `python -m fermata.cli`: Ctrl-C is told in a line from here on, while the rest is still imported."""

from __future__ import annotations

import sys

from fermata.cli.interrupts import InterruptError


def run() -> None:
    """Import the command line and run it."""
    try:
        from fermata.cli import main
    except KeyboardInterrupt:
        print("fermata: interrupted", file=sys.stderr)
        sys.exit(InterruptError.exit_code)
    main.run()


if __name__ == "__main__":
    run()

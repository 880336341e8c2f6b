"""`fermata` and `python -m fermata.cli`: Ctrl-C is told in a line from here on, while the rest is still imported."""

from __future__ import annotations

from fermata.cli.interrupts import ended_in_a_line


def run() -> None:
    """Import the command line and run it."""
    with ended_in_a_line("fermata"):
        from fermata.cli import main
    main.run()


if __name__ == "__main__":
    run()

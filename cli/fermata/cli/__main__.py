"""`python -m fermata.cli`."""

from fermata.cli.main import run

if __name__ == "__main__":
    run()

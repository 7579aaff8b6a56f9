"""`python -m batchdp` is the command line."""

from batchdp.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    main()

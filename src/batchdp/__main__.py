"""`python -m batchdp` is the command line."""

from batchdp.cli import main

if __name__ == "__main__":
    main()

__all__ = ["main"]

"""What happens between the commands and the terminal: letters that it lacks, readers that leave, errors in one line."""

from __future__ import annotations

import codecs
import logging
import os
import signal
import sys
import time
from enum import StrEnum
from io import TextIOWrapper

import typer

from batchdp.text import LOG, sanitise

PLAIN = {
    "ε": "epsilon",
    "ρ": "rho",
    "δ": "delta",
    "Δ": "Delta",
    "Σ": "Sum",
    "±": "+/-",
    "×": "x",
    "…": "...",
    "²": "^2",
    "₁": "1",
    "₂": "2",
    "‖": "||",
    "⁺": "+",
    "•": "*",
    "·": "-",
    "–": "-",
    "—": "-",
    "−": "-",
    "⏎": "/",
    "≤": "<=",
    "≥": ">=",
    "→": "->",
    "“": '"',
    "”": '"',
    "‘": "'",
    "’": "'",
}
"""For terminals and pipes without UTF-8."""


class InterruptedCommandError(Exception):
    """Ctrl-C, where there is more to say than that."""


def prepare() -> None:
    """Letters that the output's encoding lacks are spelled out: no command may fail after it has spent something."""
    codecs.register_error("batchdp", _spell_out)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="batchdp")


def fail(message: str) -> None:
    """One line on stderr."""
    line = sanitise(" ".join(message.split()))
    name = "\33[1;31mbatchdp:\33[0m" if sys.stderr.isatty() and not os.environ.get("NO_COLOR") else "batchdp:"
    print(name, line, file=sys.stderr)


class LogLevel(StrEnum):
    """How much is said on stderr of what a command does."""

    warning = "warning"
    info = "info"
    debug = "debug"


class _Lines(logging.Handler):
    """A line on stderr for each entry, with the seconds since the command began; a progress bar makes room for it."""

    def emit(self, record: logging.LogRecord) -> None:
        print(sanitise(f"{record.relativeCreated / 1000:8.3f} s  {record.getMessage()}"), file=sys.stderr)


def log(context: typer.Context, level: LogLevel) -> LogLevel:
    """Write the entries of this package alone from that level on until the command ends, and then how long it took."""
    if level is not LogLevel.warning and not context.resilient_parsing:
        handler, before = _Lines(), LOG.level
        began = time.perf_counter()

        def end() -> None:
            LOG.info("%s: %.3f s in all", context.command_path, time.perf_counter() - began)
            LOG.removeHandler(handler)
            LOG.setLevel(before)

        LOG.addHandler(handler)
        LOG.setLevel(level.value.upper())
        context.call_on_close(end)
    return level


def read_reply() -> str:
    """A line that somebody types; Ctrl-C interrupts it."""
    if hasattr(signal, "siginterrupt"):
        signal.siginterrupt(signal.SIGINT, True)  # OpenDP's library, once imported, lets reads go on after a signal
    return sys.stdin.readline()


def finish() -> None:
    """Write out what is still in the buffer; a reader that has seen enough is no error."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()
    except OSError:
        discard_output()
        raise


def discard_output() -> None:
    """From here on, output goes nowhere: its reader has left, or its disk is full. The command's work goes on."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _spell_out(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(PLAIN.get(letter, "?") for letter in error.object[error.start : error.end]), error.end

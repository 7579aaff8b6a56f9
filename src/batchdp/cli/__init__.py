"""The command line: it translates and never computes. One command a file; heavy imports wait until a command runs.

Exit codes: 0 done, 1 refused or failed with one clear line on stderr, 2 wrong usage, 130 interrupted with Ctrl-C.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import ModuleType
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from batchdp.cli import (
    answer,
    ask,
    audit,
    budget,
    change,
    check,
    combine,
    compare,
    demo,
    discover,
    dossier,
    export,
    files,
    init,
    plan,
    records,
    report,
    streams,
    verify,
)
from batchdp.errors import BatchDPError, QueryError

SUMMARY = "Answer a batch of counting queries under differential privacy with as little noise as possible."
FIRST_STEPS = """\b
Start with batchdp demo. On a table of your own:
  batchdp init visits.csv          (then edit domain.toml, queries.sql)
  batchdp plan queries.sql --domain domain.toml -o visits.plan
  batchdp budget budget.db --create --epsilon 1
  batchdp answer visits.plan -t visits.csv -e 0.5 -l budget.db -o answers.csv
  batchdp report answers.release -o page.html"""
INTERRUPTED = 130
GROUPS = {
    "To try it": (demo,),
    "Before anything is spent": (init, plan, compare, audit),
    "With the budget": (budget, discover, check, answer),
    "From a release, free": (ask, combine, change, report, export, records, dossier, verify),
}
"""The commands by the job that they do, in the order in which people need them."""
MODULES = {module.__name__.rpartition(".")[2]: module for modules in GROUPS.values() for module in modules}


@cache
def _built(name: str, module: ModuleType) -> Any:
    """A command with its options and examples."""
    examples = "Examples:" if len(module.EXAMPLES) > 1 else "Example:"
    epilog = "\n".join((examples, *(f"  {line}" for line in module.EXAMPLES)))
    built = _alone(module.command, name, epilog)
    built.params += _alone(_logged).params
    return built


def _alone(function: Callable[..., None], name: str | None = None, epilog: str | None = None) -> Any:
    alone = typer.Typer(rich_markup_mode="rich", add_completion=False)
    alone.command(name, epilog=epilog)(function)
    return get_command(alone)


def _logged(log_level: files.Log = streams.LogLevel.warning) -> None:
    """What every command takes too."""


class _Commands(Mapping[str, Any]):
    """All commands. One is built when it is used: to build them all takes half as long as to import typer."""

    def __getitem__(self, name: str) -> Any:
        return _built(name, MODULES[name])

    def __iter__(self) -> Iterator[str]:
        return iter(MODULES)

    def __len__(self) -> int:
        return len(MODULES)


class _Group(TyperGroup):
    """What stands before the commands; its help is plain text, which needs neither rich nor the commands' options."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**{**given, "commands": _Commands()})

    def list_commands(self, ctx: Any) -> list[str]:
        return list(MODULES)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, MODULES))
        for job, modules in GROUPS.items():
            with formatter.section(job):
                own = [name for name, module in MODULES.items() if module in modules]
                formatter.write_dl([(f"{name:{width}}", _summary(MODULES[name])) for name in own])


def _summary(module: ModuleType) -> str:
    return (inspect.getdoc(module.command) or "").partition("\n\n")[0]


app = typer.Typer(
    name="batchdp",
    cls=_Group,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True, epilog=FIRST_STEPS, help=SUMMARY)
def root(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", is_eager=True, help="Say which version.", metavar=""),
) -> None:
    """What stands before the commands."""
    if version:
        from batchdp import __version__

        print(f"batchdp {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(2)


def main(commands: typer.Typer = app) -> None:
    """Run the command line: every error ends as one line on stderr and an exit code."""
    streams.prepare()
    try:
        code = _run(commands)
    except KeyboardInterrupt:
        code = INTERRUPTED
        streams.fail("interrupted")
    sys.exit(code)


def _run(commands: typer.Typer) -> int:
    try:
        code = commands(standalone_mode=False)
        if code == INTERRUPTED:  # typer has caught it already
            streams.fail("interrupted")
        streams.finish()
        return code if isinstance(code, int) else 0
    except streams.InterruptedCommandError as interruption:
        streams.fail(f"interrupted; {interruption}")
        return INTERRUPTED
    except QueryError as error:
        for refusal in error.refusals:
            streams.fail(refusal)
    except BatchDPError as error:
        streams.fail(str(error))
    except OSError as error:
        streams.fail(": ".join(str(part) for part in (error.filename, error.strerror or error) if part))
    except MemoryError:
        streams.fail("there is not enough memory for this; try fewer queries, or coarser values in the domain")
    except Exception as error:
        if hasattr(error, "format_message"):  # typer's own: wrong usage
            context = getattr(error, "ctx", None)
            path = "batchdp" if context is None else context.command_path
            streams.fail(f"{error.format_message().rstrip('.')}; see {path} --help")
            return int(getattr(error, "exit_code", 2))
        if os.environ.get("BATCHDP_TRACEBACK"):
            raise
        # Only the type: the text of an error nobody thought of could hold anything.
        streams.fail(f"unexpected {type(error).__name__}; please report it with what BATCHDP_TRACEBACK=1 shows")
    return 1

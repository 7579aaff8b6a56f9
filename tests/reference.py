"""The reference pages, from the code: docs/reference/api.md and docs/reference/cli.md.

    .venv/bin/python tests/reference.py

writes them; `tests/test_reference.py` fails when they are stale.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import batchdp
from batchdp.errors import BatchDPError
from batchdp.release.beside import Beside
from batchdp.strategies.strategy import FactoredStrategy

PAGES = Path(__file__).parent.parent / "docs" / "reference"
EXAMPLES = Path(__file__).parent / "reference_examples.md"
"""What is shown below an entry, under its name; the first section stands at the top of the page."""
SHARED = {"Beside": Beside, "FactoredStrategy": FactoredStrategy}
"""Classes that are not public, whose fields public ones have."""
MADE = "<!-- Made from the code by tests/reference.py; change the docstrings and run it again. -->"
MADE_BY = {
    "Plan": ("plan", "plan_for", "load_plan"),
    "KroneckerWorkload": ("workloads",),
    "ResidualStrategy": ("optimize",),
    "MarginalStrategy": ("optimize",),
    "Release": ("answer", "check", "combine", "load_release"),
    "Consistent": ("Release",),
    "Records": ("draw_records",),
    "Answer": ("Release",),
}
"""Where values come from that are not made by hand."""
SECTIONS: dict[str, tuple[str, ...]] = {
    "From SQL to answers": (
        "plan",
        "plan_for",
        "answer",
        "check",
        "combine",
        "discover",
        "epsilon_for",
        "estimate",
        "outlook",
        "audit",
    ),
    "Looking and publishing": ("change", "report", "report_plan", "export", "dossier", "verify"),
    "Synthetic records": ("draw_records", "report_records", "records_memory"),
    "Files": ("load_domain", "load_plan", "load_release", "load_strategy"),
    "Own matrices": ("optimize", "ShapeLimits", "low_rank", "compare", "STRATEGIES", "workloads", "bounds"),
    "Values": (
        "Domain",
        "Plan",
        "Workload",
        "MatrixWorkload",
        "Product",
        "KroneckerWorkload",
        "Strategy",
        "PairStrategy",
        "ResidualStrategy",
        "MarginalStrategy",
        "Ledger",
        "Release",
        "Consistent",
        "Records",
        "Answer",
    ),
    "Errors": ("BatchDPError",),
}


# ── Python ──


def api() -> str:
    """The page of everything in `batchdp.__all__`."""
    errors = tuple(name for name in batchdp.__all__ if name.endswith("Error"))
    listed = {name for names in SECTIONS.values() for name in names} | set(errors)
    if listed != set(batchdp.__all__):
        raise SystemExit(f"SECTIONS must list {sorted(listed ^ set(batchdp.__all__))}")
    examples = read_examples()
    parts = [
        MADE,
        "# Python reference",
        "Everything in `batchdp`; `import batchdp` and use it as `batchdp.name`. The examples run from top to bottom. "
        "The [tutorial](../tutorial.md) shows the everyday functions at work. [From queries to cells](../cells.md) "
        "says what cells, classes and blocks are, and [Notation](../how.md#notation) what the letters are.",
        examples.pop("Shared by the examples"),
    ]
    for section, names in SECTIONS.items():
        parts.append(f"## {section}")
        for name in names:
            parts += _errors() if section == "Errors" else _entry(name, getattr(batchdp, name))
            parts += [examples.pop(name)] if name in examples else []
    if examples:
        raise SystemExit(f"{EXAMPLES.name} has examples of nothing: {sorted(examples)}")
    return _page(parts)


def read_examples() -> dict[str, str]:
    """The sections of the file of examples, by their headings."""
    sections = re.split(r"^## (.*)$", EXAMPLES.read_text(), flags=re.MULTILINE)[1:]
    return {name: text.strip() for name, text in zip(sections[::2], sections[1::2], strict=True)}


def _entry(name: str, thing: Any) -> list[str]:
    if isinstance(thing, ModuleType):
        members = [(key, getattr(thing, key)) for key in thing.__all__]
        return [f"### {name}", _text(thing), "\n".join(_listed(f"{name}.{key}", value) for key, value in members)]
    if isinstance(thing, dict):
        rows = [f"| `{key}` | {_first(value).replace('|', '∣')} |" for key, value in thing.items()]
        return [
            f"### {name}",
            "Mechanisms by name; each is a function from a workload to a `Strategy`.",
            "\n".join(["| name | what it does |", "|---|---|", *rows]),
        ]
    if inspect.isclass(thing):
        return _class(name, thing)
    return [f"### {name}", _signature(name, thing), _text(thing)]


def _class(name: str, cls: type) -> list[str]:
    parts = [f"### {name}"]
    if name in MADE_BY:
        made_by = ", ".join(f"[`{maker}`](#{maker.lower()})" for maker in MADE_BY[name])
        text, _, fields_of = _text(cls).partition("\n\n- ")
        parts += [text, f"Returned by {made_by}; not meant to be made by hand."]
        parts += [f"- {fields_of}"] * bool(fields_of)
    else:
        if dataclasses.is_dataclass(cls) or "__init__" in vars(cls):
            parts.append(_signature(name, cls))
        parts.append(_text(cls))
    comments = _comments(cls)
    fields = [field.name for field in dataclasses.fields(cls)] if dataclasses.is_dataclass(cls) else []
    fields += list(getattr(cls, "model_fields", {}))
    described = [f"- `{field}`: {comments[field]}" for field in fields if field in comments]
    members = []
    for key, member in vars(cls).items():
        if key.startswith("_") or key in fields or key.startswith("model_"):
            continue
        plain = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
        if isinstance(plain, property) or hasattr(plain, "attrname"):  # a cached property has one
            members.append(f"- `{key}`: {_first(plain)}")
        elif inspect.isfunction(plain):
            members.append(f"- `{_call(key, plain)}`: {_first(plain)}")
    if described or members:
        parts += ["Properties and methods:", "\n".join(described + members)]
    return parts


def _comments(cls: type) -> dict[str, str]:
    """The strings below the fields of a class."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for field, below in zip(tree.body, tree.body[1:], strict=False):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
            found[field.target.id] = " ".join(below.value.value.split())
    return found


def _errors() -> list[str]:
    def tree(error: type[BaseException], depth: int) -> list[str]:
        children = [child for child in error.__subclasses__() if child.__name__ in batchdp.__all__]
        below = [line for child in children for line in tree(child, depth + 1)]
        named = f"`{error.__name__}`: {_first(error)}" if error.__doc__ else f"`{error.__name__}`"
        return [f"{'    ' * depth}- {named}", *below]

    return ["\n".join(tree(BatchDPError, 0))]


def _listed(name: str, thing: Any) -> str:
    return f"- `{_call(name, thing) if inspect.isfunction(thing) else name}`: {_first(thing)}"


def _call(name: str, function: Any) -> str:
    """A call with its parameters and defaults, types left out."""
    shown: list[str] = []
    starred = False
    for key, parameter in inspect.signature(function).parameters.items():
        if key in ("self", "cls"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            shown.append("*")
            starred = True
        shown.append(key if parameter.default is parameter.empty else f"{key}={_shown(parameter.default)}")
    return f"{name}({', '.join(shown)})"


def _signature(name: str, thing: Any) -> str:
    lines = [f"{name}("]
    starred = False
    for key, parameter in inspect.signature(thing).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            lines.append("    *,")
            starred = True
        typed = f": {parameter.annotation}" if isinstance(parameter.annotation, str) else ""
        default = "" if parameter.default is parameter.empty else f" = {_shown(parameter.default)}"
        lines.append(f"    {key}{typed}{default},")
    returns = inspect.signature(thing).return_annotation
    arrow = f" -> {returns}" if isinstance(returns, str) and returns != "None" else ""
    return "\n".join(["```py", *lines, f"){arrow}", "```"])


def _shown(default: Any) -> str:
    if isinstance(default, Enum):
        return f"{type(default).__name__}.{default.name}"
    if inspect.isbuiltin(default) or inspect.isfunction(default):
        return default.__name__
    return f"{type(default).__name__}()" if dataclasses.is_dataclass(default) else repr(default)


def _doc(thing: Any) -> str:
    return inspect.getdoc(thing) or ""


def _first(thing: Any) -> str:
    return " ".join(_doc(thing).split("\n\n")[0].split())


def _text(thing: Any) -> str:
    """The docstring, one bullet an argument, in the order of the signature."""
    text, meanings = arguments_of(thing)
    if not meanings:
        return text
    known = list(inspect.signature(thing).parameters)
    if sorted(known) != sorted(meanings):
        raise SystemExit(f"{thing.__name__}: the docstring must have {sorted(set(known) ^ set(meanings))}")
    return f"{text.rstrip()}\n\n" + "\n".join(f"- `{name}`: {meanings[name]}" for name in known)


def arguments_of(thing: Any) -> tuple[str, dict[str, str]]:
    """A docstring without its arguments, and what it says of each."""
    text, _, arguments = _doc(thing).partition("\nArgs:\n")
    meanings: dict[str, str] = {}
    for item in re.split(r"\n(?=\S)", textwrap.dedent(arguments)) if arguments else ():
        names, _, meaning = " ".join(item.split()).partition(": ")
        for name in names.split(", "):
            meanings[name] = _referred(name, meaning)
    return text, meanings


def _referred(name: str, meaning: str) -> str:
    """The text, where it says "as in" something: with a link to that, or what is said there if it is not public."""
    found = re.search(r"as in `(\w+)`", meaning)
    if found is None:
        return meaning
    if found[1] in SHARED:
        return meaning.replace(found[0], arguments_of(SHARED[found[1]])[1][name].rstrip("."))
    return meaning.replace(found[0], f"as in [`{found[1]}`](#{found[1].lower()})")


# ── command line ──


def cli() -> str:
    """The page of all commands, from what `--help` shows."""
    import typer.main

    from batchdp.cli import app

    group: Any = typer.main.get_command(app)
    parts = [
        MADE,
        "# Command line reference",
        f"{group.help} `batchdp COMMAND --help` shows the same as below; `python -m batchdp` is the same as `batchdp`.",
        "Exit codes: 0 done, 1 refused or failed with one line on stderr, 2 wrong usage.",
        "\n".join(
            ["| command | job |", "|---|---|"]
            + [f"| [`{name}`](#{name}) | {_summary(command)} |" for name, command in group.commands.items()]
        ),
    ]
    for name, command in group.commands.items():
        parts += [f"## {name}", *_command(name, command)]
    return _page(parts)


def _summary(command: Any) -> str:
    return " ".join(command.help.split("\n\n")[0].split())


def _command(name: str, command: Any) -> list[str]:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option"]
    usage = " ".join(["batchdp", name, *(one.metavar or one.name.upper() for one in arguments), "[OPTIONS]"])
    rows = [f"| `{(one.metavar or one.name.upper()).strip('[]')}` | {one.help} |" for one in arguments]
    rows += [f"| {_option(one)} | {one.help}{_notes(one)} |" for one in options]
    examples = re.findall(r"batchdp [^\n·]+", command.epilog or "")
    return [
        "\n\n".join(" ".join(part.split()) for part in command.help.split("\n\n")),
        f"```console\n$ {usage}\n```",
        "\n".join(["| | |", "|---|---|", *rows]),
        "\n".join(["```console", *(f"$ {example.strip()}" for example in examples), "```"]),
    ]


def _option(option: Any) -> str:
    return ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))


def _notes(option: Any) -> str:
    if option.required:
        return " Required."
    choices = [str(choice.value) for choice in type(option.default)] if isinstance(option.default, Enum) else []
    choice = f" One of {', '.join(f'`{name}`' for name in choices)}." if choices else ""
    default = getattr(option.default, "value", option.default)
    return choice if default is None or isinstance(default, bool) else f"{choice} Default: `{default}`."


def _page(parts: list[str]) -> str:
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Write both pages."""
    PAGES.mkdir(exist_ok=True)
    (PAGES / "api.md").write_text(api())
    (PAGES / "cli.md").write_text(cli())


if __name__ == "__main__":
    main()

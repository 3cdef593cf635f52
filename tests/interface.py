"""Writes tests/interface.txt: public names of Python, their signatures, and the command line.

    python tests/interface.py      (make interface)

One name a line, so that a diff shows every change of what users can write. Python: the names of
`gpt`, and the public members of every class that one of them takes or returns, however far.
`test_interface.py` compares the file with what this script would write.
"""

from __future__ import annotations

import dataclasses
import inspect
import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

from typer.main import get_command

import gpt
from gpt.commands import make_program
from gpt.config.fields import Options

FILE = Path(__file__).with_suffix(".txt")
PLAIN = (int, float, str, bool, type(None), tuple)  # defaults that are shown as they are


def interface() -> str:
    return "\n".join([*python_lines(), "", *command_lines()]) + "\n"


def python_lines() -> Iterator[str]:
    """The names of `gpt`, then the members of each class that they lead to, by name."""
    classes = classes_of_gpt()
    waiting, seen = [], set[str]()
    for name in sorted(gpt.__all__):
        value = getattr(gpt, name)
        if inspect.isclass(value):
            yield f"gpt.{name}"
        elif callable(value):
            yield from function_lines(f"gpt.{name}", value)
        else:
            yield f"gpt.{name}: {type(value).__name__}"
        waiting.append(
            "\n".join(function_lines(name, value)) if inspect.isfunction(value) else name
        )
    lines: list[str] = []
    while waiting:
        for name in re.findall(r"\w+", waiting.pop()):
            if name in classes and name not in seen:
                seen.add(name)
                own = [*member_lines(classes[name])]
                lines += own
                waiting += own
    yield ""
    yield from sorted(lines)


def classes_of_gpt() -> dict[str, type]:
    """Name -> class, for every public class that a module of gpt defines."""
    modules = pkgutil.walk_packages(gpt.__path__, "gpt.")
    names = [module.name for module in modules if not module.name.endswith("__main__")]
    return {
        name: value
        for module in map(import_module, names)
        for name, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == module.__name__
        if not name.startswith("_")
    }


def member_lines(owner: type) -> Iterator[str]:
    """Fields, properties and methods of a class and of its bases in gpt."""
    fields = {field.name: field for field in dataclasses.fields(owner)} if is_data(owner) else {}
    hints = get_type_hints(owner) if issubclass(owner, Options) else {}
    for name, field in fields.items():
        default = "" if field.default is dataclasses.MISSING else f" = {shown(field.default)}"
        kind = hints.get(name, field.type)
        yield f"{owner.__name__}.{name}: {written(kind)}{default}"
    for name in sorted(dir(owner)):
        base = next((base for base in owner.__mro__ if name in vars(base)), object)
        if name.startswith("_") or name in fields or not base.__module__.startswith("gpt"):
            continue
        value = inspect.getattr_static(owner, name)
        function = getattr(value, "__func__", value)
        getter = getattr(value, "fget", None) or getattr(value, "func", None)
        if getter is not None:
            returned = inspect.signature(getter).return_annotation
            yield f"{owner.__name__}.{name} -> {written(returned)}"
        elif inspect.isfunction(function):
            yield from function_lines(f"{owner.__name__}.{name}", function)


def is_data(owner: type) -> bool:
    return dataclasses.is_dataclass(owner)


def function_lines(name: str, function: Any) -> Iterator[str]:
    """A function with its result, and each of its parameters on a line of its own."""
    signature = inspect.signature(function)
    returned = signature.return_annotation
    yield f"{name}() -> {'?' if returned is signature.empty else written(returned)}"
    for parameter in signature.parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        kind = (
            "" if parameter.annotation is parameter.empty else f": {written(parameter.annotation)}"
        )
        default = "" if parameter.default is parameter.empty else f" = {shown(parameter.default)}"
        star = "*, " if parameter.kind is parameter.KEYWORD_ONLY else ""
        yield f"{name}({star}{parameter.name}{kind}{default})"


def written(annotation: Any) -> str:
    """An annotation as its source spells it, without the help texts of options."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\s+", " ", re.sub(r"Annotated\[\s*([^,]+?),.*\]", r"\1", text, flags=re.S))


def shown(default: Any) -> str:
    default = str(default) if isinstance(default, Path) else default
    return repr(default) if isinstance(default, PLAIN) else type(default).__name__


def command_lines() -> Iterator[str]:
    """Each command, and its arguments and options with their values and defaults, sorted."""
    program: Any = get_command(make_program())
    with program.make_context("gptx", ["train"], resilient_parsing=True) as parent:
        for name, command in sorted(program.commands.items()):
            yield f"gptx {name}"
            context = command.make_context(name, [], parent=parent, resilient_parsing=True)
            yield from sorted(parameter_lines(name, command.get_params(context), context))


def parameter_lines(command: str, parameters: list[Any], context: Any) -> Iterator[str]:
    for parameter in parameters:
        if record := parameter.get_help_record(context):
            default = parameter.default
            shows = "" if default is None else f" = {shown(default)}"
            yield f"gptx {command} {record[0]}{shows}"


if __name__ == "__main__":
    FILE.write_text(interface(), encoding="utf-8")

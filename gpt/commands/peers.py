"""A command line in the words of other programs, as gptx writes it: for errors."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from importlib import import_module

from gpt.commands import COMMANDS, MODULES
from gpt.commands.options import PANELS, classes_of_options
from gpt.config import peers
from gpt.config.fields import fields_of, flag_of

#: --lr=1, --n 3, and -temperature 1, as in Torch.
_OPTION = re.compile(r"(--?[A-Za-z][\w-]+|--n)(?:=(.*))?", re.DOTALL)
_SWITCH = re.compile(r"0|1|true|false", re.IGNORECASE)
_VALUE = re.compile(r"(?!--).*", re.DOTALL)


def translated(words: Sequence[str]) -> str | None:
    """The command line with our names, to be copied; None if it has none of theirs, or others that
    are unknown.
    """
    first, *left = words or [""]
    command = peers.COMMANDS.get(first.replace("-", "_"), first)
    if command not in COMMANDS:
        return None
    module = import_module(f"gpt.commands.{MODULES.get(command, command)}")
    classes = classes_of_options(module.command)
    ours, has_theirs = ["gptx", command], command != first
    while left:
        word = left.pop(0)
        option = _OPTION.fullmatch(word)
        name = option[1].strip("-").replace("-", "_") if option else ""
        if not option or name.removeprefix("no_") in classes.keys() - {name}:
            ours.append(word)
            continue
        if name not in classes:
            known = [other for other in peers.ours_for(name) if other in {**classes, "-": None}]
            if not known:
                return None
            name = known[0]
        flag, value = flag_of(name), option[2]
        field = fields_of(classes[name])[name] if name in classes else None
        is_switch = field is None or field.type is bool
        has_theirs |= option[1].replace("_", "-") != flag or (is_switch and value is not None)
        has_value = _SWITCH if field and is_switch else _VALUE
        if value is None and left and has_value.fullmatch(left[0]):
            value = left.pop(0)
        if field and not is_switch:
            ours += [value or ""] if name == "corpus" else [flag, value or ""]
        elif field and str(value).lower() not in ("false", "0"):
            ours.append(flag)
        elif field and classes[name] in PANELS:
            ours.append(f"--no-{flag[2:]}")
    return shlex.join(ours) if has_theirs else None

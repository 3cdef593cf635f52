"""A run's config.toml: flat TOML, one line per option, each with its help as a comment."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from typing import Any

from gpt.config import ModelConfig, RunConfig, TrainConfig
from gpt.config.fields import options_of, with_flags
from gpt.errors import ConfigError

#: What a run records beside its options: name -> (type, comment). A resumed run with another value
#: warns.
RECORDED: dict[str, tuple[type, str]] = {
    "threads": (int, "The run's threads; another number (OMP_NUM_THREADS) gives other weights."),
    "torch": (str, "The run's version of torch; another one may give other weights."),
}
LONGEST_FILE = 2**20  # characters


def to_toml(values: Mapping[str, Any]) -> str:
    """Flat TOML, a line for each value that is not None, with its help as a comment."""
    options = {**options_of(RunConfig), **options_of(ModelConfig), **options_of(TrainConfig)}
    comments = {name: with_flags(option.help) for name, option in options.items()}
    comments |= {name: comment for name, (_, comment) in RECORDED.items()}
    lines = []
    for name, value in values.items():
        if value is not None:
            comment = f"  # {comments[name]}" if name in comments else ""
            lines.append(f"{name} = {_toml_value(value)}{comment}\n")
    return "".join(lines)


def _toml_value(value: Any) -> str:
    """The value as JSON writes it, with escapes for characters that cannot be printed."""
    written = json.dumps(value, ensure_ascii=False)
    return "".join(sign if sign.isprintable() else f"\\U{ord(sign):08x}" for sign in written)


def from_toml(text: str, source: str) -> dict[str, Any]:
    """Option -> value from TOML text without sections. Raises ConfigError."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # TOMLDecodeError is a ValueError
        raise ConfigError(f"config {source}", str(error)) from None

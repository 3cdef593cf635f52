"""`gptx eval --against`: another run, several, or patterns that stand for groups of seeds."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpt.commands.common import console, shared
from gpt.errors import ConfigError

if TYPE_CHECKING:
    from gpt.commands.evaluate import Eval, Scored
    from gpt.loading import Saved
    from gpt.reading.layers import Array


@dataclass(frozen=True)
class Opponents:
    """Checkpoints that are compared as one: a single one, or the seeds of a recipe."""

    label: str
    checkpoints: tuple[Saved, ...]


def is_single(chosen: Sequence[str]) -> bool:
    """Whether --against names one checkpoint: the comparison of two models."""
    from gpt.storage.runs import is_pattern

    return len(chosen) == 1 and (os.path.isfile(chosen[0]) or not is_pattern(chosen[0]))


def opened_one(command: Eval, chosen: str) -> Saved:
    """The checkpoint of a run, RUN:STEP or a model file. Raises CheckpointError, ConfigError."""
    if os.path.isfile(chosen):  # a path may contain colons
        return command.open(chosen, "best")
    name, _, step = chosen.partition(":")
    return command.open(name, step or "best")


def opponents(command: Eval, chosen: Sequence[str]) -> list[Opponents]:
    """What --against names, each checkpoint once; a pattern gives a group for each recipe.

    A pattern does not stand for the run of --run itself. Raises CheckpointError, ConfigError.
    """
    from gpt.storage.comparison import compared
    from gpt.storage.runs import find_runs, is_pattern

    found: dict[str, Opponents] = {}
    for each in chosen:
        pattern, _, step = each.partition(":")
        if os.path.isfile(each) or not is_pattern(pattern):
            found.setdefault(each, Opponents(each, (opened_one(command, each),)))
            continue
        runs = [
            run
            for run in find_runs(command.checkpoints, [pattern])
            if run.name != command.opened.name
        ]
        if not runs:
            raise ConfigError(f"--against: {each!r} matches only {command.opened.name} itself")
        saved = {run.name: command.open(run.name, step or "best") for run in runs}
        for group in compared((run, run.last().manifest) for run in runs).groups:
            label = group.label + f":{step}" * bool(step)
            members = tuple(saved[name] for name in group.names)
            found.setdefault(label, Opponents(label, members))
    return [*found.values()]


def require_comparable(command: Eval, others: Sequence[Saved]) -> None:
    """Raises ConfigError for an opponent that cannot read the texts."""
    for each in others:
        has_encoder = each.stored.config.encoder_layers > 0
        if has_encoder and not command.of_pairs:
            raise ConfigError(
                f"--against: {each.name} has an encoder and reads pairs, {command.opened.name} has "
                "none; compare them on a FILE of pairs, with --pairs"
            )
        if command.of_pairs and not has_encoder and each.stored.vocabulary.unknown("\t\n"):
            raise ConfigError(
                f"--against: {each.name} was not trained on pairs: it does not know TAB and NEWLINE"
            )


def exposed(others: Sequence[Saved], opened: Saved) -> dict[str, str]:
    """Of the opponents, those that may have been trained on the validation text, and why."""
    seen = {each.name: each.exposure_to_split(opened) for each in others}
    return {name: why for name, why in seen.items() if why}


def two_compared(command: Eval, against: Saved, scored: Scored, record: dict[str, Any]) -> str:
    """How two models differ on the characters that both know: a line; puts it into the record, too.

    Raises TextError for a character that the other model does not know.
    """
    from gpt.commands.evaluate import left_out
    from gpt.view.terminal import scores

    model, other = command.opened.model, against.model
    whole = model.vocabulary.decode(scored.ids)
    name = f"{scored.label} for {against.name}"
    found = model.compare(other, shared.known_text(other, whole, command.unknown, name))
    names = [command.opened.name, against.name]
    if names[0] == names[1]:
        names = [f"step {each.stored.step:,}" for each in (model, other)]
    its = {**against.origin, "left_out": left_out(other, whole)}
    record |= {"against": its, **scores.paired_record(found)}
    return scores.paired_line(names[0], names[1], found)


def write_compared(command: Eval, label: str, plain: str, record: dict[str, Any]) -> None:
    """Compares the model with every opponent on a text, and writes a table, or a JSON record.

    plain: the text, of characters that the model knows.
    """
    from gpt.reading.paired import PairedGroup, paired
    from gpt.view.terminal import scores

    nats = _nats_of_each(command.of_pairs)
    known: dict[str, Array] = {}
    groups, records = [], []
    for each in command.opponents:
        pairs, runs = [], []
        for saved in each.checkpoints:
            name = f"{label} for {saved.name}"
            text = shared.known_text(saved.model, plain, command.unknown, name)
            if text not in known:
                known[text] = nats(command.opened.model, text)
            names = (command.opened.name, saved.name)
            pairs.append(paired(known[text], nats(saved.model, text), names))
            left_out = len(plain) - len(text)
            runs.append({**saved.origin, "left_out": left_out, **scores.paired_record(pairs[-1])})
        groups.append(PairedGroup(each.label, tuple(pairs)))
        records.append(scores.group_record(groups[-1]) | {"runs": runs})
    if command.as_json:
        command.write_json({**record, "may_have_seen": [*command.seen], "against": records})
        return
    console.tell(f"{label}:")
    command.write_lines(scores.group_lines(command.opened.name, groups, command.page()))


def _nats_of_each(pairs: bool) -> Callable[[Any, str], Array]:
    """A function that gives a model's nats of each character, or of each target's characters."""
    if pairs:
        return lambda model, text: model.nats_of(text)
    return lambda model, text: model.surprises(text, overlapping=False).nats

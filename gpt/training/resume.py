"""Resuming a run: which options may change, and what the user is warned about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpt.corpus.corpus import Corpus
from gpt.corpus.halves import halves, predicted_in, size_of
from gpt.errors import ConfigError
from gpt.storage.checkpoint import Checkpoint
from gpt.training.plan import Plan, assess, environment, resumed_speed

#: Options that may change when a run is resumed: the steps so far do not depend on them.
CHANGEABLE = frozenset(
    {"steps", "eval_interval", "eval_chars", "patience", "keep_all", "micro_batch_size"}
)


def resume_plan(
    checkpoint: Checkpoint,
    corpus: Corpus,
    given: Mapping[str, Any],
    device: str,
) -> Plan:
    """The plan of a resumed run. Raises ConfigError for an option that would change its weights."""
    stored = checkpoint.manifest
    known = {**vars(stored.model), **vars(stored.train)}
    for name, value in given.items():
        if name not in CHANGEABLE and known[name] != value:
            raise ConfigError(
                name,
                f"this run has {known[name]}, not {value}; leave the option out, or train a new "
                "run",
            )
    changed = {name: value for name, value in given.items() if name in CHANGEABLE}
    if changed.get("steps", stored.train.steps) != stored.train.steps:
        changed["step_plan"] = ""  # an ordinary schedule with that many steps
    train = replace(stored.train, **changed)
    if train.steps < stored.step:
        raise ConfigError("steps", f"this run has already done {stored.step}")
    here = environment(device)
    warnings = [
        f"not bit-exact: this run was trained with {name} {value}, now it is {here[name]}"
        for name, value in stored.environment.items()
        if name in here and here[name] != value
    ]
    if train.micro_batch_size != stored.train.micro_batch_size:
        warnings.append("not bit-exact: the micro-batch size is another, and sums round otherwise")
    if train.steps != stored.train.steps:
        warnings.append(
            f"the schedule now ends at step {train.steps:,}, not {stored.train.steps:,}"
        )
    shape = stored.model
    trains, val = halves(corpus, train, shape.encoder_layers > 0, shape.block_size)
    manifest = stored.trained_with(train, predicted_in(val))
    if stored.best_step is not None and manifest.best_step is None:
        warnings.append(
            "evaluations read another part of the validation split now: do not compare their "
            "losses with earlier ones"
        )
    speed = resumed_speed(manifest, device, size_of(trains))
    plan = assess(corpus, manifest, device, speed)
    return replace(plan, warnings=tuple(warnings))

"""The options of a run beside its model and its training: its name and its time, what it starts
from, where it trains and where it is kept.

Commands and Python's functions share the annotations of folders and devices.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from gpt.config.fields import Range, check_fields
from gpt.config.presets import MOST_MINUTES, Preset
from gpt.devices import Device

Tracker = Literal["tensorboard"]

Checkpoints = Annotated[Path, "Folder of the runs."]
Data = Annotated[Path, "Folder of the corpora."]
OnDevice = Annotated[Device, "Where to compute."]


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """A run beside its model and its training. Raises ConfigError for a value of another type."""

    preset: Annotated[
        Preset | None, "classic: nanoGPT's recipe; best: lowest loss, slow.", "default"
    ] = None
    minutes: Annotated[
        float | None,
        "Time budget from the first step to the last save, evaluations included; gptx fits the "
        "model's shape and the steps to it.",
        "2 for `preset=default` without `steps`",
        Range(above=0, most=MOST_MINUTES),
    ] = None
    run: Annotated[str | None, "The run's name.", "the corpus's name and a number"] = None
    init_from: Annotated[
        str | None,
        "A run's name, or the path of a run or a model file, whose weights a new run starts with; "
        "its vocabulary grows, its layout stays.",
    ] = None
    checkpoints: Checkpoints = Path("checkpoints")
    data: Data = Path("data")
    device: OnDevice = "auto"
    log: Annotated[
        Tracker | None,
        "Send the records of metrics.jsonl to a tracker, too: the run's folder tensorboard.",
    ] = None

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("checkpoints", "data"):
            object.__setattr__(self, name, Path(getattr(self, name)))

"""What a sample copied, beside what a text that nobody trained on copies."""

from __future__ import annotations

from typing import Any

from gpt.reading.novelty import Novelty
from gpt.view.characters import cut, escape, label

LONGEST = 60  # cells of the copied run that are shown


def novelty_line(found: Novelty) -> str:
    """Longest copy, where it stands, and the baseline."""
    copy = found.longest
    shown = "".join(label(each) if each in "\n\t\r" else each for each in copy.text)
    times = "once" if copy.times == 1 else f"{copy.times:,} times"
    where = (
        f" ({times}, first at {copy.at:,}): “{cut(escape(shown), LONGEST)}”" if copy.text else ""
    )
    return (
        f"novelty: {len(copy)} of {found.characters} characters in one piece from the training text"
        f"{where} · the validation text copies {found.median} at a time, {found.largest} at most"
    )


def novelty_record(found: Novelty, prompt: int = 0) -> dict[str, Any]:
    """For programs; positions in characters.

    start: of the copy in prompt and sample together, as JSON gives them; at: in the training text.
    """
    copy = found.longest
    return {
        "characters": found.characters,
        "copied": len(copy),
        "text": copy.text,
        "start": prompt + copy.start,
        "at": copy.at,
        "times": copy.times,
        "validation": {"median": found.median, "largest": found.largest},
    }

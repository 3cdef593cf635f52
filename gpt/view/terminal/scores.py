"""How good a model's loss is: in nats and bits, and beside another model."""

from __future__ import annotations

from typing import Any

from gpt.reading.paired import Paired
from gpt.reading.score import Score
from gpt.view.records import picked
from gpt.words import counted


def score_line(score: Score, in_context: Score | None = None) -> str:
    """ "1.6693 nats, 2.408 bits a character · perplexity 5.31 · 111,539 characters predicted".

    in_context: the same characters in overlapping windows.
    """
    line = (
        f"{score.nats:.4f} nats, {score.bits:.3f} bits a character · perplexity "
        f"{score.perplexity:.3f} · {counted(f'{score.characters:,}', 'character')} predicted"
    )
    if score.gpt is not None and score.counting is not None:
        line += (
            f" · the GPT alone {score.gpt:.4f}, counting alone {score.counting:.4f} nats"
            f" · the probabilities of all characters sum to 1 within {score.sum_error:.0e}"
        )
    if in_context is None:
        return line
    return (
        f"{line} · with at least half a window of context: {in_context.nats:.4f} nats, "
        f"{in_context.bits:.3f} bits a character"
    )


def score_record(score: Score) -> dict[str, Any]:
    """A score's numbers, for programs."""
    record = picked(score, "nats", "bits", "perplexity", "characters")
    if score.gpt is None:
        return record
    alone = {"gpt_nats": score.gpt, "counting_nats": score.counting}
    return record | alone | {"sum_error": score.sum_error}


def paired_line(name: str, against: str, found: Paired) -> str:
    """Two models' means, the 95 % interval of their difference, and which model is better."""
    if found.interval is None:
        rests, verdict = " (the text is too short for an interval)", "too close to tell"
    else:
        low, high = found.interval
        rests = f" (95 % interval {low:+.4f} to {high:+.4f})"
        better = name if found.difference > 0 else against
        least = (
            f"too close to tell: this text shows differences from {found.detectable:.4f} nats on"
        )
        verdict = f"{better} predicts better" if found.sure else least
    return (
        f"{name} {found.first:.4f}, {against} {found.second:.4f} nats a character · difference "
        f"{found.difference:+.4f}{rests} · {verdict} · this compares two models; to compare "
        "recipes, train several seeds of each"
    )


def paired_record(found: Paired) -> dict[str, Any]:
    """For programs. interval: 95 %; error and interval are null if the text is too short."""
    record = picked(
        found,
        *("first", "second", "difference", "error", "freedom", "interval", "detectable", "sure"),
        "characters",
    )
    return record if found.freedom else record | {"error": None}

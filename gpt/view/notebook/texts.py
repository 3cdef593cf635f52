"""Texts and how well they are predicted: surprises, scores, two models compared, samples."""

from __future__ import annotations

from itertools import groupby

import numpy as np

from gpt.reading.paired import Paired
from gpt.reading.sampler import Sample
from gpt.reading.score import Score, Surprises
from gpt.view.notebook.card import Cell, card, decimal, facts, label, note, safe, table
from gpt.view.terminal.surprise import AFTER, BEFORE, FULL
from gpt.words import bits, counted

WORST = 8  # largest surprises that are listed
HINTED = 1_500  # characters up to which each one says its surprise under the mouse
MOST = 8_000  # characters of a text that are coloured
LONGEST_SAMPLE = 40_000  # characters of a sample that are shown
LONGEST_PROMPT = 4_000  # characters of its prompt that are shown, the last ones


def score(found: Score) -> str:
    """The loss in nats and bits, and of a model with counting each expert's."""
    big = (
        f'<p class="big">{found.bits:.3f} <small>bits a character</small> &nbsp; '
        f"{found.nats:.4f} <small>nats</small></p>"
    )
    alone = {} if found.gpt is None else {"the GPT alone": f"{found.gpt:.4f} nats"}
    if found.counting is not None:
        alone["counting alone"] = f"{found.counting:.4f} nats"
    guess = f"perplexity {found.perplexity:.2f}: as uncertain as among so many equal characters"
    predicted = counted(f"{found.characters:,}", "character")
    return card("Score", f"{predicted} predicted", big, facts(alone), note(guess))


def surprises(found: Surprises) -> str:
    """The text, coloured by surprise, and the largest surprises."""
    facts_ = f"{len(found.nats):,} characters · mean {found.score.bits:.3f} bits a character"
    if not found.text:
        why = note("This result was made without its text; run.surprises(text) shows it in colour.")
        return card("Surprise", facts_, why)
    text = found.text[:MOST]
    values = [0.0, *bits(found.nats[: len(text) - 1]).tolist()]
    levels = [min(int(FULL), round(value)) for value in values]
    if len(text) <= HINTED:
        spans = [
            f'<b class="s{level}" title="{_hint(found, place)}">{_shown(character)}</b>'
            for place, (character, level) in enumerate(zip(text, levels, strict=True))
        ]
    else:
        runs = groupby(zip(text, levels, strict=True), key=lambda pair: pair[1])
        spans = [
            f'<b class="s{level}">{"".join(_shown(each) for each, _ in pairs)}</b>'
            for level, pairs in runs
        ]
    cut = f"The first {MOST:,} of {len(found.text):,} characters." if text != found.text else ""
    steps = "".join(
        f'<b class="s{level}">{level}{"+" * (level == FULL)}</b>' for level in range(int(FULL) + 1)
    )
    legend = f'<p class="note legend">bits of surprise {steps}</p>'
    coloured = f'<div class="text" dir="auto">{"".join(spans)}</div>'
    return card("Surprise", facts_, coloured, legend, note(cut), _worst(found))


def _worst(found: Surprises) -> str:
    rows: list[list[str | Cell]] = []
    for place in np.argsort(-found.nats, kind="stable")[:WORST].tolist():
        at = place + 1
        before, after = found.text[max(0, at - BEFORE) : at], found.text[at + 1 : at + 1 + AFTER]
        around = f"{_flat(before)}[{label(found.text[at])}]{_flat(after)}"
        expected = label(found.characters[found.likeliest[place]])
        surprise = decimal(float(bits(found.nats[place])), 1)
        chance = decimal(float(found.chances[place]), 2)
        rows.append([f"{at:,}", surprise, label(found.text[at]), f"{expected} {chance}", around])
    headings = ["at", "bits", "character", "expected", "in the text"]
    inside = table(headings, rows, left=(2, 3, 4))
    return f"<details><summary>The largest surprises</summary>{inside}</details>"


def _hint(found: Surprises, place: int) -> str:
    if not place:
        return "the first character is not predicted"
    expected = label(found.characters[found.likeliest[place - 1]])
    surprise, chance = float(bits(found.nats[place - 1])), float(found.chances[place - 1])
    return safe(f"{surprise:.1f} bits; expected {expected} {chance:.2f}")


def _shown(character: str) -> str:
    if character == "\n":
        return "⏎\n"
    return safe(character if character == " " else label(character))


def _flat(text: str) -> str:
    return "".join(each if each == " " else label(each) for each in text)


def paired(found: Paired) -> str:
    """Both losses, and the interval of their difference."""
    difference = f"{found.difference:+.4f}".replace("-", "−")
    rows = [
        [name, f"{nats:.4f}", f"{bits(nats):.3f}"]
        for name, nats in zip(found.names, (found.first, found.second), strict=True)
    ]
    losses = table(["model", "nats", "bits a character"], rows)
    if found.interval is None:
        verdict = "The text is too short for an interval."
    else:
        low, high = (f"{each:+.4f}".replace("-", "−") for each in found.interval)
        better = found.names[int(found.difference < 0)]
        verdict = f"{better} predicts better." if found.sure else "Too close to tell."
        difference += f" nats, 95 % interval {low} to {high}"
    remark = "This compares two models; to compare recipes, train several seeds of each."
    lines = f'<p>difference {safe(difference)}</p><p class="title">{safe(verdict)}</p>'
    about = f"{found.characters:,} characters under both models"
    return card("Two models", about, losses, _interval(found), lines, note(remark))


def _interval(found: Paired) -> str:
    """A line with 0, the difference and its interval."""
    if found.interval is None:
        return ""
    reach = 1.15 * max(*map(abs, found.interval), 1e-9)
    low, middle, high, zero = (
        320 + 280 * each / reach
        for each in (found.interval[0], found.difference, found.interval[1], 0)
    )
    first, second = (safe(name) for name in found.names)
    return (
        '<svg viewBox="0 0 640 56" width="640" height="56" role="img" aria-label="interval">'
        f'<line class="grid" x1="{zero:.1f}" x2="{zero:.1f}" y1="6" y2="40"/>'
        f'<line class="val" x1="{low:.1f}" x2="{high:.1f}" y1="22" y2="22"/>'
        f'<circle class="dot" cx="{middle:.1f}" cy="22" r="5"/>'
        f'<text x="{zero:.1f}" y="53" text-anchor="middle">0</text>'
        f'<text x="30" y="53">← {second} better</text>'
        f'<text x="610" y="53" text-anchor="end">{first} better →</text></svg>'
    )


def sample(found: Sample) -> str:
    """The prompt, dimmed, and its continuation."""
    prompt, rest = str(found)[: found.prompt][-LONGEST_PROMPT:], str(found)[found.prompt :]
    cut = f"The first {LONGEST_SAMPLE:,} new characters of {len(rest):,}; print() shows all."
    parts = f'<b class="prompt">{safe(prompt)}</b>{safe(rest[:LONGEST_SAMPLE])}'
    text = f'<div class="text" dir="auto">{parts}</div>'
    new = counted(f"{len(rest):,}", "new character")
    return card("Sample", new, text, note(cut if len(rest) > LONGEST_SAMPLE else ""))

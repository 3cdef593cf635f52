"""The next character's distribution as bars, before and after temperature and filters."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.text import Text

from gpt.config import SampleConfig
from gpt.config.fields import flag_of
from gpt.config.sample import SHAPING
from gpt.heads.next_character import Following
from gpt.view.characters import label, pad
from gpt.view.records import rounded
from gpt.view.terminal.lines import BOLD, DIM, Page, number, styled
from gpt.view.words import counted

SCHEMA = 2  # 2: "after_filters" (probabilities after temperature and filters) replaces "drawn"
LONGEST = 32  # cells of a bar
_EIGHTHS = " ▏▎▍▌▋▊▉"
_GONE, _LEFT = "red", "cyan"


def bars(
    found: Following, characters: str, config: SampleConfig, most: int, page: Page
) -> list[Text]:
    """The `most` likeliest characters; bars show what the model expects, removed ones are red.

    A second column has the probabilities after temperature and filters, if these change any.
    """
    order = np.argsort(-found.expected, kind="stable")
    shown = order[:most].tolist()
    names = [label(characters[token], page.ascii_only) for token in shown]
    widest = max(map(_cells, names))
    changed = found.changed
    notes = [_note(found, token, page) if changed else "" for token in shown]
    aside = max(map(len, [*notes, "after" * changed]))
    longest = LONGEST
    digits = page.precision + 2
    if page.width is not None:
        longest = max(4, min(LONGEST, page.width - widest - digits - aside - 5))
    lines = styled(_settings(config, changed), page, BOLD)
    second = "after" if changed else ""
    heading = pad("", widest + 2) + pad("expected", longest + digits + 2) + second
    lines.append(Text(heading.rstrip(), DIM))
    largest = float(found.expected[order[0]])
    for token, name, note in zip(shown, names, notes, strict=True):
        chance = float(found.expected[token])
        gone = found.removed[token] >= 0
        line = Text(f"{pad(name, widest)}  {number(chance, page)} ")
        line.append(_bar(chance / largest, longest, page), _GONE if gone else _LEFT)
        lines.append(line.append(f" {note}" if note else "", DIM if gone else ""))
        lines[-1].rstrip()
    rest = order[most:]
    if rest.size:
        left_over = number(float(found.expected[rest].sum()), page)
        text = f"rest: {counted(rest.size, 'character')} {left_over} expected"
        kept = f"{number(float(found.filtered[rest].sum()), page)} after"
        lines += _dim([text, *([kept] if changed else [])], page)
    before, after = found.entropies
    left = int((found.filtered > 0).sum())
    facts = [f"the longest bar is {number(largest, page)}", f"{before:.2f} bits expected"]
    if changed:
        facts += [f"{after:.2f} bits after", f"{left} of {len(characters)} characters left"]
    return lines + _dim(facts, page)


def following_record(
    found: Following, characters: str, config: SampleConfig, origin: dict[str, Any]
) -> dict[str, Any]:
    """For programs: every character, the likeliest first."""
    before, after = found.entropies
    return {
        "schema": SCHEMA,
        **origin,
        **{name: getattr(config, name) for name in SHAPING},
        "bits": {"expected": before, "after_filters": after},
        "characters": [
            {
                "character": characters[token],
                "id": token,
                "expected": rounded(found.expected[token]),
                "after_filters": rounded(found.filtered[token]),
                "removed_by": SHAPING[found.removed[token]] if found.removed[token] >= 0 else None,
            }
            for token in np.argsort(-found.expected, kind="stable").tolist()
        ],
    }


def _settings(config: SampleConfig, changed: bool) -> list[str]:
    """ "after: temperature 0.8", "top-k 5"; "temperature 1", "no change"."""
    given = [(name, getattr(config, name)) for name in SHAPING]
    words = [f"{flag_of(name)[2:]} {value:g}" for name, value in given if value is not None]
    return [f"after: {words[0]}", *words[1:]] if changed else [*words, "no change"]


def _note(found: Following, token: int, page: Page) -> str:
    """Its probability after temperature and filters, or the filter that removed it."""
    if found.removed[token] >= 0:
        return f"removed by {flag_of(SHAPING[found.removed[token]])[2:]}"
    return number(float(found.filtered[token]), page)


def _bar(share: float, longest: int, page: Page) -> str:
    """As many cells as the share of the longest, in eighths where the page allows."""
    if page.ascii_only:
        return pad("#" * round(share * longest), longest)
    eighths = round(share * longest * 8)
    return pad("█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip(), longest)


def _cells(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)


def _dim(words: list[str], page: Page) -> list[Text]:
    return styled(words, page, DIM)

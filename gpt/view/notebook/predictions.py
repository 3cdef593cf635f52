"""The next character: its distribution, at every depth, and of each expert at every position."""

from __future__ import annotations

import numpy as np

from gpt.characters import cut
from gpt.config.fields import flag_of
from gpt.config.sample import SHAPING
from gpt.heads.next_character import Experts, Following, Lens
from gpt.view.notebook.card import (
    MOST_ROWS,
    Cell,
    card,
    decimal,
    label,
    legend,
    note,
    shortened,
    table,
)
from gpt.words import counted

MOST = 15  # characters of one distribution that are shown


def name_of(characters: str, token: int) -> str:
    """The label of a character; its id if the vocabulary is not known."""
    return label(characters[token]) if characters else f"id {token}"


def following(found: Following) -> str:
    """The likeliest characters with bars; with filters, what is left of them."""
    order = np.argsort(-found.expected, kind="stable")
    shown = order[:MOST].tolist()
    columns = {"expected": found.expected}
    if found.experts is not None:
        columns |= {"GPT": found.experts.gpt, "counting": found.experts.counting}
    if found.changed:
        columns["after filters"] = found.filtered
    rows: list[list[str | Cell]] = []
    for token in shown:
        gone = int(found.removed[token])
        row: list[str | Cell] = [name_of(found.characters, token)]
        for name, each in columns.items():
            classes = "bar gone" if gone >= 0 and name == "expected" else "bar"
            row += [decimal(float(each[token])), Cell("", classes, float(each[token]))]
        reason = f"removed by {flag_of(SHAPING[gone])[2:]}" if gone >= 0 else ""
        rows.append([*row, reason] if found.changed else row)
    headings = ["", *(part for name in columns for part in (name, ""))]
    headings += [""] if found.changed else []
    rest = float(found.expected[order[MOST:]].sum())
    words = [
        f"{flag_of(name)[2:]} {getattr(found.config, name)}"
        for name in SHAPING
        if getattr(found.config, name) is not None
    ]
    before, after = found.entropies
    facts = [f"{len(order)} characters", f"entropy {before:.2f} bits"]
    facts += [f"after {', '.join(words)}: {after:.2f} bits"] if found.changed else []
    title = "Next character" + (f" after “{_end(found.text)}”" if found.text else "")
    left = (0, len(headings) - 1) if found.changed else (0,)
    remark = f"{len(order) - MOST} further characters: {decimal(rest)}" if order[MOST:].size else ""
    symbols = legend(found.characters[token] for token in shown) if found.characters else ""
    return card(
        title,
        " · ".join(facts),
        table(headings, rows, left),
        note(remark),
        symbols,
    )


def lens(found: Lens) -> str:
    """A row for each position, a column for each depth: the likeliest next character."""
    depths, places, _ = found.ids.shape
    rows: list[list[str | Cell]] = []
    for place in range(min(places, MOST_ROWS)):
        cells = [
            _guess(found, depth, place, found.text[place + 1 : place + 2])
            for depth in range(depths)
        ]
        rows.append([f"{place} {label(found.text[place])}" if found.text else str(place), *cells])
    headings = ["after", "embedded", *(f"layer {layer}" for layer in range(depths - 1))]
    title = "Logit lens" + (f" of “{cut(found.text, 40)}”" if found.text else "")
    meaning = (
        "Each cell: the likeliest next character if the model stopped after this layer, and its "
        "probability; in colour if the text continues with it. A heuristic: only the last column "
        "is the model."
    )
    symbols = legend(found.text)
    table_ = table(headings, rows)
    return card(
        title, f"{places} positions", table_, shortened(places, "positions"), note(meaning), symbols
    )


def _guess(found: Lens, depth: int, place: int, next_one: str) -> Cell:
    ids, chances = found.ids[depth, place].tolist(), found.probabilities[depth, place].tolist()
    names = [name_of(found.characters, token) for token in ids]
    text = f"{names[0]} {decimal(chances[0], 2)}"
    right = bool(next_one) and found.characters[ids[0]] == next_one
    pairs = zip(names[:4], chances, strict=False)
    hint = "  ".join(f"{name} {decimal(chance, 2)}" for name, chance in pairs)
    return Cell(text, "good" if right else "dim", chances[0] if right else None, hint)


def experts(found: Experts) -> str:
    """A row for each position: what the GPT, counting and both expect most, and their weights."""
    every = {"GPT": found.gpt, "counting": found.counting, "both": found.both}
    weights = np.atleast_2d(found.weights)
    chances = {name: np.atleast_2d(each) for name, each in every.items()}
    lengths, totals = np.atleast_1d(found.lengths), np.atleast_1d(found.totals)
    rows: list[list[str | Cell]] = []
    for place in range(min(len(weights), MOST_ROWS)):
        guesses = []
        for each in chances.values():
            best = int(each[place].argmax())
            chance = float(each[place, best])
            text = f"{name_of(found.characters, best)} {decimal(chance, 2)}"
            right = found.characters[best : best + 1] == found.text[place + 1 : place + 2] != ""
            guesses.append(Cell(text, "good" if right else "", chance if right else None))
        after = label(found.text[place]) if found.text else ""
        mixed = [decimal(float(weight), 2) for weight in weights[place]]
        history = [str(int(lengths[place])), f"{int(totals[place]):,}"]
        rows.append([f"{place} {after}".rstrip(), *guesses, *mixed, *history])
    headings = ["after", *chances, "weight GPT", "weight counting", "history", "seen"]
    meaning = (
        "Each cell: the likeliest next character and its probability; in colour if the text "
        "continues with it. both = GPT^weight × counting^weight, scaled to sum 1. history: "
        "characters before it that counting used; seen: how often it saw them."
    )
    table_ = table(headings, rows)
    facts = counted(len(weights), "position")
    return card("Experts", facts, table_, shortened(len(weights), "positions"), note(meaning))


def _end(text: str, most: int = 40) -> str:
    """The end of a text on one line."""
    end = "".join(label(each) if each in "\n\t\r" else each for each in text[-most:])
    return f"…{end}" if len(text) > most else end

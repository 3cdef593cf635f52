"""Scores of pairs: in one line, the worst pairs, target characters in colour, for programs."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.text import Text

from gpt.reading.pairs import PairScores
from gpt.reading.score import Surprises
from gpt.view.records import rounded
from gpt.view.terminal.lines import BOLD, Page, number, styled
from gpt.view.terminal.scores import score_record
from gpt.view.terminal.surprise import coloured
from gpt.vocabulary import FIRST, LAST
from gpt.words import counted


def pairs_line(found: PairScores) -> str:
    """ "0.1234 nats, 0.178 bits a target character · 71.20 % of 5,811 sources exact · …" """
    score, sources = found.score, int(found.firsts.sum())
    return (
        f"{score.nats:.4f} nats, {score.bits:.3f} bits a target character · {exact_share(found)} "
        f"of {counted(f'{sources:,}', 'source')} exact · character error rate "
        f"{100 * found.error_rate:.2f} % · {counted(f'{len(found.lines):,}', 'pair')}, "
        f"{counted(f'{score.characters:,}', 'character')} predicted, ends of targets included"
    )


def exact_share(found: PairScores) -> str:
    """ "71.20 %" """
    return f"{100 * found.exact:.2f} %"


def worst_pairs(found: PairScores, most: int, page: Page, place: str = "line") -> list[Text]:
    """The pairs with the most nats a target character: the pair, what the model wrote, its line.

    place: what the numbers of lines count.
    """
    order = np.argsort(-found.means, kind="stable")[:most].tolist()
    lines = styled(["worst pairs", "nats a target character"], page, BOLD) if order else []
    for worst in order:
        written = "exact" if found.distances[worst] == 0 else "wrong"
        facts = [
            f"{number(float(found.means[worst]), page):>5} nats",
            f"{place} {found.lines[worst]:,}",
            f"{found.sources[worst]} → {found.targets[worst]}",
            f"{written}: {found.written[worst]}",
        ]
        lines += styled(facts, page)
    return lines


def coloured_pairs(found: PairScores, page: Page, digits: bool) -> list[Text]:
    """The pairs, a line each; target characters and ends have the colour of their surprise.

    digits: shows each one's bits, rounded, below it.
    """
    text, nats = "", list[float]()
    sides = zip(found.sources, found.targets, np.split(found.nats, found.ends[:-1]), strict=True)
    for source, target, surprises in sides:
        text += f"{source}{FIRST}{target}{LAST}"
        nats += [np.nan] * (len(source) + len(FIRST)) + surprises.tolist()
    none = np.zeros(len(nats) - 1, np.int64)
    return coloured(text, Surprises(np.array(nats[1:]), none, none.astype(float)), page, digits)


def pairs_record(found: PairScores) -> dict[str, Any]:
    """For programs. exact, error_rate: shares of 1."""
    numbers = {"exact": rounded(found.exact), "error_rate": rounded(found.error_rate)}
    counts = {"pairs": len(found.lines), "sources": int(found.firsts.sum())}
    return {**score_record(found.score), **counts, **numbers}


def each_pair(found: PairScores, characters: bool, place: str = "line") -> list[dict[str, Any]]:
    """For programs: every pair. characters: with the nats of each target character and its end.
    place: what the numbers of lines count.
    """
    names = ("lines", "sources", "targets", "written", "distances")
    columns = [list(getattr(found, name)) for name in names]
    surprises = np.split(found.nats, found.ends[:-1])
    records = []
    for values, mean, nats in zip(
        zip(*columns, strict=True), found.means.tolist(), surprises, strict=True
    ):
        line, source, target, written, distance = values
        record = {place: int(line), "source": source, "target": target, "written": written}
        record |= {"exact": int(distance) == 0, "distance": int(distance), "nats": rounded(mean)}
        records.append(record | ({"each": rounded(nats)} if characters else {}))
    return records

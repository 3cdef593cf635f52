"""The hand-built model of the lessons "induction" and "depth", word by word in plain Python."""

from __future__ import annotations

import math
from typing import Any

from gpt.lessons.lesson import Lesson


def table(told: Lesson, name: str) -> Any:
    (found,) = (each for step in told.steps for each in step.tables if each.name == name)
    return found


def softmax(row: list[float]) -> list[float]:
    exponentials = [math.exp(each) for each in row]
    return [each / sum(exponentials) for each in exponentials]


def numbers_of(words: tuple[str, ...], previous: float = 1) -> dict[str, list[list[float]]]:
    """Both layers, place by place: 8 is the score of a match, 5 the logit of a copied word."""
    read = ("(start)", *words)
    known = list(dict.fromkeys(read))
    looking, before, scores, weights, copied, p = [], [], [], [], [], []
    for t in range(len(read)):
        row = softmax([8.0 if s == t - 1 else 0.0 for s in range(t + 1)])
        looking.append(row + [0.0] * (len(read) - t - 1))
        before.append([previous * sum(row[s] for s in range(t + 1) if read[s] == w) for w in known])
    for t, word in enumerate(read):
        scores.append([8 * before[s][known.index(word)] for s in range(len(read))])
        row = softmax(scores[-1][: t + 1])
        weights.append(row + [0.0] * (len(read) - t - 1))
        copied.append([sum(row[s] for s in range(t + 1) if read[s] == w) for w in known])
        p.append(softmax([5 * each for each in copied[-1]]))
    found = {"looking": looking, "before": before, "scores": scores}
    return {**found, "weights": weights, "next": copied, "p": p}

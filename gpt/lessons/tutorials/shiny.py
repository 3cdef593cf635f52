"""The lesson "shiny": three words by hand, and the effect of early rounding."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from gpt.lessons.lesson import Material, Step
from gpt.lessons.tables import check_equal, input_tensor, table

#: The tutorial's numbers: "shiny" as the sum of three weighted rows, each rounded before the sum.
PRINTED_PARTS = torch.tensor(
    ((0.0779, 0.0504, 0.1237), (0.2156, 0.1382, 0.3983), (0.1057, 0.1972, 0.3390)),
    dtype=torch.float64,
)
PRINTED = torch.tensor((0.3992, 0.3858, 0.8610), dtype=torch.float64)
LAST_DIGIT = 1e-4


def steps(material: Material) -> Iterator[Step]:
    """Scores, weights and context of one word, compared with the tutorial's printed numbers."""
    x, words, query = input_tensor(material), material.words, material.query
    word = words[query]
    scores = x @ x[query]
    title, prose = "Three words", "This sentence is short enough for paper and pencil."
    if material.own:
        title, prose = _counted(words)
    yield Step(
        title,
        f"{prose} This lesson follows “{word}”.",
        "score[j] = x[query] · x[j]",
        (
            table("inputs", x, rows=words),
            table(f"scores of “{word}”", scores, f"inputs @ inputs[{query}]", columns=words),
        ),
    )
    exponentials = scores.exp()
    weights = F.softmax(scores, dim=0)
    finite = bool(exponentials.isfinite().all())
    yield Step(
        "Weights",
        "The exponential of each score is divided by the sum of all exponentials.",
        "weight[j] = exp(score[j]) / Σ exp(score[k])",
        (
            table("exp(score)", exponentials, "exp(scores)", columns=words),
            table(f"weights of “{word}”", weights, "softmax(scores)", columns=words),
        ),
        checks=(check_equal("by hand = softmax", exponentials / exponentials.sum(), weights),)
        * finite,
    )
    parts = weights[:, None] * x
    context = parts.sum(dim=0)
    yield Step(
        "The context vector",
        f"The context of “{word}” is the mean of the rows with these weights.",
        "context = Σ weight[j] × x[j]",
        (
            table("weight × row", parts, "weights[:, None] * inputs", rows=words),
            table(f"context of “{word}”", context, "weights @ inputs"),
        ),
        checks=(check_equal("sum of the parts = weights · inputs", context, weights @ x),),
    )
    if not material.own:
        yield _rounding(parts, context, words)


def _counted(words: tuple[str, ...]) -> tuple[str, str]:
    """A title and a first sentence for the user's own words or characters."""
    count = len(words)
    if count == 1:
        return "One word", "A single word can only attend to itself: its weight is 1."
    if all(len(word) == 1 for word in words):
        return (
            f"{count} characters",
            "Each character is treated as a word here and has its own row.",
        )
    return f"{count} words", "All steps are shown for one of them, as with paper and pencil."


def _rounding(parts: Tensor, context: Tensor, words: tuple[str, ...]) -> Step:
    """The exact context compared with the one that the tutorial prints."""
    both = torch.stack((context, PRINTED, PRINTED - context))
    return Step(
        "Two results for one sum",
        "The tutorial that this example comes from prints 0.3992, 0.3858, 0.8610. Exact arithmetic "
        "gives 0.3990, 0.3854, 0.8610. The method is right, but the parts were computed by hand "
        "and rounded before they were added, and the small errors add up.",
        tables=(
            table("exact, printed, difference", both, rows=("exact", "printed", "difference")),
            table("printed parts", PRINTED_PARTS, rows=words),
            table("printed − exact parts", PRINTED_PARTS - parts, rows=words),
        ),
        notice="Keep all digits to the end and round once, as this program does.",
        checks=(
            check_equal(
                "the printed parts give the printed sum", PRINTED_PARTS.sum(dim=0), PRINTED, 1e-9
            ),
            check_equal(
                "printed and exact differ by at most 0.0004", PRINTED, context, 4.5 * LAST_DIGIT
            ),
        ),
    )

"""The lesson "depth": what layers add to the stream, and what a second layer makes possible.

Tensor names: T places, C columns, N random models, P parts of the stream, V words.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from gpt.checks import Check
from gpt.lessons.lesson import Material, Step, name_of
from gpt.lessons.tables import check_equal, table, torch_seed
from gpt.lessons.tutorials.induction import LOGIT, SCORE, TEXT, TwoLayers

DEPTHS = ("embedding", "layer 0", "layer 1")
#: The letter that followed the first a comes right after the last a: b twice, then d twice.
TEXTS, ANSWERS, LETTERS = ("abcda", "cdaba", "adcba", "cbada"), "bbdd", "abcd"
SEED, WIDTH, MODELS = 123, 8, 2_000


def steps(material: Material) -> Iterator[Step]:
    """The sum of all layers, the logit lens, and what one layer and two can do."""
    words = material.words if material.own else TEXT
    model = TwoLayers(words)
    added, names, parts = model.added, model.vocabulary, model.parts
    sums, stream = added[:, -1].cumsum(dim=0), model.run_with_torch()[-1]  # (3, C), (C,)
    rows = torch.cat((added[:, -1], sums[2:]))
    by_word = partial(table, rows=(*DEPTHS, "sum"), columns=names)
    yield Step(
        "The stream is a sum",
        "A layer adds its result to the stream and replaces nothing (He et al. 2016). So the "
        "stream after the last layer is the sum of the embedding and of what each layer has added. "
        f"Here the two layers of the lesson “induction” read “{' '.join(words)}”. After the first "
        "table, each table has some columns of one row of the stream: that of the last word.",
        "stream = embedding + Σ layer(the stream before it)",
        (
            by_word("words", added[0, 1:, parts["word"]], rows=words),
            *(by_word(f"columns “{n}”", rows[:, parts[n]]) for n in ("word", "before", "next")),
            by_word("columns “place”", rows[:, parts["place"]], columns=()),
        ),
        "Each layer writes into its own columns here. In trained models, layers share all columns.",
        (check_equal("sum = torch’s attention", sums[2], stream),),
    )
    logits = LOGIT * torch.cat((rows[:3], stream[None]))[:, parts["next"]]
    yield show_shares(DEPTHS, names, logits[:3], model.predict(sums), logits[3])
    yield from _compare(material.seed_or(SEED))


def show_shares(
    parts: tuple[str, ...], names: tuple[str, ...], shares: Tensor, lens: Tensor, logits: Tensor
) -> Step:
    """What P parts of the stream add to logits, (P, V), and the predictions after each part, or
    after the first ones, (≤ P, V). names, logits: of V words or characters, not necessarily all.
    """
    total, best = shares.sum(dim=0), int(logits.argmax())
    ratios = (logits - logits[best]).exp()
    return Step(
        "Shares of a logit, and the logit lens",
        "A logit is a product with the stream. As the stream is a sum, so is the logit: each part "
        "has a share of it (Elhage et al. 2021). Trained GPTs normalise the stream first; with its "
        "scale kept, this still holds. And what would the model predict if it ended after some "
        "layer? The logit lens applies the output matrix there (nostalgebraist 2020). In trained "
        "models it is a heuristic: earlier layers need not use what the output reads.",
        "logits = W · stream = Σ W · part    lens = softmax(W · stream so far)",
        (
            table("shares", torch.vstack((shares, total)), rows=(*parts, "sum"), columns=names),
            table("lens", lens, rows=parts[: len(lens)], columns=names),
        ),
        f"The largest share of “{name_of(names[best])}” is that of "
        f"{parts[int(shares[:, best].argmax())]}. A share does not show what a layer does for "
        "later ones.",
        (
            check_equal("sum of shares = logits", total, logits),
            check_equal("last lens = e^logit / Σ", lens[-1] / lens[-1, best], ratios),
        ),
    )


def _read(text: str, seed: int) -> tuple[Tensor, Tensor]:
    """What N models with one layer and one random head compute for a text of LETTERS: (N, T) scores
    of the last query, and (N, T) logit b − logit d if one place had all the weight.
    """
    with torch_seed(seed):
        words, places = (torch.randn(MODELS, n, WIDTH) for n in (len(LETTERS), len(text)))
        query, key, value = torch.randn(3, MODELS, WIDTH, WIDTH).double() / WIDTH**0.5
        output = torch.randn(MODELS, WIDTH, 1).double()  # the output row of b minus that of d
    x = (words[:, [LETTERS.index(each) for each in text]] + places).double()  # (N, T, WIDTH)
    scores = (x @ key) @ (x[:, -1:] @ query).transpose(1, 2) / WIDTH**0.5
    return scores[..., 0], ((x[:, -1:] + x @ value) @ output)[..., 0]


def _compare(seed: int) -> Iterator[Step]:
    """What one layer cannot do, whatever its weights, and two layers can do."""
    read, models = [_read(text, seed) for text in TEXTS], [TwoLayers((*text,)) for text in TEXTS]
    scores, adds = (torch.stack(each) for each in zip(*read, strict=True))  # (4, N, T)
    Z, sums = scores.exp().sum(dim=-1), (scores.exp() * adds).sum(dim=-1)  # (4, N)
    difference = (scores.softmax(dim=-1) * adds).sum(dim=-1)
    signs = torch.tensor([1 if answer == "b" else -1 for answer in ANSWERS])
    right = (difference * signs[:, None] > 0).sum(dim=0)
    counts, nth = right.bincount(minlength=len(TEXTS) + 1), int(right.argmax())
    one = torch.stack([scores[n, nth, text.index("b")] for n, text in enumerate(TEXTS)])
    keys = [(model, model.words.index("b")) for model in models]
    two = torch.stack([m.scores[1][-1, at] for m, at in keys])
    on_a = [m.weights[0][at] @ m.added[0] @ m.added[0, -1] for m, at in keys]
    yield Step(
        "What a score can depend on",
        f"After the texts {', '.join(TEXTS)}, an induction head predicts {', '.join(ANSWERS)}. In "
        "layer 0, a key is made from its own letter and place. So the last a gives b the same "
        "score in the first and in the last text, whatever the weights are. But b follows an a "
        "only in the first of them. Layer 1 also reads what layer 0 wrote, so its scores differ. "
        f"The table has one layer with random weights, seed {seed}, and layer 1 from above.",
        "score = query(last a) · key(b)",
        (table("scores of b", {"one layer": one, "two layers": two}, rows=TEXTS),),
        "With one layer, the first and the last number are equal.",
        (
            check_equal("one layer: equal", one[0], one[3]),
            check_equal("two layers: by layer 0’s weight on a", two, SCORE * torch.stack(on_a)),
        ),
    )
    p = torch.stack([m.p[-1, [m.vocabulary.index(each) for each in "bd"]] for m in models])
    solved = int(((p[:, 0] - p[:, 1]) * signs > 0).sum())
    found = {"difference": difference[:, nth], "Z × diff.": sums[:, nth]}
    found |= {"p of b": p[:, 0], "p of d": p[:, 1]}
    yield Step(
        "One head cannot, two layers can",
        "Let Z be the sum of one head’s exponentials. Then Z times the difference of two logits is "
        "a sum over the text, with one number for each pair of a letter and its place. The first "
        "two texts together have the same pairs as the last two, so both sums are equal. For four "
        "right answers, the first sum would have to be above 0, for b, and the second below 0, for "
        "d. So one layer with one head never has four, whatever its weights are. The first table "
        f"counts {MODELS:,} such models with random weights. The second has one that is right most "
        "often, and the two layers from above.",
        "Z × (logit b − logit d) = Σ exp(score) × (logit b − logit d with all weight there)",
        (
            table("models by right answers", counts, columns=tuple("01234"), digits=0),
            table("one head; p of the two layers", found, rows=TEXTS),
        ),
        f"One head is right {int(right.max())} times at most, the two layers {solved} times. "
        "With several heads, each has its own Z: this proof is for one.",
        (
            check_equal("Z × difference = Σ", difference * Z, sums),
            check_equal("first two = last two", sums[:2].sum(dim=0), sums[2:].sum(dim=0)),
            Check("one head: never four", float(counts[-1]), 0.0),
            Check("two layers: four", float(len(TEXTS) - solved), 0.0),
        ),
    )

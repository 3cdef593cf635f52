"""The lesson "induction": two heads in two layers copy the word that followed an equal word.

Tensor names: T places of the start and the words, V distinct words, C columns of the stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from gpt.lessons.ladder import causal
from gpt.lessons.lesson import Material, Step
from gpt.lessons.tables import check_equal, table

TEXT, START = ("one", "step", "and", "one"), "(start)"
SCORE, LOGIT = 8.0, 5.0  # the score of a match; the logit of a word that is copied with weight 1


class TwoLayers:
    """Two hand-built layers of one head each, and their numbers for a text. previous: the factor of
    what layer 0 writes.

    parts: the columns word, before and next (V each), place (T). W (2, 2, C, C): W_QK and W_OV of
    each layer. scores, weights: (T, T) for each layer. added (3, T, C): the embedding, and what
    each layer adds. p (T, V): probabilities of the next word.
    """

    def __init__(self, words: tuple[str, ...], previous: float = 1) -> None:
        self.words = (START, *words)
        self.vocabulary = tuple(dict.fromkeys(self.words))
        V, T = len(self.vocabulary), len(self.words)
        word, before, then = (slice(n * V, n * V + V) for n in range(3))
        place, one, C = slice(3 * V, None), torch.eye(V).double(), 3 * V + T
        self.parts = {"word": word, "before": before, "next": then, "place": place}
        known = one[[self.vocabulary.index(each) for each in self.words]]
        x = torch.cat((known, torch.zeros(T, 2 * V), torch.eye(T)), dim=1)
        self.W, self.scores, self.weights = torch.zeros(2, 2, C, C).double(), [], list[Tensor]()
        self.W[0, 0, place, place] = SCORE * torch.eye(T + 1).double()[:T, 1:]
        self.W[0, 1, word, before], self.W[1, 1, word, then] = previous * one, one
        self.W[1, 0, word, before], added = SCORE * one, [x]
        for qk, ov in self.W:
            self.scores.append(x @ qk @ x.T)
            self.weights.append(self.scores[-1].masked_fill(~causal(T), -torch.inf).softmax(dim=1))
            added.append(self.weights[-1] @ x @ ov)
            x = x + added[-1]
        self.added, self.p = torch.stack(added), self.predict(x)

    def predict(self, stream: Tensor) -> Tensor:
        """(…, C) -> (…, V) probabilities of the next word."""
        return (LOGIT * stream[..., self.parts["next"]]).softmax(dim=-1)

    def run_with_torch(self) -> Tensor:
        """(T, C) the stream after both layers, by torch's attention."""
        x = self.added[:1]
        for qk, ov in self.W:
            x = x + F.scaled_dot_product_attention(x @ qk, x, x @ ov, is_causal=True, scale=1)
        return x[0]


def steps(material: Material) -> Iterator[Step]:
    """The head of each layer, and what remains without the first one."""
    words = material.words if material.own else TEXT
    model, without, last = TwoLayers(words), TwoLayers(words, previous=0), words[-1]
    rows, names, stream = model.words, model.vocabulary, model.run_with_torch()
    word, before, then, place = model.parts.values()
    by_word, by_query = partial(table, columns=names), partial(table, rows=words, columns=rows)
    x, scores, (looking, weights) = model.added[0, :, word], model.scores[1], model.weights
    found = "”, “".join(after for each, after in pairwise(words) if each == last)
    yield Step(
        "Layer 0: a previous-word head",
        f"What comes after “{' '.join(words)}”? If the last word occurred before, the word that "
        "followed it there is a good guess. GPTs learn to find and copy that word, with an "
        "induction head (Elhage et al. 2021; Olsson et al. 2022), which needs another head in an "
        "earlier layer. Here both are built by hand, without norm and feed-forward. A row of the "
        f"stream has a 1 for its word and a 1 for its place; {START} is at place 0. A score is "
        "x_query · W_QK · x_key, where W_QK = W_Qᵀ · W_K / √D. Layer 0 reads only the places: the "
        f"place just before gets the score {SCORE:g}, others get 0. W_OV = W_O · W_V writes the "
        "word that the head attends to into the columns “before”.",
        "stream = [word, before, next, place]    before = softmax(masked scores) · words",
        (
            by_word("words", x, rows=rows),
            table("W_QK of layer 0, by places", model.W[0, 0, place, place]),
            table("weights of layer 0", looking, rows=rows, columns=rows),
            by_word("before", model.added[1, :, before], rows=rows),
        ),
        f"“{last}” occurred before; after it came “{found}”."
        if found
        else f"“{last}” did not occur before: here is nothing to copy.",
        (check_equal("before = torch’s attention", model.added[1, :, before], stream[:, before]),),
    )
    product = model.W[1, 0, word, before] @ model.W[0, 1, word, before].T
    yield Step(
        "K-composition",
        "In layer 1, W_QK compares the query’s word with the key’s “before”. But layer 0 has made "
        "“before” from words, by its W_OV. So the product of the two matrices has a score for each "
        "pair of a query’s word and the word before a key. One head makes the keys of another: "
        "this is K-composition (Elhage et al. 2021). Here W_OV only copies, so the product equals "
        "W_QK. In trained models, neither matrix alone shows what is compared; the product does.",
        "scores = words · (W_QK · W_OV) · (weights of layer 0 · words)ᵀ",
        (
            by_word("W_QK of layer 1: word, before", model.W[1, 0, word, before], rows=names),
            by_word("W_QK · W_OV: word, word before", product, rows=names),
            by_query("scores of layer 1", scores[1:]),
        ),
        f"If the word before a key equals the query’s word, the score is about {SCORE:g}.",
        (check_equal("scores = by the product", scores, x @ product @ (looking @ x).T),),
    )
    best, flat = int(model.p[-1].argmax()), causal(len(rows)).double()
    yield Step(
        "Layer 1: the induction head",
        "So a word attends to the words that followed an equal word. A new word has no match: its "
        "weights are nearly equal. W_OV writes the word that the head attends to into the columns "
        f"“next”. The output multiplies them by {LOGIT:g}: the logits of the next word.",
        f"weights = softmax(masked)    next = weights · words    p = softmax({LOGIT:g} · next)",
        (
            by_query("weights of layer 1", weights[1:]),
            by_word("next", model.added[2, 1:, then], rows=words),
            by_word("p of the next word", model.p[1:], rows=words),
        ),
        f"The largest weight of the last “{last}” is {float(weights[-1].max()):.4f}; equal weights "
        f"would be {1 / len(rows):.4f}. “{names[best]}” has p = {float(model.p[-1, best]):.4f}.",
        (
            check_equal("stream = torch’s attention", model.added.sum(dim=0), stream),
            check_equal("p = its softmax", model.p, model.predict(stream)),
        ),
    )
    p, changed = model.p[-1], without.p[-1]
    yield Step(
        "Without the first head",
        "Now layer 0’s head writes 0, and layer 1 is computed again. “before” is 0, so all scores "
        "are 0 and the weights are flat. The head copies the mean of all words: the copy is lost.",
        "before = 0    weights[t, s] = 1 / (t + 1)",
        (
            by_query("weights without layer 0", without.weights[1][1:]),
            table("p with and without", {"with": p, "without": changed}, rows=names),
        ),
        f"p of “{names[best]}” was {float(p[best]):.4f} and is {float(changed[best]):.4f}.",
        (
            check_equal(
                "p = torch’s attention", without.p, without.predict(without.run_with_torch())
            ),
            check_equal(
                "weights = 1 / (t + 1)", without.weights[1], flat / flat.sum(dim=1)[:, None]
            ),
        ),
    )

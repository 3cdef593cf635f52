"""The lesson "cross": attention whose keys and values come from another text."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpt.checks import Check
from gpt.config import ModelConfig
from gpt.lessons.ladder import PARTS, CausalAttention, CrossAttention, SelfAttention, causal
from gpt.lessons.lesson import Material, Step
from gpt.lessons.tables import check_equal, error_text, input_tensor, second_text, table, torch_seed
from gpt.model.attention import ATTENTION

SEED = 123


class Pair:
    """Two texts and an attention between them. Tensor names: T target words, S source words.

    source: (S, C) rows of `words`; x: (T, C) random rows of `target`; padding: (1, C).
    """

    def __init__(self, material: Material) -> None:
        self.words, self.target = material.words, second_text(material)
        self.source = input_tensor(material)
        width = self.source.shape[1]
        with torch_seed(material.seed_or(SEED)):
            self.x, self.padding = (torch.rand(n, width).double() for n in (len(self.target), 1))
            attention = CrossAttention(width, width)
            for matrix in attention.parameters():
                nn.init.normal_(matrix)
        self.attention = attention.double().requires_grad_(False)


def steps(material: Material) -> Iterator[Step]:
    """Attention between two texts, its masks, and what two slips break."""
    pair = Pair(material)
    yield from _by_hand(pair)
    yield from _trained(pair)
    yield _padded(pair)
    yield _in_the_model(pair)
    yield _whose_mask(pair)
    yield _whose_length(pair)


def _by_hand(pair: Pair) -> Iterator[Step]:
    """Scores, weights and contexts without matrices, as in the lesson "simple"."""
    x, source, target, words = pair.x, pair.source, pair.target, pair.words
    yield Step(
        "Two texts",
        "A translation has two texts: a model reads the source and writes the target. Each word "
        "of the target depends on words of the source. Cross-attention finds them: queries come "
        "from the target, keys and values from the source. The rows of the target are random "
        "numbers here and have no meaning.",
        tables=(table("source", source, rows=words), table("target", x, rows=target)),
    )
    scores = torch.stack([torch.dot(x[1], each) for each in source])  # (S,)
    one = F.softmax(scores, dim=0)
    yield Step(
        "The query of one target word",
        f"As in the lesson “simple”, the score of “{target[1]}” with a source word is the dot "
        "product of their rows, and softmax turns the scores into weights. The context is a "
        "weighted mean of the source words.",
        "score[j] = target[i] · source[j]    context = Σ weight[j] × source[j]",
        (
            table(f"scores of “{target[1]}”", scores, "source @ target[1]", columns=words),
            table(f"weights of “{target[1]}”", one, "softmax(scores)", columns=words),
            table(f"context of “{target[1]}”", one @ source, "weights @ source"),
        ),
        checks=(check_equal("sum = 1", one.sum(), 1),),
    )
    weights = F.softmax(x @ source.T, dim=-1)  # (T, S)
    yield Step(
        "The queries of all target words",
        f"The weights have {len(x)} rows, one for each target word, and {len(source)} columns, "
        "one for each source word. In self-attention this matrix is square.",
        "weights = softmax(target · sourceᵀ)    contexts = weights · source",
        (
            table("weights", weights, "softmax(target @ source.T)", rows=target, columns=words),
            table("contexts", weights @ source, "weights @ source", rows=target),
        ),
        checks=(
            check_equal(f"row of “{target[1]}” = above", (weights @ source)[1], one @ source),
            check_equal("rows sum to 1", weights.sum(dim=-1), 1),
        ),
    )


def _trained(pair: Pair) -> Iterator[Step]:
    """The steps with matrices: shapes, the missing causal mask, self-attention."""
    x, source, attention = pair.x, pair.source, pair.attention
    target, words = pair.target, pair.words
    T, S, width = len(x), *source.shape
    weights, contexts = attention.weights(x, source), attention(x, source)
    by_keys, by_weights = (
        f"softmax(queries @ keys.T / sqrt({width}))",
        "weights_with_matrices @ values",
    )
    yield Step(
        "With three matrices",
        "`CrossAttention` has the same three matrices as `SelfAttention`, here with random "
        "numbers. W_query multiplies the target; W_key and W_value multiply the source. The "
        "queries must come from the target, because the result has a row for each query, and the "
        f"decoder adds the result to its {T} rows, one for each target word. With the texts "
        f"exchanged, the result has {len(attention(source, x))} rows and cannot be added.",
        "queries = target · W_queryᵀ    keys = source · W_keyᵀ    values = source · W_valueᵀ    "
        "contexts = softmax(queries · keysᵀ / √D) · values",
        (
            *(table(f"W_{part}", getattr(attention, part).weight) for part in PARTS),
            table("queries", attention.query(x), "target @ W_query.T", rows=target),
            table("keys", attention.key(source), "source @ W_key.T", rows=words),
            table("values", attention.value(source), "source @ W_value.T", rows=words),
            table("weights with matrices", weights, by_keys, rows=target, columns=words),
            table("contexts with matrices", contexts, by_weights, rows=target),
        ),
        checks=(check_equal("rows sum to 1", weights.sum(dim=-1), 1),),
    )
    alone = torch.cat([attention(each[None], source) for each in x])
    yield Step(
        "No causal mask",
        "The whole source is known before the first target word is written, so each target word "
        "may attend to all of it. Later target words need no mask, as they are not among the "
        "keys: a target word alone has the same context as together with the others.",
        checks=(check_equal("alone = together", alone, contexts),),
    )
    itself, masked = SelfAttention(width, width).double(), CausalAttention(width, width, S).double()
    for module in (itself, masked):
        module.load_state_dict(attention.state_dict())
    hidden = attention(source, source, causal(S))
    rule = f"softmax(source @ W_query.T @ keys.T / sqrt({width})) @ values"
    yield Step(
        "Self-attention is a special case",
        "If queries, keys and values all come from the source, this is self-attention, as in an "
        "encoder. With the mask of the lesson “causal” it is the self-attention of a GPT.",
        "self-attention(X) = cross-attention(X, X)",
        (table("self-attention of the source", attention(source, source), rule, rows=words),),
        checks=(
            check_equal("= SelfAttention", attention(source, source), itself(source)),
            check_equal("with the mask = CausalAttention", hidden, masked(source)),
        ),
    )


def _padded(pair: Pair) -> Step:
    """Padding, without a mask and with it."""
    x, attention, size = pair.x, pair.attention, len(pair.source)
    padded, allowed = torch.cat((pair.source, pair.padding)), _real(size, size + 1)
    unmasked, weights = attention.weights(x, padded), attention.weights(x, padded, allowed)
    labels = {"rows": pair.target, "columns": (*pair.words, "padding")}
    scores = f"queries @ above(keys, padding @ W_key.T).T / sqrt({x.shape[1]})"
    masked = f"where(range({size + 1}) < {size}, {scores}, -inf)"
    return Step(
        "A mask for padding",
        "The texts of a batch have different lengths, so shorter ones are filled up with padding, "
        "here one random row. Without a mask, padding gets weight and changes the contexts. With "
        "a score of −∞, its weight is exactly 0. The mask has a column for each key.",
        "masked[i, j] = −∞ where source[j] is padding",
        (
            table("padding", pair.padding, rows=("padding",)),
            table("weights without a mask", unmasked, f"softmax({scores})", **labels),
            table("weights with the mask", weights, f"softmax({masked})", **labels),
        ),
        checks=(
            check_equal("padding has weight 0", weights[:, size:], 0, bound=0),
            check_equal("rows sum to 1", weights.sum(dim=-1), 1),
            check_equal(
                "= without padding", attention(x, padded, allowed), attention(x, pair.source)
            ),
        ),
    )


def _real(size: int, padded: int) -> Tensor:
    """(1, padded): True for the first `size` keys, False for padding."""
    return (torch.arange(padded) < size)[None]


def _in_the_model(pair: Pair) -> Step:
    """Shows that the modules of `gpt/model/attention.py` give the same contexts."""
    width, size, own = pair.x.shape[1], len(pair.source), pair.attention
    config = ModelConfig(vocab_size=1, block_size=size, n_head=1, n_embd=width, position="learned")
    packed = torch.cat([getattr(own, part).weight for part in PARTS])  # (3C, C)
    state = {"qkv.weight": packed, "proj.weight": torch.eye(width)}
    memory, allowed = torch.cat((pair.source, pair.padding)), _real(size, size + 1)
    batch = {"memory": memory[None], "allowed": allowed[None]}  # (B, S, C), (B, 1, S)
    found = {}
    for name, form in ATTENTION.items():
        module = form(config).double()
        module.load_state_dict(state)
        found[name] = module(pair.x[None], lambda q, k: (q, k), **batch)[0]
    expected = own(pair.x, memory, allowed)
    return Step(
        "In the model",
        "The model’s attention has the arguments `memory`, the rows that keys and values come "
        "from, and `allowed`, the mask. A GPT without an encoder has no memory: keys and values "
        "come from the same rows as the queries. Both forms of the model’s attention, with the "
        "weights from above, one head and no projection, give the contexts from above.",
        "attention(x, memory=source, allowed=mask)",
        (table("contexts of FusedAttention", found["fused"], rows=pair.target),),
        checks=tuple(
            check_equal(f"{name} = CrossAttention", it, expected) for name, it in found.items()
        ),
    )


def _whose_mask(pair: Pair) -> Step:
    """The slip that uses the target's padding mask in cross-attention, in both directions."""
    size, shown, checks, effects = max(len(pair.source), len(pair.target)), [], [], []
    for name, queries, rows, text, columns in (
        ("target asks source", pair.x, pair.target, pair.source, pair.words),
        ("source asks target", pair.source, pair.words, pair.x, pair.target),
    ):
        S, T = len(text), len(queries)
        filled = torch.cat((text, pair.padding.expand(size - S, -1)))
        weights = pair.attention.weights(queries, filled, _real(T, size))  # slip: not S
        right = pair.attention(queries, filled, _real(S, size))
        change = (weights @ pair.attention.value(filled) - right).abs().max()
        effects.append((max(0, S - T), float(weights[:, S:].sum(dim=-1).mean()), float(change)))
        labels = {"rows": rows, "columns": (*columns, *["padding"] * (size - S))}
        shown.append(table(f"weights, {name}", weights, **labels))
        checks.append(check_equal(f"{name}, repaired", right, pair.attention(queries, text)))
    labels = {"rows": ("target", "source"), "columns": ("hidden", "padding", "change")}
    return Step(
        "Slip 1: the mask of the wrong text",
        "The Transformer of one tutorial uses the padding mask of the queries’ text. Here are the "
        "weights with this slip for the pair from above, and for the same pair in the other "
        f"direction, each filled up to {size} words. If the queries’ text is shorter, its mask "
        "hides real words of the other text. If it is longer, padding gets weight. There is no "
        "error.",
        "mask = target == padding    # must be: source == padding",
        (*shown, table("effects when this text asks", torch.tensor(effects), **labels)),
        "hidden: number of real words without weight. padding: its weight, the mean of the rows. "
        "change: the largest difference from the correct contexts.",
        tuple(checks),
    )


def _whose_length(pair: Pair) -> Step:
    """The slip that reshapes the mask to the number of queries."""
    S, T = len(pair.source), len(pair.target)
    size = min(S, T)

    def scores(mask: Tensor, queries: int, keys: int) -> Tensor:
        """(1, queries, keys), scaled; the mask in the tutorial is True for padding."""
        asked, own = pair.attention.query(pair.x[:queries]), pair.attention.key(pair.source[:keys])
        scaled: Tensor = (asked @ own.T * asked.shape[1] ** -0.5)[None]
        return scaled.masked_fill_(mask.view(1, 1, queries), float("-inf"))  # slip: not keys

    of_source, of_target, equal = (torch.zeros(each, dtype=torch.bool) for each in (S, T, size))
    errors = [error_text(partial(scores, mask, T, S)) for mask in (of_source, of_target)]
    weights = F.softmax(scores(equal, size, size), dim=-1)[0]
    right = pair.attention.weights(pair.x[:size], pair.source[:size])
    both = {"rows": pair.target[:size], "columns": pair.words[:size]}
    return Step(
        "Slip 2: the length of the wrong text",
        "The same head reshapes the mask to (batch, 1, number of queries). This fails for a target "
        f"of {T} words and a source of {S}. With the mask of the source, torch raises {errors[0]}. "
        f"With the mask of the target, as in slip 1, it raises {errors[1]}. The tutorial tests its "
        "model with 10 words in both texts and without padding, so neither slip shows.",
        "mask.view(B, 1, T)    # must be: mask.view(B, 1, S)",
        (table("weights of two equally long texts", weights, **both),),
        "With equal lengths this slip has no effect, and slip 1 raises no error.",
        (
            Check("both masks raise an error", float("nothing" in errors), 0.0),
            check_equal("equal lengths: = CrossAttention", weights, right),
        ),
    )

"""The lesson "positions": three kinds of positions. Tensor names: T words, C width, D head_size."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from gpt.checks import Check
from gpt.config import ModelConfig
from gpt.lessons.ladder import causal, weights_of
from gpt.lessons.lesson import Material, Step
from gpt.lessons.tables import check_equal, error_text, table, torch_seed
from gpt.model.attention import Head
from gpt.model.initial import PEAK
from gpt.model.positions import POSITIONS, ROTARY_BASE, Rotary, Sinusoidal

SEED, WIDTH, SHIFT = 123, 4, 3  # SHIFT: places by which a text moves
ROUNDED = 1e-5  # bound for scores of the model's Rotary, whose constants are float32
TURNS = "range({})[:, None] * frequencies_ω"  # rule for the angles of this many places
PAIRS = tuple(f"pair {pair}" for pair in range(WIDTH // 2))
GPT2 = ModelConfig(vocab_size=1, block_size=1024, n_layer=12, n_head=12, n_embd=768)


class Text:
    """Words with random rows, a head with random matrices, and positions for SHIFT more places.

    x: (T, C), equal rows for equal words. kinds: positions by name; "none" does nothing. speeds:
    (C/2,), the angle by which each pair of columns rotates from one place to the next.
    """

    def __init__(self, words: tuple[str, ...], seed: int) -> None:
        different, size = list(dict.fromkeys(words)), len(words) + SHIFT
        config = ModelConfig(vocab_size=1, block_size=size, n_head=1, n_embd=WIDTH)
        self.words, self.seed, self.head = words, seed, Head(config).double()
        self.kinds = {name: kind(config).double() for name, kind in POSITIONS.items()}
        with torch_seed(seed):
            rows = torch.randn(len(different), WIDTH).double()
            for matrix in (*self.head.parameters(), *self.kinds["learned"].parameters()):
                nn.init.normal_(matrix, std=WIDTH**-0.5)
        self.x = rows[[different.index(word) for word in words]]
        self.speeds = Rotary.speeds(config)
        self.angles = torch.outer(torch.arange(len(words)).double(), self.speeds)  # (T, C/2)
        self.distances = self.angles - self.angles.unsqueeze(1)  # (T, T, C/2): column − row

    def attend(self, kind: str, x: Tensor, first: int = 0) -> dict[str, Tensor]:
        """The head's stages q, k, scores, context … for (T, C) rows that begin at place `first`."""
        position, at, stages = self.kinds[kind], slice(first, first + len(x)), dict[str, Tensor]()
        rotate, allowed = partial(position.rotate, at=at), torch.ones(len(x), len(x)).bool()
        self.head(position.embed(x, at)[None], rotate, allowed=allowed, keep=stages.update)
        return {name: stage[0].detach() for name, stage in stages.items()}


def rotate_pairs(x: Tensor, angles: Tensor) -> Tensor:
    """(T, D): rotates columns 2i and 2i + 1, the coordinates of a point, by (T, D/2) angles."""
    even, odd, cos, sin = x[:, ::2], x[:, 1::2], angles.cos(), angles.sin()
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


def steps(material: Material) -> Iterator[Step]:
    """Attention without positions, the three kinds, a use of rotary positions, and costs."""
    text = Text(material.words, material.seed_or(SEED))
    yield from _add(text)
    yield from _rotate(text, material.query)
    yield _compare()


def _add(text: Text) -> Iterator[Step]:
    """Attention without positions; then the kinds that are added, learned and sinusoidal."""
    x, words, kinds, T = text.x, text.words, text.kinds, len(text.x)
    order = torch.arange(T).roll(1)
    before, after = ({n: text.attend(n, rows)["context"] for n in kinds} for rows in (x, x[order]))
    contexts, moved, other = before["none"], after["none"], (words[-1], *words[:-1])
    yield Step(
        "Another order, the same contexts",
        f"Attention itself does not use the order of the words. Here a word is a row of {WIDTH} "
        f"random numbers. `Head` of gpt/model/attention.py has random matrices, seed {text.seed}, "
        f"and no mask. In the second table, “{words[-1]}” has moved to the front. Each word has "
        "the same context as before: attention is permutation-equivariant (Lee et al. 2019). With "
        "a causal mask, a layer knows which words come before, but not their order. A model can "
        "derive places from the number of these words (Haviv et al. 2022): `--position none`.",
        "attention(P · X) = P · attention(X)    P: a permutation matrix",
        (table("contexts", contexts, rows=words), table("contexts, moved", moved, rows=other)),
        "The last row of the first table is the first row of the second.",
        (
            check_equal("= P · contexts", moved, torch.eye(T).double()[order] @ contexts),
            check_equal("the mean stays equal", moved.mean(dim=0), contexts.mean(dim=0)),
        ),
    )
    learned = kinds["learned"].get_parameter("weight")[:T]
    changes = torch.stack([after[kind] - before[kind][order] for kind in kinds]).abs().amax(dim=-1)
    moved = text.attend("none", (x + learned)[order])["context"]
    yield Step(
        "Learned positions: a trained row for each place",
        "`Learned` in gpt/model/positions.py has a row for each place and adds it to the word at "
        "this place, so the same word has another row at each place. Training changes position "
        "rows like all other weights (Gehring et al. 2017; GPT-2, Radford et al. 2019); here they "
        f"are random. The last table has the largest change of each context if “{words[-1]}” moves "
        "to the front, with each kind of positions.",
        "input[t] = word row + position row[t]",
        (
            table(f"row of “{words[0]}”", x[0]),
            table("learned positions", learned),
            table(f"“{words[0]}” at each place", x[0] + learned, "row + learned_positions"),
            table("change of each context", changes.roll(-1, 1), rows=tuple(kinds), columns=words),
        ),
        "Without positions (none), the contexts stay the same.",
        (
            check_equal("= Learned", x + learned, kinds["learned"].embed(x, slice(T))),
            check_equal(
                "rows moved with positions: = P · contexts", moved, before["learned"][order]
            ),
        ),
    )
    turns, products = TURNS.format(T), "sinusoidal_positions @ sinusoidal_positions.T"
    waves = torch.stack((text.angles.sin(), text.angles.cos()), dim=-1).flatten(-2)  # (T, C)
    yield Step(
        "Sinusoidal positions: a computed row for each place",
        "The first Transformer adds rows that are not trained (Vaswani et al. 2017): the sine and "
        "the cosine of the place times a frequency ω, for each pair of columns. The product of two "
        "of these rows depends only on the distance of their places. The score of two words does "
        "not: W_query and W_key change the rows first, and words are also multiplied by positions.",
        "row[t, 2i] = sin(t · ω[i])    row[t, 2i + 1] = cos(t · ω[i])    ω[i] = "
        f"{ROTARY_BASE:.0f}^(−2i / C)    row[s] · row[t] = Σ cos((s − t) · ω[i])",
        (
            table("frequencies ω", text.speeds, columns=PAIRS),
            table("sinusoidal positions", waves, f"interleave(sin({turns}), cos({turns}))"),
            table("products of position rows", waves @ waves.T, products),
        ),
        "In the second table, the numbers on each diagonal are equal.",
        (
            check_equal("= Sinusoidal", x + waves, kinds["sinusoidal"].embed(x, slice(T))),
            check_equal("= Σ cos", waves @ waves.T, text.distances.cos().sum(dim=-1)),
        ),
    )


def _rotate(text: Text, asked: int) -> Iterator[Step]:
    """Rotated queries and keys, their scores, and a use. asked: the word whose query is shown."""
    words, x, T, angles, speeds = text.words, text.x, len(text.x), text.angles, text.speeds
    plain, model = (text.attend(kind, x) for kind in ("none", "rotary"))
    q, k, turned = plain["q"], plain["k"], rotate_pairs(plain["q"], angles)
    even, odd, turns = "queries[:, ::2]", "queries[:, 1::2]", TURNS.format(T)
    x_axis = f"{even} * cos(angles) - {odd} * sin(angles)"
    y_axis = f"{even} * sin(angles) + {odd} * cos(angles)"
    products = torch.view_as_complex(q.view(T, -1, 2)) * torch.exp(1j * angles)  # (T, D/2)
    yield Step(
        "Rotary positions: queries and keys are turned",
        "`Rotary` adds nothing to the rows (Su et al. 2021). Columns 2i and 2i + 1 of a query are "
        "the coordinates of a point, which is turned around the origin. The angle is the place "
        "times the frequency ω[i] from above. Keys are turned in the same way, values are not.",
        "q′[2i] = q[2i] · cos a − q[2i + 1] · sin a    "
        "q′[2i + 1] = q[2i] · sin a + q[2i + 1] · cos a    a = t · ω[i]",
        (
            table("angles", angles, turns, rows=words, columns=PAIRS),
            table("queries", q, rows=words),
            table("turned queries", turned, f"interleave({x_axis}, {y_axis})", rows=words),
        ),
        "The angle of the first place is 0, so its query stays. Pair 1 turns slowly.",
        (
            check_equal("= Rotary", turned, model["q"]),
            check_equal("keys = Rotary", rotate_pairs(k, angles), model["k"]),
            check_equal("= q · e^(i · a)", turned, torch.view_as_real(products).flatten(1)),
        ),
    )
    scores = rotate_pairs(q[asked].expand_as(q), angles) @ rotate_pairs(k[0].expand_as(k), angles).T
    by_distance = rotate_pairs(k[:1].expand(T * T, -1), text.distances.flatten(0, 1)) @ q[asked]
    now, later = ({n: text.attend(n, x, at)["scores"] for n in text.kinds} for at in (0, SHIFT))
    changes = torch.stack([(later[kind] - now[kind]).abs().max() for kind in now])
    yield Step(
        "A rotary score depends on the distance only",
        "If a query and a key are turned by the same angle, their product stays equal. So only the "
        "distance of their places matters (Su et al. 2021). The first table has the query of "
        f"“{words[asked]}” at the place of the row, times the key of “{words[0]}” at the place of "
        f"the column. The second has the largest change if all words move by {SHIFT} places.",
        "turn(q, s · ω) · turn(k, t · ω) = q · turn(k, (t − s) · ω)",
        (table("one query, one key", scores), table("change of scores", changes, columns=(*now,))),
        "In the first table, the numbers on each diagonal are equal. In the second, scores change "
        "with added positions, but not with rotary ones.",
        (
            check_equal("= q · turn(k, (t − s) · ω)", scores, by_distance.view(T, T)),
            check_equal(f"{SHIFT} places later: equal", later["rotary"], now["rotary"], ROUNDED),
            check_equal("lengths stay equal", turned.norm(dim=-1), q.norm(dim=-1)),
        ),
    )
    query = torch.eye(1, WIDTH).double() * (PEAK * WIDTH**0.5) ** 0.5
    key = rotate_pairs(query, speeds[None])
    queries, keys = text.kinds["rotary"].rotate(query.expand(T, -1), key.expand(T, -1), slice(T))
    weights = weights_of(queries, keys, causal(T))
    formula = (PEAK * (text.distances + speeds)[..., 0].cos()).masked_fill(~causal(T), -torch.inf)
    others = float((weights[1:].argmax(dim=-1) != torch.arange(T - 1)).sum())
    yield Step(
        "A head that looks one place back",
        "With rotary positions, a head can attend to the previous place, whatever the words are. "
        "Here all words have the same query and the same key, which is the query, turned by one "
        "place. So `Rotary` turns each key in the direction of the next query. Columns 2 and 3 are "
        "0: pair 1 turns too slowly to tell neighbours apart. Trained models have such heads "
        "(Olsson et al. 2022); `--previous-heads` starts some in this way (gpt/model/initial.py).",
        f"score[s, t] / √D = {PEAK:g} · cos((s − t − 1) · ω[0]), masked for t > s",
        (
            table("query and key", torch.cat((query, key)), rows=("query", "key")),
            table("weights of this head", weights, rows=words, columns=words),
        ),
        "In each row but the first, the word just before has the largest weight. Pair 0 turns a "
        f"full circle in {math.tau / float(speeds[0]):.1f} places, so long texts need more pairs.",
        (
            check_equal("= softmax of the formula", weights, formula.softmax(dim=-1), ROUNDED),
            Check("the word before: largest weight", others, 0.0),
        ),
    )


def _compare() -> Step:
    """Parameters and operations at GPT-2's size, and the first place after the context."""
    modules, end = {name: kind(GPT2) for name, kind in POSITIONS.items()}, GPT2.block_size
    counts = [sum(each.numel() for each in module.parameters()) for module in modules.values()]
    operations = 0, GPT2.n_embd, GPT2.n_embd, 6 * GPT2.n_embd * GPT2.n_layer
    labels = {"rows": ("parameters", "operations"), "columns": tuple(modules)}
    stored = math.prod(replace(GPT2, position="learned").shapes()["position.weight"])
    beyond = partial(modules["learned"].embed, torch.zeros(1), torch.tensor([end]))
    longer = replace(GPT2, block_size=end + 1, n_head=1)
    waves, turns = Sinusoidal.tables(longer)["table"][end], Rotary.tables(longer)["turns"][end]
    expected = torch.view_as_real(torch.exp(1j * end * Rotary.speeds(longer)))  # (C/2, 2)
    return Step(
        "Costs, and places after the context",
        "The table is for the size of the smallest GPT-2. Operations are multiplications and "
        "additions for one token: one for each column of an added row; with rotary positions, 6 "
        f"for each pair of columns, in the queries and keys of {GPT2.n_layer} layers. Place {end} "
        f"has no learned row: torch raises {error_text(beyond)}. The other kinds are defined "
        "for all places. But a model predicts worse at places that it was not trained on (Press et "
        "al. 2022). gptx never reads more than block_size characters at once.",
        tables=(table("costs", torch.tensor((counts, operations)), **labels, digits=0),),
        checks=(
            Check("parameters = the checkpoint’s", abs(counts[1] - stored), 0.0),
            check_equal(f"place {end}: Sinusoidal = sin, cos", waves.view(-1, 2).flip(1), expected),
            check_equal(f"place {end}: Rotary = e^(i · a)", turns, expected),
        ),
    )

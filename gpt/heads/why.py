"""Why a model expects a character: its logit, or the difference of two, as an exact sum of parts.

`contributions` computes the parts (direct logit attribution, Elhage et al. 2021). They explain the
GPT alone, also in a model with counting.
Tensor names: P parts, S characters that a head attends to, K one or two characters, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpt.blocks import (
    Block,
    Cell,
    Checks,
    Column,
    Legend,
    Note,
    Records,
    Table,
    Title,
    format_number,
)
from gpt.characters import quoted
from gpt.checks import Check, TableResult
from gpt.config import Shaping, WhyConfig
from gpt.config.fields import require
from gpt.errors import TextError
from gpt.heads.attention_map import require_fits
from gpt.heads.contributions import Part, contributions
from gpt.heads.next_character import ids_to_continue, quoted_end
from gpt.heads.places import head_name
from gpt.reading.gpt import Reader
from gpt.reading.layers import Array
from gpt.reading.sampler import probabilities
from gpt.vocabulary import Vocabulary
from gpt.words import counted

MOST_SOURCES = 3  # characters to name in a row of the table
SUMS = ("head", "ffn")  # parts that are sums themselves
KINDS = {"embedding": "embedding", "ffn": "feed-forward", "ffn_bias": "feed-forward bias"}


@dataclass(frozen=True, repr=False)
class Why(TableResult):
    """What each of P parts adds to a character's logit, or to the difference of two logits.

    parts: in the order of computation. values: (P,), computed in float64; they sum to `logit`.
    sources: for each part of the kinds "head" and "ffn", (S,) what each character that the head
    attends to adds, or (U,) what each unit adds; they sum to the part. scale: the number by which
    the last norm divides, which is held. characters: the K = 1 or 2 characters that are compared.
    probabilities: (K,), as the GPT predicts them. same: minus the logarithm of the sum of
    exp(logit) over all characters. text: what the GPT has read. checks: whether the sums are right,
    and how far the logits of the float32 model are from those shown.
    """

    parts: tuple[Part, ...]
    values: Array
    sources: tuple[Array, ...]
    logit: float
    scale: float
    characters: tuple[str, ...]
    probabilities: Array
    same: float
    checks: tuple[Check, ...]
    text: str

    def __repr__(self) -> str:
        largest = part_name(self.parts[int(np.abs(self.values).argmax())])
        return f"<Why {self._logits} = {self.logit:.4f}: {len(self.parts)} parts, most {largest}>"

    @property
    def _logits(self) -> str:
        """ "logit of 'e' − logit of 'a'"."""
        return " − ".join(f"logit of {quoted(each)}" for each in self.characters)

    def blocks(self, most: int = 16) -> list[Block]:
        """The `most` parts that add or subtract most, and their sum."""
        order = np.argsort(-np.abs(self.values), kind="stable")
        shown, rest = order[:most].tolist(), order[most:]
        rows = [self._row(part) for part in shown]
        if rest.size:
            others = Cell(counted(rest.size, "other part"), tone="dim")
            rows.append([others, Cell(signed_number(self.values[rest].sum())), Cell("")])
        logit = Cell(f"{self._logits} = {format_number(self.logit, 4)}", tone="dim")
        rows.append([Cell("sum", tone="strong"), Cell(signed_number(self.values.sum())), logit])
        columns = [Column("part", left=True), Column("adds"), Column("from", left=True)]
        each = zip(self.characters, self.probabilities.tolist(), strict=True)
        chances = [f"{quoted(character)} {format_number(chance, 3)}" for character, chance in each]
        return [
            Title("why", [*quoted_end(self.text), *chances]),
            Table(columns, rows),
            Note(
                "from: the positions that a head reads, the units of a layer (N) · the last norm "
                f"divides by {self.scale:.4f}, as for this text; without a part, that and all "
                "later parts may change, too"
            ),
            Checks(self.checks),
            Legend([*self.text, *self.characters]),
        ]

    def _row(self, number: int) -> list[Cell]:
        """A row: a part, what it adds, and the characters or units that add most of it."""
        part, value = self.parts[number], self.values[number]
        share = float(np.abs(value) / max(np.abs(self.values).max(), 1e-300))
        cells = [Cell(part_name(part)), Cell(signed_number(value), share)]
        if part.kind not in SUMS:
            return [*cells, Cell("")]
        text, head = self.text, part.kind == "head"
        values = self.sources[sum(each.kind in SUMS for each in self.parts[:number])]
        order = np.argsort(-np.abs(values), kind="stable").tolist()
        names = {at: f"{at} {quoted(text[at])}" if head else f"N{at}" for at in order}
        named = [f"{name} {signed_number(values[at])}" for at, name in names.items()]
        largest = named[:MOST_SOURCES]
        if rest := order[MOST_SOURCES:]:
            largest.append(f"rest {signed_number(values[rest].sum())}")
        return [*cells, Cell(" · ".join(largest), hint="  ".join(named[:24]))]

    def records(self) -> Records:
        """A row for each part, or for each character that a head attends to; `adds` sums to the
        logit.
        """
        columns: dict[str, list[Any]] = {
            name: [] for name in (*Part._fields, "position", "character", "adds")
        }
        sums = iter(self.sources)
        for part, value in zip(self.parts, self.values.tolist(), strict=True):
            rows: list[tuple[Any, ...]] = [(None, None, value)]
            found = next(sums).tolist() if part.kind in SUMS else []
            if part.kind == "head":
                rows = [*zip(range(len(found)), self.text, found, strict=True)]
            for row in rows:
                for name, each in zip(columns, (*part, *row), strict=True):
                    columns[name].append(each)
        facts = {
            "characters": self.characters,
            "logit": self.logit,
            "last_norm_divides_by": self.scale,
            "probabilities": self.probabilities,
            "same_for_every_character": self.same,
            "checks": [each.record for each in self.checks],
        }
        return Records(columns, facts)


def why(reader: Reader, vocabulary: Vocabulary, text: str, config: WhyConfig) -> Why:
    """What each part adds to the next character's logit; see TrainedGPT.why, which raises the same
    errors.
    """
    ids = ids_to_continue(vocabulary, text)
    ids = ids[-reader.config.block_size :] if config.truncate else ids
    require_fits(reader.config, len(ids))
    logits = reader.logits(reader.forward(ids[None])[:, -1])  # (1, V)
    expected = probabilities(logits, Shaping(temperature=1.0))[0]
    asked = _asked(vocabulary, config, int(expected.argmax()))
    exact = reader.in_float64()
    layers = exact.stages(ids)
    found = contributions(exact, layers, np.tile(asked, (len(ids), 1)))
    scores = exact.logits(exact.final_norm(layers[-1].resid_post))[-1]  # (V,)
    same = -float(np.logaddexp.reduce(scores))
    sums = [n for n, part in enumerate(found.parts) if part.kind in SUMS]
    summed = np.stack([each.sum(axis=-1) for each in found.sources], axis=-1)  # (K, sums)
    apart = float(np.abs(summed - found.values[-1][:, sums]).max())
    rounding = float(np.abs(scores[asked] - logits[0, asked]).max())
    checks = (
        found.check,
        Check("the same in float32", rounding),
        Check("characters and units sum to their part", apart, found.check.bound, detail=True),
    )
    return Why(
        parts=found.parts,
        values=_difference(found.values[-1]),
        sources=tuple(map(_difference, found.sources)),
        logit=float(_difference(found.logits[-1])),
        scale=found.scale,
        characters=tuple(vocabulary.characters[token] for token in asked),
        probabilities=expected[asked],
        same=same,
        checks=checks,
        text=vocabulary.decode(ids),
    )


def _asked(vocabulary: Vocabulary, config: WhyConfig, likeliest: int) -> list[int]:
    """The ids of the one or two characters. Raises ConfigError, TextError."""
    asked = []
    for name, character in (("char", config.char), ("against", config.against)):
        if character is None:
            asked += [likeliest] * (name == "char")
            continue
        token = vocabulary.id_of(vocabulary.read(character, "fold").text)
        require(token >= 0 or len(character) == 1, name, f"{character!r} is not one character")
        if token < 0:
            raise TextError(f"`{name}`: the model does not know {character!r}")
        asked.append(token)
    require(len({*asked}) == len(asked), "against", "this is `char` itself; name another one")
    return asked


def _difference(values: Array) -> Array:
    """(K, …) -> (…): the first row, minus the second one if there is one."""
    found: Array = values[0] - values[1] if len(values) > 1 else values[0]
    return found


def part_name(part: Part) -> str:
    """ "L1H2", "L0 feed-forward", "embedding"."""
    if part.kind == "head":
        return head_name(part.layer or 0, part.head or 0)
    if part.kind == "bias":
        return "biases of norms" if part.layer is None else f"L{part.layer} bias"
    name = KINDS[part.kind]
    return name if part.layer is None else f"L{part.layer} {name}"


def signed_number(value: float) -> str:
    """ "+1.25", "−.03"."""
    return format_number(value, 3) if value < 0 else f"+{format_number(value, 3)}"

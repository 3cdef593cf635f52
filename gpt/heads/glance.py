"""The first look at an attention map: the head that adds most to what the model expects next."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpt.characters import in_line, quoted
from gpt.heads.attention_map import AttentionMap, Selection
from gpt.heads.contributions import heads_add
from gpt.heads.measures import job, measure_heads, name_heads
from gpt.show import matrix
from gpt.show.result import signed_number
from gpt.show.terminal import Screen

MOST_QUOTED = 40  # characters of the text in a title


@dataclass(frozen=True)
class Glance:
    """A head of a map. looks_at: what it looks at in this text, in words. character: the likeliest
    next one, to whose logit the head adds `adds`, in nats. most: whether no other head of the model
    adds more. other: (layer, head) of the head that adds most beside it, if there is another.
    """

    layer: int
    head: int
    looks_at: str
    character: str
    adds: float
    most: bool
    other: tuple[int, int] | None

    @property
    def title(self) -> str:
        """One line about the head."""
        adds = "adds most to" if self.most else "adds to"
        return (
            f"layer {self.layer} head {self.head}: looks {self.looks_at} · {adds} "
            f"{quoted(self.character)} ({signed_number(self.adds)})"
        )

    @property
    def hint(self) -> str:
        """How to see other heads."""
        hint = "others: --view heads"
        if self.other:
            hint += " · --layer {} --head {}".format(*self.other)
        return hint


def glance_at(attention: AttentionMap, layer: int | None = None, head: int | None = None) -> Glance:
    """The head that adds most, of all or of those in this layer or with this number."""
    token, added = heads_add(attention.model.reader, attention.layers)
    ranking = [divmod(n, added.shape[1]) for n in np.argsort(-added, axis=None).tolist()]
    allowed = [place for place in ranking if layer in (None, place[0]) and head in (None, place[1])]
    place = allowed[0]
    names = name_heads(measure_heads([attention]))
    looks_at = "everywhere"
    if names and names[place[0]][place[1]]:
        looks_at = f"at {job(names[place[0]][place[1]])}"
    return Glance(
        layer=place[0],
        head=place[1],
        looks_at=looks_at,
        character=attention.characters[token],
        adds=float(added[place]),
        most=place == ranking[0],
        other=next((other for other in ranking if other != place), None),
    )


def draw(
    selection: Selection,
    glance: Glance | None,
    screen: Screen,
    view: matrix.View = "auto",
    digits: int = 2,
    top: int = 3,
) -> str:
    """The selected matrices as text, with what they mean. glance: of the only head, if there is
    one. The other arguments: see gpt.show.matrix.draw.
    """
    text, matrices = in_line(selection.attention.text), selection.matrices()
    name = f"“{text if len(text) <= MOST_QUOTED else text[:MOST_QUOTED] + '…'}”"
    if selection.stage != "weights":
        name += f" · {selection.stage}"
    remarks = ["a row is the character that reads"]
    if glance:
        titles = [f"{name} · {glance.title}"]
        remarks.append(glance.hint)
    elif view == "heads":
        titles = [f"{name} · all heads"]
    else:
        titles = [f"{name} · {matrix.name}" for matrix in matrices]
    across = len(selection.heads)
    checks = selection.checked()
    return matrix.draw(matrices, titles, remarks, checks, screen, view, across, digits, top)

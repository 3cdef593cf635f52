"""The tour of a live page: stops with captions, written as a short text.

`## title` begins a stop; `see: head=induction&off=1.2` contains settings as in the page's address;
other lines are the caption. A line with `?` asks a question; the `see:` after it, and the lines
from `!` on, follow when the learner has guessed. Settings before the first stop apply to all stops.
In the page, assets/live/tour.js reads this text.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qsl

from gpt.config.sample import DISTRIBUTION_OPTIONS
from gpt.errors import ConfigError
from gpt.interface.trained import TrainedGPT
from gpt.words import printable, short_repr

TOURS = Path(__file__).parent / "tours"
BUILT_IN = {"repeats": "repeats.md"}  # corpus -> a file in TOURS
LONGEST = 100_000  # characters, as in assets/live/session.js
#: Options of `gptx sample` that the page has as well.
OPTIONS = ("length", *DISTRIBUTION_OPTIONS, "seed")
#: Settings that an address may have.
SETTINGS = (
    *("text", "of", "view", "layer", "head", "stage", "scale", "cell", "pins", "only", "next"),
    *("step", "off", "how", "rows", *OPTIONS),
)


def tour_of(model: TrainedGPT, file: Path | None) -> str:
    """The text of a page's tour: the content of the file; "" for the file "none"; without a file,
    the tour for the model's corpus, or "" if it has none. Raises ConfigError.
    """
    if file is None:
        manifest = getattr(model, "manifest", None)  # a model file may have no run
        corpus = ",".join(manifest.corpus.sources) if manifest else ""
        name = BUILT_IN.get(corpus)
        return (TOURS / name).read_text("utf-8") if name else ""
    if str(file) == "none":
        return ""
    name = printable(str(file))
    try:
        with open(file, "rb") as opened:
            text = opened.read(4 * LONGEST + 1).decode("utf-8-sig")
        problem = tour_problem(text)
    except UnicodeDecodeError as error:
        problem = f"not UTF-8, from byte {error.start} on: save it as UTF-8"
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        problem = f"cannot be read: {getattr(error, 'strerror', None) or error}"
    if problem:
        raise ConfigError("tour", f"{name}: {problem}")
    return text


def tour_problem(text: str) -> str:
    """What is wrong with a tour's text; "" if nothing is."""
    if len(text) > LONGEST:
        return f"it has more than {LONGEST:,} characters: shorten it"
    lines = re.split(r"\r\n?|\n", text)
    for number, line in enumerate(lines, 1):
        said = line.removeprefix("see:").removeprefix(" ") if line.startswith("see:") else ""
        for name, _ in parse_qsl(said, keep_blank_values=True):
            if name not in SETTINGS:
                return (
                    f"line {number}: no setting {short_repr(name)}; there are {', '.join(SETTINGS)}"
                )
    if not any(line.startswith("##") for line in lines):
        return "it has no stop: begin one with a line such as ## The first stop"
    return ""

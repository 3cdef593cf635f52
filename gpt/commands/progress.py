"""Work as it is seen: one bar on a terminal, plain lines anywhere else. Writes to stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from gpt.commands.console import one_line, say


class TrainingBar:
    """A tqdm bar with the loss, the last and best validation loss, and the speed."""

    def __init__(self, first_step: int, steps: int, step_characters: int) -> None:
        from tqdm import tqdm

        self._step_characters = step_characters
        self._val = self._best = ""
        # tqdm draws nothing at all when disabled; `say` then writes plain lines.
        self._bar: Any = tqdm(
            total=steps,
            initial=first_step,
            disable=not sys.stderr.isatty(),
            file=sys.stderr,
            dynamic_ncols=True,
            leave=False,
            bar_format="{percentage:3.0f}%|{bar:12}| {n_fmt}/{total_fmt} {desc}ETA {remaining}",
        )

    def __enter__(self) -> TrainingBar:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.close()

    def step(self, step: int, loss: float, steps: int) -> None:
        """One more step is done; `steps` is the number planned now."""
        if self._bar.disable:
            return
        rate = self._bar.format_dict["rate"]
        speed = f" {rate * self._step_characters / 1000:.1f}k char/s" if rate else ""
        shown = f"loss {loss:.3f}{self._val}{self._best}{speed} "
        self._bar.set_description_str(shown, refresh=False)
        self._bar.total = steps
        self._bar.update(step - self._bar.n)

    def evaluating(self, share: float) -> None:
        """Shows the share of the last evaluation that is done."""
        self._bar.set_description_str(f"evaluating the whole split: {share:.0%} ")

    def evaluated(self, val_loss: float, best: bool, share: float = 1.0) -> None:
        """Shows a new validation loss beside the bar; share: part of the split that was read."""
        self._val = f" val{f'({share:.0%})' if share < 1 else ''} {val_loss:.3f}"
        if best:
            self._best = f" best {val_loss:.3f}"

    def say(self, line: str) -> None:
        """A line that stays, above the bar."""
        if self._bar.disable:
            say(line)
        else:
            self._bar.write(one_line(line), file=sys.stderr)


@contextmanager
def working(what: str = "") -> Iterator[Callable[[float], object]]:
    """A bar for work of which only the share that is done is known; it leaves nothing behind.

    Quick work shows none. `what`: what is being done.
    """
    from tqdm import tqdm

    with tqdm(
        total=1.0,
        disable=not sys.stderr.isatty(),
        file=sys.stderr,
        dynamic_ncols=True,
        leave=False,
        delay=0.5,
        bar_format=f"{what}{' ' * bool(what)}{{percentage:3.0f}}%|{{bar:12}}| ETA {{remaining}}",
    ) as bar:
        yield lambda share: bar.update(share - bar.n)

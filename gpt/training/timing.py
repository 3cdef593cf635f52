"""Measures how long the parts of a training take, and how much time its end will need."""

from __future__ import annotations

import math
import time
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import replace
from statistics import median

from gpt.storage.manifest import Manifest
from gpt.training import ranks
from gpt.training.fit import Speed

NEWEST, ENOUGH = 31, 5  # newest steps whose median is known; fewer say too little
MOST_MEDIANS = 20  # a step counts at most this many median ones: the machine was suspended
PAUSES_SHARE = 0.1  # most of the time so far that evaluations, samples and saves take
END_SHARE = 0.05  # most of a time budget for reading the split at the end
MOST_RESERVED = 0.5  # most of a time budget that is kept for the end


class Timing:
    """The seconds that a training takes, in this process.

    speed: estimates, which measurements replace. began: the time, by the clock, at which the
    process began. With a time budget, all ranks get the times of the first one.
    """

    def __init__(self, speed: Speed, began: float | None, is_shared: bool) -> None:
        self.clock = time.perf_counter
        self.speed = speed
        self.is_shared = is_shared
        self._mark = self.clock() if began is None else began
        self._spent: dict[str, float] = defaultdict(float)
        self._newest: deque[float] = deque(maxlen=NEWEST)
        self._was_long, self._left_out = False, 0.0  # the last step, and seconds of it
        self._planned, self._measured = speed.step, set[str]()

    @property
    def spent(self) -> Mapping[str, float]:
        """Seconds of the start up to the first step, of counting (waiting for the counts and
        fitting the gate), of steps, evaluations and saves.
        """
        return dict(self._spent)

    def lap(self, what: str) -> float:
        """Seconds since the last call. what: the name of what took this time."""
        now = self.clock()
        seconds, self._mark = now - self._mark, now
        if self.is_shared:
            seconds = ranks.sum_over_ranks(seconds if ranks.is_first() else 0.0)
        self._spent[what] += seconds
        return seconds

    def step(self) -> float:
        """Seconds since the last call, for a step: at most MOST_MEDIANS median ones, as the machine
        was suspended if it took longer. If the next step is as long, steps have become slower, and
        what was left out counts after all.
        """
        seconds = self.lap("steps")
        most = math.inf
        if len(self._newest) >= ENOUGH:
            most = MOST_MEDIANS * median(self._newest)
        counted, is_long = seconds, seconds > most
        if is_long and self._was_long:
            counted, self._left_out = seconds + self._left_out, 0.0
        elif is_long:
            counted, self._left_out = most, seconds - most
        self._was_long = is_long
        self._spent["steps"] += counted - seconds
        self._newest.append(min(seconds, most))
        return counted

    def measured(self, **seconds: float) -> None:
        """Replaces estimates, by their names in Speed."""
        self.speed = replace(self.speed, **seconds)
        self._measured |= seconds.keys()

    @property
    def slowdown(self) -> float:
        """How many times as long as planned a step takes; 1 if it is not known yet."""
        if len(self._newest) < ENOUGH or not self._planned:
            return 1.0
        return median(self._newest) / self._planned

    def can_pause(self, characters: int) -> bool:
        """Whether there is time for an evaluation of so many characters, a save and a sample."""
        working = sum(seconds for what, seconds in self._spent.items() if what != "start")
        pauses = working - self._spent["steps"]
        return pauses + self._pause(characters) <= PAUSES_SHARE * working

    def affordable(self, characters: int, budget: float) -> int:
        """How many of the split's characters the end reads, of a budget of so many seconds."""
        seconds = self._expected("character") * characters
        share = END_SHARE * budget
        return characters if seconds <= share else int(characters * share / seconds)

    def reserve(self, now: Manifest, budget: float) -> float:
        """The seconds of a budget that are kept for the last evaluation, the save and the end."""
        read, of = now.part
        at_end = self.affordable(of, budget)
        seconds = self._pause(read)
        if at_end > read:
            seconds += self._expected("character") * at_end
        return min(seconds, MOST_RESERVED * budget)

    def _pause(self, characters: int) -> float:
        reading = self._expected("character") * characters
        return self._expected("fitting") + reading + self._expected("saving")

    def _expected(self, what: str) -> float:
        """Seconds, as measured; an estimate is as wrong as that of a step, if steps are slower."""
        seconds: float = getattr(self.speed, what)
        return seconds if what in self._measured else seconds * max(1.0, self.slowdown)

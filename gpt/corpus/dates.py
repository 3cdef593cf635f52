"""The corpus "dates", pairs of a date as people write it, in seven languages, and the same date in
ISO 8601, such as `24 December 2026` and `2026-12-24`; and its training options.

No written date has two meanings: the day is before the month unless the year comes first; a year of
two digits lies in 1970 to 2069 (CENTURY).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import islice
from typing import Any

import numpy as np

from gpt.words import ordinal

SEED = 1
DATES = 30_000
TIMES = 3  # ways to write each date; fewer if two of them give the same text
FIRST, LAST = date(1600, 1, 1), date(2399, 12, 31)
CENTURY = range(1970, 2070)  # half of the dates are in it; only its years may have two digits

#: Training options that override the default preset. All lines of one date are neighbours, so the
#: last 2,100 or so, the validation split, have dates of their own. The model is small, so that two
#: minutes suffice (benchmarks/LOG.md).
RECIPE: dict[str, Any] = {
    "n_embd": 64,
    "n_head": 4,
    "dropout": 0.0,
    "learning_rate": 4e-3,
    "split": "last",
    "val_fraction": 0.07,
}


@dataclass(frozen=True)
class Locale:
    """How a language writes dates. formats: use the fields of `_fields`, `month`, `short` and
    `weekday`; months, shorts: January to December; weekdays: Monday to Sunday.
    """

    formats: tuple[str, ...]
    months: Sequence[str] = ("",) * 12
    shorts: Sequence[str] = ("",) * 12
    weekdays: Sequence[str] = ("",) * 7


ENGLISH = Locale(
    (
        *("{d} {month} {year}", "{d} {short} {year}", "{month} {d}, {year}", "{short} {d}, {year}"),
        *("{month} {ordinal}, {year}", "{weekday}, {d} {month} {year}"),
    ),
    "January February March April May June July August September October November December".split(),
    "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(),
    "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split(),
)
HUNGARIAN = Locale(
    (
        *("{year}. {month} {d}.", "{year}. {short} {d}.", "{year}. {mm}. {dd}."),
        *("{year}.{mm}.{dd}.", "{year}. {month} {d}., {weekday}"),
    ),
    (
        "január február március április május június július augusztus szeptember "
        "október november december"
    ).split(),
    "jan. febr. márc. ápr. máj. jún. júl. aug. szept. okt. nov. dec.".split(),
    "hétfő kedd szerda csütörtök péntek szombat vasárnap".split(),
)
GERMAN = Locale(
    ("{d}. {month} {year}", "{d}. {short} {year}", "{weekday}, {d}. {month} {year}"),
    "Januar Februar März April Mai Juni Juli August September Oktober November Dezember".split(),
    "Jan. Feb. März Apr. Mai Juni Juli Aug. Sept. Okt. Nov. Dez.".split(),
    "Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag".split(),
)
FRENCH = Locale(
    ("{first} {month} {year}", "{first} {short} {year}", "{weekday} {first} {month} {year}"),
    "janvier février mars avril mai juin juillet août septembre octobre novembre décembre".split(),
    "janv. févr. mars avr. mai juin juil. août sept. oct. nov. déc.".split(),
    "lundi mardi mercredi jeudi vendredi samedi dimanche".split(),
)
SPANISH = Locale(
    ("{d} de {month} de {year}", "{d} {short} {year}", "{weekday}, {d} de {month} de {year}"),
    (
        "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre"
    ).split(),
    "ene feb mar abr may jun jul ago sept oct nov dic".split(),
    "lunes martes miércoles jueves viernes sábado domingo".split(),
)
ITALIAN = Locale(
    ("{d} {month} {year}", "{d} {short} {year}", "{weekday} {d} {month} {year}"),
    (
        "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre "
        "ottobre novembre dicembre"
    ).split(),
    "gen feb mar apr mag giu lug ago set ott nov dic".split(),
    "lunedì martedì mercoledì giovedì venerdì sabato domenica".split(),
)
JAPANESE = Locale(
    ("{year}年{m}月{d}日", "{year}/{mm}/{dd}", "{year}年{m}月{d}日({weekday})"),
    weekdays="月 火 水 木 金 土 日".split(),
)
NUMBERS = Locale(
    (
        *("{dd}/{mm}/{year}", "{d}/{m}/{year}", "{dd}.{mm}.{year}", "{dd}-{mm}-{year}"),
        *("{dd}/{mm}/{yy}", "{d}/{m}/{yy}", "{dd}.{mm}.{yy}", "{d}.{m}.{yy}"),
    )
)
LOCALES = (ENGLISH, HUNGARIAN, GERMAN, FRENCH, SPANISH, ITALIAN, JAPANESE, NUMBERS)
FORMATS = tuple((locale, each) for locale in LOCALES for each in locale.formats)


def dates() -> bytes:
    """The lines `written date TAB YYYY-MM-DD`: dates in random order, all lines of a date
    together.

    Half of the dates are in CENTURY. Made from raw draws of Philox (Salmon et al. 2011), so every
    release of numpy gives the same text.
    """
    days = LAST.toordinal() - FIRST.toordinal() + 1
    draws = np.random.Philox(key=SEED).random_raw(days + DATES * (1 + len(FORMATS)))
    every = FIRST.toordinal() + draws[:days].argsort(kind="stable")
    begin, end = (date(year, 1, 1).toordinal() for year in (CENTURY.start, CENTURY.stop))
    recent = (every >= begin) & (every < end)
    half = np.concatenate((every[recent][: DATES // 2], every[~recent][: DATES - DATES // 2]))
    chosen = half[draws[days : days + DATES].argsort(kind="stable")]
    days += DATES
    orders = draws[days:].reshape(DATES, -1).argsort(axis=1, kind="stable")  # orders of the formats
    lines = []
    for number, order in zip(chosen.tolist(), orders, strict=True):
        day = date.fromordinal(number)
        fields, target = _fields(day), day.isoformat()
        forms = (FORMATS[n] for n in order)
        fitting = (form for form in forms if day.year in CENTURY or "{yy}" not in form[1])
        sources = dict.fromkeys(_written(day, fields, *form) for form in islice(fitting, TIMES))
        lines += [f"{source}\t{target}\n" for source in sources]
    return "".join(lines).encode()


def _written(day: date, fields: Mapping[str, str], locale: Locale, form: str) -> str:
    """A date in a format of a locale."""
    return form.format(
        month=locale.months[day.month - 1],
        short=locale.shorts[day.month - 1],
        weekday=locale.weekdays[day.weekday()],
        **fields,
    )


def _fields(day: date) -> dict[str, str]:
    """The fields of formats that are the same in all languages; `ordinal` is English (24th),
    `first` is French (1er, but 24).
    """
    d, m = day.day, day.month
    return {
        "year": str(day.year),
        "yy": f"{day.year % 100:02}",
        "m": str(m),
        "mm": f"{m:02}",
        "d": str(d),
        "dd": f"{d:02}",
        "ordinal": ordinal(d),
        "first": "1er" if d == 1 else str(d),
    }

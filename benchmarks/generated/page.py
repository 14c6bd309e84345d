"""The page docs/generated.md: the mean, the worst ten, all times, times of building, failures."""

from __future__ import annotations

from collections.abc import Mapping

from ..suite.case import Entry
from ..suite.measure import OURS, CaseResult, Time
from ..suite.report import DISTURBED, TITLES, geometric_mean, ratio, table

SHORT = 5e-5  #: seconds in which the overhead of a call counts
LARGE = 2**19  #: bytes of inputs and results
LIBRARIES = (*OURS, "torch", "torch.compile", "jax")

INTRODUCTION = """\
# Generated programs

Written by
`python -m benchmarks.generated --seed {seed} --count {count} --threads {threads} --report docs`.
A generator draws the programs: families of operators, sizes, strides, borders, bodies, reducers,
layouts and dtypes. Each program is written in te, in PyTorch and in JAX. The time is that of the
gradient with respect to all float inputs, for a random head or of a scalar loss. Every result is
compared with JAX in float64 before it is timed; ratios ignore peers whose result is wrong.

Times are in milliseconds, medians of rounds in which the libraries take turns, each in its own
process with {threads} threads. PyTorch and JAX allocate their results at each call. Ours is
measured with results written into arrays of the caller (`out=`) and with results allocated at each
call (new arrays). The ratio is the time of the fastest peer over ours with new arrays, which is
like for like: above one, ours is faster.

Measured on {machine}; {date}.
"""


def like_for_like(result: CaseResult, reused: bool = False) -> float | None:
    """The fastest right peer over ours; with `reused`, over ours into arrays of the caller."""
    if not reused:
        return ratio(result)
    times = {library: time for library, time in result.times.items() if library != "ours.new"}
    return ratio(CaseResult(result.flop, result.bytes, result.copy, result.others, times))


def page(
    entries: Mapping[str, Entry],
    results: Mapping[str, CaseResult],
    seed: int,
    threads: int,
    date: str,
    machine: Mapping[str, str],
) -> str:
    """Everything as Markdown."""
    described = ", ".join(
        value if name == "processor" else f"{name} {value}" for name, value in machine.items()
    )
    parts = [
        INTRODUCTION.format(
            seed=seed, count=len(entries), threads=threads, machine=described, date=date
        ),
        _summary(entries, results),
    ]
    order = sorted(
        (name for name in results if ratio(results[name]) is not None),
        key=lambda name: ratio(results[name]) or 0.0,
    )
    parts += ["## The worst ten\n", _times(order[:10], results) + "\n"]
    parts += ["## All programs\n", _times(list(results), results) + "\n"]
    parts += ["## Time to the first answer\n", _first(results) + "\n"]
    if notes := _notes(results):
        parts += ["## Failures and notes\n", notes + "\n"]
    drawn = "\n".join(f"- `{name}`: {entries[name].title.split(': ', 1)[1]}" for name in results)
    parts += ["## What was drawn\n", drawn]
    return "\n".join(parts) + "\n"


def _summary(entries: Mapping[str, Entry], results: Mapping[str, CaseResult]) -> str:
    found = [value for result in results.values() if (value := ratio(result)) is not None]
    reused = [v for result in results.values() if (v := like_for_like(result, True)) is not None]
    mean, again = geometric_mean(found), geometric_mean(reused)
    if mean is None or again is None:
        return "Nothing was measured.\n"
    below = sum(value < 0.75 for value in found)
    lines = [
        f"**Geometric mean {mean:.2f}** over {len(found)} programs; the least is {min(found):.2f}, "
        f"{below} are under 0.75 and {sum(value < 1 for value in found)} under 1.",
        f"With results in arrays of the caller the mean is {again:.2f}.",
    ]
    for title, large in (("less", False), ("more", True)):
        part = [
            value
            for result in results.values()
            if (value := ratio(result)) is not None and (result.bytes >= LARGE) is large
        ]
        if part:
            lines.append(
                f"Of {title} than {LARGE >> 10} KiB of inputs and results: "
                f"{geometric_mean(part):.2f} over {len(part)} programs."
            )
    short = sum((r.times.get("ours.new", Time()).median or 1.0) < SHORT for r in results.values())
    lines.append(
        f"Ours takes less than {SHORT * 1e3:.2f} ms in {short} programs: there the overhead of a "
        "call, which differs between the libraries, is a part of every time."
    )
    if len(found) < len(entries):
        lines.append(f"{len(entries) - len(found)} of {len(entries)} drawn programs have no ratio.")
    absent = [lib for lib in LIBRARIES if not any(lib in r.times for r in results.values())]
    lines += [f"{TITLES[library]} was not measured." for library in absent]
    return "\n".join(lines) + "\n"


def _times(names: list[str], results: Mapping[str, CaseResult]) -> str:
    rows = []
    for name in names:
        value = ratio(results[name])
        times = results[name].times
        cells = [_cell(times.get(library)) for library in LIBRARIES]
        rows.append([f"`{name}`", *cells, "-" if value is None else f"{value:.2f}"])
    return table(["program", *(TITLES[library] for library in LIBRARIES), "ratio"], rows)


def _cell(time: Time | None) -> str:
    if time is None or time.median is None:
        return "failed" if time is not None and time.note else "-"
    return f"{time.median * 1e3:.3f}" + ("!" if time.note else "")


def _first(results: Mapping[str, CaseResult]) -> str:
    rows = []
    for name, result in results.items():
        firsts = [result.times.get(library, Time()).first for library in LIBRARIES]
        cells = ["-" if first is None else f"{first:.1f}" for first in firsts]
        rows.append([f"`{name}`", *cells])
    text = "Seconds from arrays to answers, built anew. PyTorch keeps compiled code on disk.\n\n"
    return text + table(["program", *(TITLES[library] for library in LIBRARIES)], rows)


def _notes(results: Mapping[str, CaseResult]) -> str:
    lines = []
    for name, result in results.items():
        if result.others is not None and result.others > DISTURBED:
            lines.append(f"- `{name}`: other programs kept {result.others:.1f} CPUs busy meanwhile")
        for library, time in result.times.items():
            if time.note:
                lines.append(f"- `{name}`, {TITLES[library]}: {time.note}")
            elif time.median and time.error is None:
                lines.append(f"- `{name}`, {TITLES[library]}: not compared with float64")
    return "\n".join(lines)

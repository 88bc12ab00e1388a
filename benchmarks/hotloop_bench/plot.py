"""The results as a picture: an SVG file, which a browser shows in light or dark as the reader's system is set.

Each row is a line, and each loop a mark on it, placed by its speed: the baseline is 1, and to the right is faster. The
scale is logarithmic: twice as fast is the same distance everywhere, and half as fast is that distance to the left. A
thin line through a mark is the middle half of its rounds. A loop that was not measured has no mark.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from xml.sax.saxutils import escape

from .report import Run, Section, duration, sections
from .results import LIMIT, Measurement, Outcome, Outcomes, mean_over, speed

# In the units of the drawing, which a browser takes for pixels.
CHARACTER = 7.3  # of the monospaced font, at most
LINE, HEAD, MARGIN, GAP = 21, 46, 18, 14
SCALE_WIDTH, VALUES_WIDTH, SECONDS_WIDTH = 440, 150, 68
MARK = 4.6

WIDEST = (1 / 4, 16.0)
"""The limits of the scale: one row in which a loop is a hundred times as fast would squeeze all others."""

SHAPES: Mapping[str, tuple[str, str]] = {
    "asyncio": ("circle", "grey"),
    "uvloop": ("square", "blue"),
    "rloop": ("up", "orange"),
    "rsloop": ("down", "green"),
    "zuvloop": ("cross", "violet"),
    # aiofastnet's have the colour of the loop beneath.
    "aiofastnet": ("plus", "grey"),
    "aiofastnet-uvloop": ("bow", "blue"),
    "aiofastnet-zuvloop": ("hourglass", "violet"),
    "hotloop-c": ("diamond", "red"),
    "hotloop-compiled": ("square", "red"),
    "hotloop-asyncio-tasks": ("hourglass", "rose"),
    "hotloop-python": ("diamond", "rose"),
    LIMIT: ("bar", "ink"),
}
"""The mark and the colour of each loop. The marks differ, so loops can be told apart without colours."""

COLOURS: Mapping[str, tuple[str, str]] = {
    "paper": ("#ffffff", "#0d1117"),
    "band": ("#f4f6f8", "#161b22"),
    "rule": ("#d8dee4", "#30363d"),
    "pale": ("#656d76", "#9198a1"),
    "ink": ("#1f2328", "#e6edf3"),
    "grey": ("#7d8590", "#9aa4af"),
    "blue": ("#0b6bcb", "#58a6ff"),
    "orange": ("#c76a00", "#f0a63c"),
    "green": ("#1a7f4b", "#4ac98a"),
    "violet": ("#8250df", "#b392f0"),
    "red": ("#d1242f", "#ff6b68"),
    "rose": ("#e58a90", "#a5484a"),
}
"""By CSS class: the colour in light and in dark. CSS variables are not used, because some viewers do not know them."""


def style() -> str:
    def rules(which: int) -> str:
        return "\n".join(
            f".{name}{{fill:{pair[which]}}}line.{name}{{stroke:{pair[which]}}}" for name, pair in COLOURS.items()
        )

    return (
        "text{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace}"
        ".bold{font-weight:700}.end{text-anchor:end}.mid{text-anchor:middle}\n"
        f"{rules(0)}\n@media(prefers-color-scheme:dark){{\n{rules(1)}\n}}"
    )


@dataclass(frozen=True)
class Scale:
    """Where a speed is on the horizontal axis, which all panels share."""

    left: float
    lowest: float
    highest: float

    def x(self, ratio: float) -> float:
        """A speed beyond an end of the scale is at the end."""
        ratio = min(max(ratio, self.lowest), self.highest)
        part = math.log(ratio / self.lowest) / math.log(self.highest / self.lowest)
        return self.left + part * SCALE_WIDTH

    def ticks(self) -> list[float]:
        """The powers of two in it."""
        first = math.ceil(math.log2(self.lowest) - 1e-9)
        return [2.0**power for power in range(first, math.floor(math.log2(self.highest) + 1e-9) + 1)]


def svg(run: Run) -> str:
    """The picture of a run. A run of no rows is a picture without panels."""
    panels = sections(run)
    names_width = max([len("geometric mean"), *(len(row.name) for row in run.rows)]) * CHARACTER
    scale = scale_of(run, panels, MARGIN + names_width + GAP)
    said = notes(run)
    width = max(scale.left + SCALE_WIDTH + VALUES_WIDTH, MARGIN + max(map(len, said)) * CHARACTER) + MARGIN
    head, y = titles_and_legend(run, loops_with_marks(run, panels), width)
    body: list[str] = []
    for panel in panels:
        lines, y = drawn_panel(run, panel, scale, y)
        body += lines
    foot, y = footer(said, y)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {width:.0f} {y:.0f}" '
            f'width="{width:.0f}" height="{y:.0f}">',
            "<title>Event loops side by side</title>",
            f"<desc>{escape(description(run, panels))}</desc>",
            f"<style>{style()}</style>",
            f'<rect width="{width:.0f}" height="{y:.0f}" class="paper"/>',
            *head,
            *body,
            *foot,
            "</svg>\n",
        ]
    )


def description(run: Run, panels: Sequence[Section]) -> str:
    """The speeds as text, for readers who cannot see the picture and for programs."""
    said = []
    for panel in panels:
        for row in panel.rows:
            ratios = {loop: speed(run.outcomes[row.name], loop, panel.baseline) for loop in panel.loops}
            known = (f"{panel.names[loop]} {ratio:.2f}" for loop, ratio in ratios.items() if ratio is not None)
            said.append(f"{row.name}: {', '.join(known)}")
    return f"Speed, {run.baseline} = 1. " + "; ".join(said)


# -- the scale ---------------------------------------------------------------------------------------------------------


def scale_of(run: Run, panels: Sequence[Section], left: float) -> Scale:
    """Wide enough for every mark and its thin line within the limits, and for 1/2 to 2 at least."""
    ratios = [0.5, 2.0]
    for panel in panels:
        for row in panel.rows:
            outcomes = run.outcomes[row.name]
            for loop in marked(run, panel):
                ratios += extent(outcomes, loop, panel.baseline)
    lowest, highest = WIDEST
    return Scale(left, max(min(ratios), lowest) / 1.12, min(max(ratios), highest) * 1.12)


def marked(run: Run, panel: Section) -> list[str]:
    """The loops of a panel, and the bare C server where the panel has it."""
    return [*([LIMIT] if panel.with_load and LIMIT in run.facts else []), *panel.loops]


def extent(outcomes: Outcomes, loop: str, baseline: str) -> list[float]:
    """The speeds at the ends of a mark's thin line; none where there is no mark."""
    reference, outcome = outcomes.get(baseline), outcomes.get(loop)
    if not isinstance(reference, Measurement) or not isinstance(outcome, Measurement):
        return []
    return [reference.median / seconds for seconds in reversed(outcome.middle_half)]


# -- the parts ---------------------------------------------------------------------------------------------------------


def loops_with_marks(run: Run, panels: Sequence[Section]) -> list[str]:
    def has_mark(loop: str) -> bool:
        on = (run.outcomes[row.name] for panel in panels for row in panel.rows if loop in marked(run, panel))
        return any(isinstance(outcomes.get(loop), Measurement) for outcomes in on)

    return [loop for loop in run.facts if has_mark(loop)]


def titles_and_legend(run: Run, loops: Sequence[str], width: float) -> tuple[list[str], float]:
    """The title and the legend, on as many lines as it needs, and where they end."""
    lines = [text(MARGIN, MARGIN + 10, "Speed; to the right is faster, on a logarithmic scale", "bold")]
    x, y = float(MARGIN), MARGIN + 34.0
    for loop in loops:
        label = {LIMIT: "bare C server, the limit"}.get(loop, f"{loop} {run.facts[loop]['version']}")
        taken = len(label) * CHARACTER + 34
        if x + taken > width - MARGIN and x > MARGIN:
            x, y = float(MARGIN), y + LINE
        lines += [mark(loop, x + 6, y - 4), text(x + 17, y, label)]
        x += taken
    return lines, y + GAP


def drawn_panel(run: Run, panel: Section, scale: Scale, top: float) -> tuple[list[str], float]:
    tables = [run.outcomes[row.name] for row in panel.rows]
    summed = len(panel.rows) > 1
    y = top + HEAD
    bottom = y + LINE * (len(panel.rows) + summed)
    title = f"{panel.title}: {panel.faster}, {panel.names[panel.baseline]} = 1"
    lines = [text(MARGIN, y - 24, title, "bold"), *axis(scale, y, bottom)]
    right = scale.left + SCALE_WIDTH + VALUES_WIDTH
    ours = next((loop for loop in ("hotloop-c", "hotloop-python") if loop in panel.loops), None)
    if ours:
        lines.append(text(right, y - 6, ours, "pale end"))
    for number, (row, outcomes) in enumerate(zip(panel.rows, tables, strict=True)):
        if number % 2 == 0:
            lines.append(f'<rect class="band" x="{MARGIN}" y="{y:.1f}" width="{right - MARGIN:.1f}" height="{LINE}"/>')
        lines += drawn_row(row.name, outcomes, marked(run, panel), panel, scale, y + LINE / 2)
        if ours and (value := speed(outcomes, ours, panel.baseline)) is not None:
            lines.append(text(right - SECONDS_WIDTH, y + LINE / 2 + 4, f"{value:.2f}", "end"))
            lines.append(text(right, y + LINE / 2 + 4, time_of(outcomes[ours]), "end"))
        y += LINE
    if summed:
        lines += drawn_means(tables, panel, scale, y + LINE / 2)
        if ours and (mean := mean_speed(tables, ours, panel.baseline)) is not None:
            lines.append(text(right - SECONDS_WIDTH, y + LINE / 2 + 4, f"{mean:.2f}", "end bold"))
    # The rules are drawn over the bands, the marks over the rules.
    lines.sort(key=lambda line: not line.startswith('<rect class="band"'))
    return lines, bottom


def axis(scale: Scale, top: float, bottom: float) -> Iterator[str]:
    for tick in scale.ticks():
        x = scale.x(tick)
        kind = "pale" if tick == 1 else "rule"
        yield f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{top:.1f}" y2="{bottom:.1f}"/>'
        yield text(x, top - 6, f"{tick:g}", "pale mid")


def drawn_row(
    name: str, outcomes: Outcomes, loops: Iterable[str], panel: Section, scale: Scale, y: float
) -> Iterator[str]:
    yield text(MARGIN + 4, y + 4, name)
    for loop in drawn_last(loops):
        ratio = speed(outcomes, loop, panel.baseline)
        if ratio is None:
            continue
        low, high = map(scale.x, extent(outcomes, loop, panel.baseline))
        colour = SHAPES[loop][1]
        if high - low > 2 * MARK:
            yield f'<line class="{colour}" x1="{low:.1f}" x2="{high:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield mark(loop, scale.x(ratio), y, f"{name}, {loop}: {ratio:.2f}, {time_of(outcomes[loop])}")


def drawn_means(tables: Sequence[Outcomes], panel: Section, scale: Scale, y: float) -> Iterator[str]:
    yield text(MARGIN + 4, y + 4, "geometric mean", "bold")
    for loop in drawn_last(panel.loops):
        if (mean := mean_speed(tables, loop, panel.baseline)) is not None:
            yield mark(loop, scale.x(mean), y, f"geometric mean, {loop}: {mean:.2f}")


def mean_speed(tables: Sequence[Outcomes], loop: str, baseline: str) -> float | None:
    return mean_over(tables, baseline, partial(speed, loop=loop, reference=baseline))


def drawn_last(loops: Iterable[str]) -> list[str]:
    """hotloop-c last, so that no other mark covers its own."""
    return sorted(loops, key=lambda loop: loop == "hotloop-c")


def time_of(outcome: Outcome) -> str:
    assert isinstance(outcome, Measurement)
    return duration(outcome.median)


def notes(run: Run) -> list[str]:
    about = run.machine
    return [
        ", ".join(about[key] for key in ("processor", "system", "python") if key in about),
        f"{about.get('cores', 'unknown')} cores, commit {about.get('commit', 'unknown')}, medians of {run.rounds}"
        " interleaved rounds; thin lines: the middle half of them",
        "At the right: its speed, and its time for one operation; of Network, TLS and Libraries, processor time.",
        "A mark at an end of the scale is beyond it.",
    ]


def footer(said: Sequence[str], top: float) -> tuple[list[str], float]:
    y = top + 24
    return [text(MARGIN, y + 17 * line, note, "pale") for line, note in enumerate(said)], y + 17 * len(said)


# -- shapes ------------------------------------------------------------------------------------------------------------


def text(x: float, y: float, content: str, kinds: str = "") -> str:
    classes = kinds if "pale" in kinds else f"{kinds} ink".strip()
    return f'<text class="{classes}" x="{x:.1f}" y="{y:.1f}">{escape(content)}</text>'


def mark(loop: str, x: float, y: float, tip: str = "") -> str:
    """A loop's shape around a point; a browser shows `tip` when the pointer is on it."""
    shape, colour = SHAPES[loop]
    size = MARK * 1.35 if loop == "hotloop-c" else MARK
    at = partial(points, x, y, size)
    match shape:
        case "circle":
            drawn = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size * 0.9:.1f}"'
        case "square":
            drawn = at((-0.8, -0.8), (0.8, -0.8), (0.8, 0.8), (-0.8, 0.8))
        case "up":
            drawn = at((0, -1), (1, 0.8), (-1, 0.8))
        case "down":
            drawn = at((0, 1), (1, -0.8), (-1, -0.8))
        case "cross":
            drawn = at((-0.9, -0.9), (0, -0.3), (0.9, -0.9), (0.3, 0), (0.9, 0.9), (0, 0.3), (-0.9, 0.9), (-0.3, 0))
        case "plus":
            arms = ((-0.3, -1), (0.3, -1), (0.3, -0.3), (1, -0.3), (1, 0.3), (0.3, 0.3))
            drawn = at(*arms, *((-dx, -dy) for dx, dy in arms))
        case "bow":
            drawn = at((-1, -0.8), (1, 0.8), (1, -0.8), (-1, 0.8))
        case "hourglass":
            drawn = at((-0.8, -1), (0.8, -1), (-0.8, 1), (0.8, 1))
        case "bar":
            drawn = at((-0.2, -1.7), (0.2, -1.7), (0.2, 1.7), (-0.2, 1.7))
        case _:
            drawn = at((0, -1.1), (1.1, 0), (0, 1.1), (-1.1, 0))
    inside = f"<title>{escape(tip)}</title>" if tip else ""
    return f'{drawn} class="{colour}">{inside}</{drawn[1:].partition(" ")[0]}>'


def points(x: float, y: float, size: float, *corners: tuple[float, float]) -> str:
    """A polygon's tag without its end; the corners are relative to the centre, in units of `size`."""
    return '<polygon points="' + " ".join(f"{x + size * dx:.1f},{y + size * dy:.1f}" for dx, dy in corners) + '"'

"""A small SVG writer: token boxes, labels and arrows, readable on light and dark pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

import attrs

LETTER = 7.2
"""Width of a letter in pixels. Each text gets it as `textLength`, so that no font moves a box."""
PADDING, GAP, HEIGHT, MARGIN = 6.0, 4.0, 40.0, 20.0
STYLE = """
text { font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #1f2328 }
text.soft { fill: #59636e } text.title { font-weight: bold } text.id { font-size: 11px; fill: #59636e }
.page { fill: #ffffff } .line { stroke: #59636e; fill: none }
.plain { fill: #f3f4f6; stroke: #c3cad2 } .sampled { fill: #d5f2df; stroke: #2da44e }
.close { fill: #fff1c2; stroke: #bf8700 } .environment { fill: #dcebff; stroke: #4c8ad6 }
.speaks { fill: #ecdfff; stroke: #8250df } .changed { fill: #ffdbd7; stroke: #cf222e; stroke-width: 2.5 }
.absent { fill: none; stroke: #cf222e; stroke-width: 2; stroke-dasharray: 4 3 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } text.soft, text.id { fill: #9da7b3 } .page { fill: #0d1117 } .line { stroke: #9da7b3 }
.plain { fill: #1c232b; stroke: #4a535e } .sampled { fill: #12371f; stroke: #3fb950 }
.close { fill: #3d2e00; stroke: #d29922 } .environment { fill: #10294d; stroke: #58a6ff }
.speaks { fill: #2e1a52; stroke: #a371f7 } .changed { fill: #4d1714; stroke: #ff7b72 }
.absent { stroke: #ff7b72 } }
"""


@attrs.frozen
class Box:
    """One token: its text, its id, and the style that says what it is."""

    text: str
    below: str
    style: str = "plain"

    @property
    def width(self) -> float:
        """Width in pixels."""
        return max(len(self.text), len(self.below), 2) * LETTER + 2 * PADDING


@attrs.define
class Picture:
    """Elements of one SVG file, and how far they reach."""

    title: str
    _elements: list[str] = attrs.field(factory=list)
    _right: float = 0.0
    _bottom: float = 0.0

    def text(self, x: float, y: float, text: str, style: str = "") -> float:
        """Write a line of text with its baseline at `y`; return where it ends."""
        width = len(text) * LETTER
        self._reach(x + width, y + 4)
        self._elements.append(
            f'<text class="{style}" x="{x:g}" y="{y:g}" textLength="{width:.1f}">{escape(text)}</text>'
        )
        return x + width

    def box(self, x: float, y: float, box: Box) -> float:
        """Draw a token; return where the next one begins."""
        self.rectangle(x, y, box.width, HEIGHT, box.style)
        self.text(x + (box.width - len(box.text) * LETTER) / 2, y + 17, box.text)
        self.text(x + (box.width - len(box.below) * LETTER) / 2, y + 33, box.below, "id")
        return x + box.width + GAP

    def row(self, x: float, y: float, boxes: Iterable[Box]) -> float:
        """Draw tokens side by side; return where the next one begins."""
        for box in boxes:
            x = self.box(x, y, box)
        return x

    def rectangle(self, x: float, y: float, width: float, height: float, style: str) -> None:
        """Draw a rectangle with round corners."""
        self._reach(x + width, y + height)
        self._elements.append(
            f'<rect class="{style}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4"/>'
        )

    def line(self, *points: tuple[float, float]) -> None:
        """Draw a line through points."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self._elements.append(f'<polyline class="line" points="{path}"/>')

    def svg(self) -> str:
        """Return the file."""
        width, height = self._right + MARGIN, self._bottom + MARGIN
        size = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" xml:space="preserve">',
                f"<title>{escape(self.title)}</title>",
                f"<style>{STYLE}</style>",
                f'<rect class="page" x="0" y="0" width="{width:g}" height="{height:g}" rx="8"/>',
                *self._elements,
                "</svg>\n",
            ]
        )

    def _reach(self, x: float, y: float) -> None:
        self._right, self._bottom = max(self._right, x), max(self._bottom, y)


def width_of(boxes: Sequence[Box]) -> float:
    """Return the width of tokens side by side, with the gap after the last."""
    return sum(box.width + GAP for box in boxes)


def wrapped(boxes: Iterable[Box], limit: float) -> list[list[Box]]:
    """Break tokens into rows of at most `limit` pixels.

    >>> [len(row) for row in wrapped([Box("one", "1"), Box("two", "2"), Box("three", "3")], 80)]
    [2, 1]
    """
    rows: list[list[Box]] = [[]]
    for box in boxes:
        if rows[-1] and width_of([*rows[-1], box]) > limit:
            rows.append([])
        rows[-1].append(box)
    return rows

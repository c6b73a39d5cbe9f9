"""Draws what a program prints on a colour terminal as an SVG with live text.

    script -qec "./run translate --show-attention example/sentences.txt" /dev/null | python3 doc/terminal_picture.py > doc/translate.svg
"""
import re
import sys
import unicodedata
from html import escape

CELL, LINE, SIZE, MARGIN = 8.4, 20, 14, 16
BASE = {30: "#11111b", 31: "#f38ba8", 97: "#ffffff"}


def colour256(index):
    if index < 16:
        return "#cccccc"
    if index >= 232:
        level = 8 + 10 * (index - 232)
        return f"#{level:02x}{level:02x}{level:02x}"
    index -= 16
    return "#" + "".join(f"{0 if v == 0 else 55 + 40 * v:02x}" for v in (index // 36, index // 6 % 6, index % 6))


def width(character):
    return 0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1


def runs(line):
    """(text, style) for every stretch of one style."""
    style = {}
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        if not part.startswith("\x1b["):
            if part:
                yield part, dict(style)
            continue
        codes = [int(code or 0) for code in part[2:-1].split(";")]
        while codes:
            code = codes.pop(0)
            if code == 0:
                style = {}
            elif code == 1:
                style["bold"] = True
            elif code == 2:
                style["dim"] = True
            elif code in (38, 48) and codes[:1] == [5]:
                style["fill" if code == 38 else "back"] = colour256(codes[1])
                codes = codes[2:]
            elif code in BASE:
                style["fill"] = BASE[code]


lines = re.sub(r"\x1b\[[0-9;]*[A-HJ-Zf-ln-z]", "", sys.stdin.read()).replace("\r", "").rstrip("\n").split("\n")
shapes, columns = [], 0
for row, line in enumerate(lines):
    column, y = 0, MARGIN + row * LINE
    for text, style in runs(line):
        # One text element a character cell keeps Chinese and Latin aligned whatever fonts the reader has.
        back = style.get("back")
        cells = sum(width(c) for c in text)
        if back:
            shapes.append(f'<rect x="{MARGIN + column * CELL:.1f}" y="{y + 1}" width="{cells * CELL:.1f}" height="{LINE - 2}" rx="3" fill="{back}"/>')
        fill = style.get("fill", "#7f849c" if style.get("dim") else "#cdd6f4")
        weight = ' font-weight="600"' if style.get("bold") else ""
        for word in re.finditer(r"\S+", text):
            places, at = [], column + sum(width(c) for c in text[: word.start()])
            for character in word.group():
                places.append(f"{MARGIN + at * CELL:.1f}")
                at += width(character)
            shapes.append(f'<text x="{" ".join(places)}" y="{y + 15}" fill="{fill}"{weight}>{escape(word.group())}</text>')
        column += cells
    columns = max(columns, column)
total_width, total_height = 2 * MARGIN + columns * CELL, 2 * MARGIN + len(lines) * LINE
print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total_width:.0f} {total_height}" width="{total_width:.0f}" height="{total_height}" '
      f'font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, \'Noto Sans Mono CJK SC\', \'PingFang SC\', \'Microsoft YaHei\', monospace" font-size="{SIZE}">'
      f'<rect width="100%" height="100%" rx="10" fill="#1e1e2e"/>' + "".join(shapes) + "</svg>")

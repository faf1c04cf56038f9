#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A picture of a terminal: text with ANSI colours on standard input (tmux capture-pane -e -p) -> SVG on standard output.

    tmux capture-pane -e -p | tools/terminal_svg.py [TITLE] > panel.svg

The text stays text. Each run of equal style is a <text> of fixed length, so that columns are straight in every font.
"""
import html
import re
import sys

WIDTH, HEIGHT, MARGIN = 8, 17, 12  # pixels of a cell, and around all of them
COLOURS = ["#30363d", "#ff7b72", "#7ee787", "#e3b341", "#79c0ff", "#d2a8ff", "#76e3ea", "#c9d1d9"]
BRIGHT = ["#8b949e", "#ffa198", "#a5f3b0", "#f2cc60", "#a5d6ff", "#e2c5ff", "#b3f0ff", "#f0f6fc"]
TEXT, GROUND, DIM = "#c9d1d9", "#0d1117", "#8b949e"


def colour_256(number):
    """The colour of an index of the 256-colour palette."""
    if number < 16:
        return (COLOURS + BRIGHT)[number]
    if number >= 232:
        level = 8 + 10 * (number - 232)
        return f"#{level:02x}{level:02x}{level:02x}"
    steps = [0, 95, 135, 175, 215, 255]
    number -= 16
    return "#" + "".join(f"{steps[digit]:02x}" for digit in (number // 36, number // 6 % 6, number % 6))


def restyle(style, codes):
    """The style (colour, bold, dim) after the codes of an SGR sequence."""
    colour, bold, dim = style
    codes = [int(code or 0) for code in codes.split(";")]
    while codes:
        code = codes.pop(0)
        if code == 0:
            colour, bold, dim = TEXT, False, False
        elif code in (1, 2):
            bold, dim = bold or code == 1, dim or code == 2
        elif code == 22:
            bold, dim = False, False
        elif code == 49:
            pass  # the ground of the terminal: there is no other one
        elif code == 39:
            colour = TEXT
        elif 30 <= code <= 37:
            colour = COLOURS[code - 30]
        elif 90 <= code <= 97:
            colour = BRIGHT[code - 90]
        elif code == 38 and codes[0] == 5:
            colour = colour_256(codes[1])
            codes = codes[2:]
        elif code == 38 and codes[0] == 2:
            colour = "#" + "".join(f"{value:02x}" for value in codes[1:4])
            codes = codes[4:]
        else:
            sys.exit(f"terminal_svg.py: SGR code {code} is not supported")
    return colour, bold, dim


def runs(line, style):
    """[(column, text, style)] of a line, and the style at its end. Two blanks divide runs, because browsers merge them.
    Glyphs of other fonts (bars, Braille) are runs of their own."""
    found, column = [], 0
    for codes, text in re.findall(r"\x1b\[([0-9;]*)m|([^\x1b]+)", line):
        if not text:
            style = restyle(style, codes)
            continue
        for match in re.finditer(r"[!-~]+(?: [!-~]+)*|[^ -~]+", text):
            found.append((column + match.start(), match.group(), style))
        column += len(text)
    return found, style


def main():
    title = sys.argv[1] if len(sys.argv) > 1 else "terminal"
    lines = sys.stdin.read().rstrip("\n").split("\n")
    style, rows, columns = (TEXT, False, False), [], 0
    for number, line in enumerate(lines):
        found, style = runs(line, style)
        for column, text, (colour, bold, dim) in found:
            columns = max(columns, column + len(text))
            colour = DIM if dim and colour == TEXT else colour
            looks = "".join([f' fill="{colour}"' if colour != TEXT else "", ' font-weight="bold"' if bold else ""])
            rows.append(f'<text x="{MARGIN + column * WIDTH}" y="{MARGIN + number * HEIGHT + 13}" '
                        f'textLength="{len(text) * WIDTH}" lengthAdjust="spacingAndGlyphs"{looks}>{html.escape(text)}</text>')
    width, height = 2 * MARGIN + columns * WIDTH, 2 * MARGIN + len(lines) * HEIGHT
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
          f'font-family="ui-monospace, SFMono-Regular, Menlo, DejaVu Sans Mono, monospace" font-size="13" fill="{TEXT}">')
    print(f"<title>{html.escape(title)}</title>")
    print(f'<rect width="{width}" height="{height}" rx="8" fill="{GROUND}"/>')
    print("\n".join(rows))
    print("</svg>")


main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tools/small_png.py IN.png OUT.png - a screenshot with at most 256 colours: the most frequent, others as the nearest.
import collections
import struct
import sys
import zlib

COLOURS = 256


def read(path):
    """Width, height and RGB triples of a PNG of 8 bits a channel, not interlaced, as browsers write it."""
    data, at, packed = open(path, "rb").read(), 8, b""
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", body)
            if depth != 8 or colour not in (2, 6) or interlaced:
                sys.exit(f"{path}: wanted 8 bits, RGB or RGBA, not interlaced")
        if kind == b"IDAT":
            packed += body
        at += 12 + length
    n = 3 if colour == 2 else 4
    raw, above, pixels = zlib.decompress(packed), bytearray(width * n), []
    for y in range(height):
        kind = raw[y * (width * n + 1)]
        line = bytearray(raw[y * (width * n + 1) + 1:(y + 1) * (width * n + 1)])
        for i in range(len(line) if kind else 0):
            a, b, c = (line[i - n], above[i], above[i - n]) if i >= n else (0, above[i], 0)
            p = (abs(b - c), abs(a - c), abs(a + b - 2 * c))
            paeth = a if p[0] <= p[1] and p[0] <= p[2] else b if p[1] <= p[2] else c
            line[i] = (line[i] + (0, a, b, (a + b) // 2, paeth)[kind]) & 255
        pixels += zip(line[0::n], line[1::n], line[2::n])
        above = line
    return width, height, pixels


def main():
    width, height, pixels = read(sys.argv[1])
    counts = collections.Counter(pixels)
    kept = [colour for colour, _ in counts.most_common(COLOURS)]
    index = {colour: min(range(len(kept)), key=lambda k: sum((x - y) ** 2 for x, y in zip(colour, kept[k])))
             for colour in counts}
    rows = b"".join(b"\0" + bytes(index[p] for p in pixels[y * width:(y + 1) * width]) for y in range(height))
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
              (b"PLTE", b"".join(bytes(colour) for colour in kept)), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b"")]
    with open(sys.argv[2], "wb") as out:
        out.write(b"\x89PNG\r\n\x1a\n")
        for kind, body in chunks:
            out.write(struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)))


main()

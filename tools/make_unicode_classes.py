#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/token/unicode.def: what the patterns of tokenizers ask about code points, in the Unicode version of the libraries
that define their ids (tiktoken and tokenizers have the same one; it is asked, not assumed).

    tools/make_unicode_classes.py >src/token/unicode.def

First runs of code points of one group of general categories; then the code points that were assigned after Unicode 14, by
category, and their small letters, for a pcre2 and a utf8proc that do not know them (ages are those of the running Python's
unicodedata).
"""
import unicodedata

import tiktoken
from tokenizers.normalizers import NFC, NFD, Lowercase

GROUPS = {"U": ["Lu", "Lt"], "L": ["Ll"], "O": ["Lm", "Lo"], "M": ["Mn", "Mc", "Me"], "N": ["Nd", "Nl", "No"],
          "P": ["Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po"], "S": ["Sm", "Sc", "Sk", "So"]}


def members(category):
    """All code points of a category: what the library's own pattern leaves of the text of all code points."""
    everything = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF)
    encoding = tiktoken.Encoding("x", pat_str=r"\p{%s}" % category, mergeable_ranks={bytes([i]): i for i in range(256)},
                                 special_tokens={})
    return [ord(c) for c in bytes(encoding.encode_ordinary(everything)).decode()]


def runs(values):
    """(first, last, value) of neighbours with the same value."""
    first, last, value = None, None, None
    for c in sorted(values):
        if value == values[c] and c == last + 1:
            last = c
            continue
        if value is not None:
            yield first, last, value
        first, last, value = c, c, values[c]
    yield first, last, value


def is_late(c):
    """Younger than the normal forms of the tokenizers library, which leave it where it is: a mark that is not put into its
    order, a letter that is not taken apart, or the mark that it would be made with."""
    nfc, nfd, ch, order = NFC().normalize_str, NFD().normalize_str, chr(c), unicodedata.combining(chr(c))
    before, behind = "x\u0301" + ch, "x" + ch + "\u0327"
    if order and order != 202 and nfc(before) == before and nfc(behind) == behind:
        return True
    return unicodedata.normalize("NFD", ch) != nfd(ch)


def main():
    assert unicodedata.unidata_version.split(".")[0] == "14", "Python 3.11 is needed, for the ages of code points"
    category = {c: name for names in GROUPS.values() for name in names for c in members(name)}
    group = {c: g for c, name in category.items() for g, names in GROUPS.items() if name in names}
    new = {c: name for c, name in category.items() if unicodedata.category(chr(c)) == "Cn"}
    print("/* Made by tools/make_unicode_classes.py. TM_RUN(first, last, group) of general categories: U: Lu Lt, L: Ll, O: Lm Lo,\n"
          " * M, N, P, S. TM_NEW(first, last, category): assigned after Unicode 14. TM_LOWER(first, last, distance to the small letter):\n"
          " * of those and of later ones, which the reference library lowers, too. TM_LATE(first, last, _):\n"
          " * younger than its normal forms. */")
    small = {c: ord(Lowercase().normalize_str(chr(c))) - c for c in range(0x110000)
             if not 0xD800 <= c <= 0xDFFF and unicodedata.category(chr(c)) == "Cn"}
    late = {c: "L" for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF and (c in new or is_late(c))}
    late |= {ord(unicodedata.normalize("NFD", chr(c))[-1]): "L" for c in list(late) if c not in new}
    for macro, values in (("TM_RUN", group), ("TM_NEW", new), ("TM_LOWER", {c: d for c, d in small.items() if d}),
                          ("TM_LATE", late)):
        print(f"#ifdef {macro}")
        line = ""
        for first, last, value in runs(values):
            item = f"{macro}(0x{first:X}, 0x{last:X}, {value}) "
            if len(line) + len(item) > 118:
                print(line.rstrip())
                line = ""
            line += item
        print(line.rstrip())
        print("#endif")


main()

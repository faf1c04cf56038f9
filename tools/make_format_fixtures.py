#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/graph/formats.txt: what ml_dtypes, torch and numpy make of every float32 in each narrow format.

A conversion to a format of at most 10 bits behind the point sees of a float32 its sign, exponent, 11 bits of the
mantissa and whether one of the others is set. So the patterns hi << 12 | low with all hi below 2^20 and low 0 or 1 stand
for all 2^32. Codes are summed with odd weights: a line is "format saturate rounding checksum".

Needs numpy, ml_dtypes, torch. Usage: tools/make_format_fixtures.py > tests/graph/formats.txt"""
import ml_dtypes
import numpy
import torch

index = numpy.arange(2**21, dtype=numpy.uint64)
bits = ((index >> numpy.uint64(1)) << numpy.uint64(12) | (index & numpy.uint64(1))).astype(numpy.uint32)
values = bits.view(numpy.float32)
weight = index * numpy.uint64(0x9E3779B97F4A7C15) | numpy.uint64(1)
number = ~numpy.isnan(values)

FORMATS = {
    "float16": (numpy.float16, torch.float16, 65504),
    "float8_e4m3": (ml_dtypes.float8_e4m3fn, torch.float8_e4m3fn, 448),
    "float8_e5m2": (ml_dtypes.float8_e5m2, torch.float8_e5m2, 57344),
    "float8_e4m3fnuz": (ml_dtypes.float8_e4m3fnuz, torch.float8_e4m3fnuz, 240),
    "float8_e5m2fnuz": (ml_dtypes.float8_e5m2fnuz, torch.float8_e5m2fnuz, 57344),
    "float4_e2m1": (ml_dtypes.float4_e2m1fn, None, 6),
    "float6_e3m2": (ml_dtypes.float6_e3m2fn, None, 28),
    "float6_e2m3": (ml_dtypes.float6_e2m3fn, None, 7.5),
}


def checksum(codes):
    with numpy.errstate(over="ignore"):
        return int((codes.astype(numpy.uint64) * weight)[number].sum(dtype=numpy.uint64))


def codes_of(array):
    return array.view(numpy.uint16 if array.dtype.itemsize == 2 else numpy.uint8)


def directed(kind, largest, x, away):
    """Toward zero, or to nearest with ties away from it: from the list of all numbers of the format."""
    codes = numpy.arange(2 ** {6: 3, 7.5: 5, 28: 5, 65504: 15}.get(largest, 7), dtype=numpy.uint32)
    unsigned = numpy.uint16 if kind is numpy.float16 else numpy.uint8
    table = codes.astype(unsigned).view(kind).astype(numpy.float64)
    keep = numpy.isfinite(table)
    table, codes = table[keep], codes[keep]
    size = numpy.minimum(numpy.abs(x.astype(numpy.float64)), largest)
    low = numpy.searchsorted(table, size, side="right") - 1
    if away:
        high = numpy.minimum(low + 1, len(table) - 1)
        low = numpy.where(size >= (table[low] + table[high]) / 2, high, low)
    sign = numpy.uint32(2 ** {6: 3, 7.5: 5, 28: 5, 65504: 15}.get(largest, 7))
    negative = numpy.signbit(x)
    if "fnuz" in numpy.dtype(kind).name:
        negative = negative & (codes[low] != 0)
    return codes[low] | numpy.where(negative, sign, 0).astype(numpy.uint32)


with numpy.errstate(all="ignore"):
    for name, (kind, theirs, largest) in FORMATS.items():
        for saturate in (False, True):
            x = numpy.clip(values, -largest, largest) if saturate else values
            codes = codes_of(x.astype(kind))
            if theirs is not None:
                other = torch.from_numpy(x.copy()).to(theirs)
                other = other.view(torch.int16 if theirs is torch.float16 else torch.uint8).numpy()
                same = (other.astype(numpy.int64) & 0xFFFF if theirs is torch.float16 else other) == codes
                # torch saturates e4m3 by itself
                judged = number & (numpy.abs(x) <= largest) if name == "float8_e4m3" else number
                if not same[judged].all():
                    i = numpy.nonzero(~same & judged)[0][0]
                    raise SystemExit(f"{name}: {x[i]!r}: ml_dtypes {codes[i]:#x}, torch {other[i]:#x}")
            print(name, int(saturate), "even", f"{checksum(codes):016x}")
        print(name, 1, "zero", f"{checksum(directed(kind, largest, values, False)):016x}")
        print(name, 1, "away", f"{checksum(directed(kind, largest, values, True)):016x}")

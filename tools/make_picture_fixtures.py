#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/pictures/: parquet files with pictures inside, in the form in which hubs of data sets ship them: a column
`image`, records of `bytes` and `path`, and a column of captions. "Pictures" are short texts. Written by the format's
definition alone; that records are read as pyarrow writes them is tested with the column `meta` of tests/data/parquet/.
And tar archives as WebDataset has them, in every format that Python's tarfile writes.

    tools/make_picture_fixtures.py
"""
import gzip
import io
import json
import pathlib
import struct
import tarfile

OUT = pathlib.Path(__file__).parent.parent / "tests/data/pictures"
I32, I64, BINARY, LIST, STRUCT = 5, 6, 8, 9, 12


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def thrift(*fields):
    """A struct of the compact protocol: (number, kind, value); a list is (kind, values)."""
    out, last = b"", 0
    for number, kind, value in fields:
        out += bytes([(number - last) << 4 | kind])
        last = number
        if kind in (I32, I64):
            out += varint(value << 1)
        elif kind == BINARY:
            out += varint(len(value)) + value
        elif kind == STRUCT:
            out += value
        else:
            of, items = value
            out += bytes([min(len(items), 15) << 4 | of]) + (varint(len(items)) if len(items) > 14 else b"")
            out += b"".join(varint(i << 1) if of == I32 else varint(len(i)) + i if of == BINARY else i for i in items)
    return out + b"\0"


def page(values, highest, codec):
    """A data page of version 1: how much of a value is there (its level), then those that are."""
    levels = [value if isinstance(value, int) else highest for value in values]
    runs = b"".join(varint(2) + bytes([level]) for level in levels)
    body = struct.pack("<I", len(runs)) + runs
    body += b"".join(struct.pack("<I", len(v)) + v for v in values if not isinstance(v, int))
    packed = gzip.compress(body, mtime=0) if codec == 2 else body
    header = thrift((1, I32, 0), (2, I32, len(body)), (3, I32, len(packed)),
                    (5, STRUCT, thrift((1, I32, len(values)), (2, I32, 0), (3, I32, 3), (4, I32, 3))))
    return header + packed


def parquet(name, schema, groups, codec=0):
    """schema: column -> None (a text) or names of members; groups: of rows, a list of stored columns each. A value is bytes,
    or the level up to which it is there: 0 the whole is null, 1 a member is."""
    elements = [thrift((4, BINARY, b"schema"), (5, I32, len(schema)))]
    stored = []
    for column, members in schema.items():
        if members is None:
            elements.append(thrift((1, I32, 6), (3, I32, 1), (4, BINARY, column.encode())))
            stored.append(([column.encode()], 1))
            continue
        elements.append(thrift((3, I32, 1), (4, BINARY, column.encode()), (5, I32, len(members))))
        for member in members:
            elements.append(thrift((1, I32, 6), (3, I32, 1), (4, BINARY, member.encode())))
            stored.append(([column.encode(), member.encode()], 2))
    out, row_groups, rows = b"PAR1", [], 0
    for group in groups:
        chunks = []
        for (path, highest), values in zip(stored, group, strict=True):
            data = b"".join(page(values[i:i + 2], highest, codec) for i in range(0, len(values), 2))
            meta = thrift((1, I32, 6), (2, LIST, (I32, [0, 3])), (3, LIST, (BINARY, path)), (4, I32, codec),
                          (5, I64, len(values)), (6, I64, len(data)), (7, I64, len(data)), (9, I64, len(out)))
            chunks.append(thrift((2, I64, len(out)), (3, STRUCT, meta)))
            out += data
        row_groups.append(thrift((1, LIST, (STRUCT, chunks)), (2, I64, len(out)), (3, I64, len(group[0]))))
        rows += len(group[0])
    footer = thrift((1, I32, 1), (2, LIST, (STRUCT, elements)), (3, I64, rows), (4, LIST, (STRUCT, row_groups)))
    (OUT / f"{name}.parquet").write_bytes(out + footer + struct.pack("<I", len(footer)) + b"PAR1")


def pictures(first, n):
    return [b"picture %d" % i for i in range(first, first + n)]


def paths(first, n):
    return [b"%d.png" % i for i in range(first, first + n)]


def captions(first, n):
    return [b"caption %d" % i for i in range(first, first + n)]


def archive(name, members, form=tarfile.PAX_FORMAT, **more):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form, **more) as tar:
        for member, data in members:
            info = tarfile.TarInfo(member)
            if data is None:
                info.type = tarfile.DIRTYPE
            else:
                info.size = len(data)
            tar.addfile(info, io.BytesIO(data or b""))
    used = len(out.getvalue().rstrip(b"\0"))
    (OUT / f"{name}.tar").write_bytes(out.getvalue()[:(used + 511) // 512 * 512 + 1024])


def archives():
    long = "long/" + "b" * 60 + "/" + "b" * 60
    samples = [("a", None), ("a/000.jpg", b"picture 0"), ("a/000.txt", b"caption 0\n"), ("a/000.cls", b"7"),
               ("a/001.json", json.dumps({"n": 1, "caption": "caption 1"}).encode()), ("a/001.PNG", b"picture 1" * 100),
               ("a/notes", b"nothing"), (f"{long}.webp", b"picture 2"), (f"{long}.txt", b"caption 2"),
               ("a/._000.jpg", b"nothing")]
    archive("ustar", samples, tarfile.USTAR_FORMAT)
    archive("gnu", samples, tarfile.GNU_FORMAT)
    archive("pax", samples, pax_headers={"comment": "all"})
    archive("twice", [("0.jpg", b"0"), ("0.png", b"1")])
    archive("silent", [("0.jpg", b"0"), ("0.json", b'{"text": null}')])
    archive("wrong", [("0.jpg", b"0"), ("0.json", b"[1]")])
    archive("latin1", [("0.jpg", b"0"), ("0.txt", b"caf\xe9")])


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    record = {"image": ["bytes", "path"], "text": None}
    groups = [[pictures(a, n), paths(a, n), captions(a, n)] for a, n in ((0, 3), (3, 5), (8, 1))]
    parquet("plain", record, groups)
    parquet("gzip", record, groups, 2)
    parquet("flat", {"caption": None, "photo": None}, [[captions(0, 2), pictures(0, 2)]])
    parquet("holes", record, [[[b"picture 0", 1, 0, b"picture 3"], [1, b"one.png", 0, b"3.png"], captions(0, 4)]])
    parquet("no_caption", record, [[pictures(0, 2), paths(0, 2), [b"caption 0", 0]]])
    parquet("latin1", record, [[pictures(0, 1), paths(0, 1), [b"caf\xe9"]]])
    parquet("paths", {"image": ["path"], "text": None}, [[paths(0, 1), captions(0, 1)]])
    parquet("both", {"image": ["bytes"], "text": None, "caption": None},
            [[pictures(0, 1), captions(0, 1), captions(1, 1)]])
    archives()
    parquet("only", {"image": ["bytes", "path"]}, [[pictures(0, 2), paths(0, 2)]])


if __name__ == "__main__":
    main()

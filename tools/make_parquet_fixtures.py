#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/parquet/: the same 60 texts (some null, some repeated) as parquet in every codec, encoding and page version
that is read, and in some that are not; rows for fine-tuning whose columns are of odd types (rows_*); needs pyarrow.

    tools/make_parquet_fixtures.py
"""
import json
import pathlib

import pyarrow
import pyarrow.parquet

OUT = pathlib.Path(__file__).parent.parent / "tests/data/parquet"
TEXTS = [None if i % 7 == 3 else f"text {i % 11} " + "äö€😀"[: i % 5] * (i % 4) for i in range(60)]


CALL = {"name": "add", "numbers": [1, 2]}
MESSAGE = pyarrow.struct([("role", pyarrow.string()), ("content", pyarrow.string()), ("id", pyarrow.int64()),
                          ("weight", pyarrow.int64()), ("loss", pyarrow.bool_()),
                          ("tool_calls", pyarrow.list_(pyarrow.struct([("name", pyarrow.string()),
                                                                       ("numbers", pyarrow.list_(pyarrow.int64()))])))])


def talks(**last):
    ask = {"role": "user", "content": "2+2?", "id": 1, "tool_calls": []}
    return pyarrow.array([[ask, {"role": "assistant", "content": "4", "id": 2}], [ask, {"role": "assistant", "content": "four", **last}]],
                         pyarrow.list_(MESSAGE))


PARTS = pyarrow.list_(pyarrow.struct([("role", pyarrow.string()), ("content", pyarrow.list_(pyarrow.struct(
    [("index", pyarrow.int64()), ("text", pyarrow.string()), ("type", pyarrow.string())])))]))


def parts(*of_a_message):
    return {"role": "user" if len(of_a_message) % 2 else "assistant",
            "content": [{"type": "image" if text is None else "text", "text": text} for text in of_a_message]}


def rows():
    alpaca = {"instruction": ["Add.", "Halve."], "output": ["4", "1"]}
    tools = [[CALL], []]
    yield "numbers", {**alpaca, "input": pyarrow.array([None, 2], pyarrow.int64())}
    yield "doubles", {**alpaca, "input": pyarrow.array([2.5, None])}
    yield "nulls", {**alpaca, "input": pyarrow.array([None, None], pyarrow.null()), "n": [1, 2], "tools": tools}
    yield "talks", {"messages": talks()}
    yield "calls", {"messages": talks(tool_calls=[CALL])}
    yield "weights", {"messages": talks(weight=0)}
    yield "parts", {"messages": pyarrow.array([
        [parts("a", " b", "c"), parts("d", "e")], [parts("f"), parts("g ", "h"), parts("i"), parts("j", "k")]], PARTS)}
    yield "parts_image", {"messages": pyarrow.array([[parts("a", None, "b"), parts("c", "d")]], PARTS)}
    yield "parts_empty", {"messages": pyarrow.array([[parts("a"), {"role": "assistant", "content": []}]], PARTS)}
    yield "parts_null", {"messages": pyarrow.array([[parts("a"), {"role": "assistant", "content": None}]], PARTS)}
    yield "parts_index", {"messages": pyarrow.array([[{"role": "user", "content": [{"type": "text", "text": "a", "index": 1}]}]], PARTS)}
    yield "losses", {"messages": talks(loss=False)}
    yield "tools", {"messages": talks(), "tools": tools}
    yield "tools_text", {"messages": talks(), "tools": [json.dumps([CALL]), ""]}


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    table = pyarrow.table({
        "id": pyarrow.array(range(60), pyarrow.int64()), "text": pyarrow.array(TEXTS, pyarrow.string()),
        "meta": pyarrow.array([{"a": i, "b": str(i)} for i in range(60)]), "tags": pyarrow.array([[str(i)] for i in range(60)])})
    for codec in ("none", "snappy", "gzip", "zstd"):
        for version in ("1.0", "2.0"):
            pyarrow.parquet.write_table(table, OUT / f"{codec}-{version[0]}.parquet", compression=codec,
                                        data_page_version=version, row_group_size=25, store_schema=False)
    for name, options in (("plain", {"use_dictionary": False}),
                          ("delta", {"use_dictionary": False, "column_encoding": {"text": "DELTA_LENGTH_BYTE_ARRAY"}}),
                          ("brotli", {"compression": "brotli"}),
                          ("lz4_raw", {"compression": "lz4"}),
                          ("delta_byte", {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}})):
        pyarrow.parquet.write_table(table.select(["text"]), OUT / f"{name}.parquet", row_group_size=25, store_schema=False,
                                    **{"compression": "none", **options})
    pyarrow.parquet.write_table(table, OUT / "mixed.parquet", row_group_size=25, store_schema=False,
                                compression={"id": "brotli", "text": "zstd", "meta.a": "lz4", "meta.b": "brotli",
                                             "tags.list.element": "lz4"})
    with pyarrow.parquet.ParquetWriter(OUT / "empty_groups.parquet", table.schema, compression="snappy",
                                       store_schema=False) as writer:
        for first, count in ((0, 0), (0, 20), (20, 0), (20, 40), (60, 0)):
            writer.write_table(table.slice(first, count))
    required = pyarrow.schema([pyarrow.field("text", pyarrow.string(), nullable=False)])
    pyarrow.parquet.write_table(pyarrow.table([[t for t in TEXTS if t is not None]], schema=required), OUT / "required.parquet",
                                store_schema=False)
    for name, columns in rows():
        pyarrow.parquet.write_table(pyarrow.table(columns), OUT / f"rows_{name}.parquet", store_schema=False)
    twice = pyarrow.Table.from_arrays([["Add."], ["4"], ["5"]], names=["instruction", "output", "output"])
    pyarrow.parquet.write_table(twice, OUT / "rows_twice.parquet", store_schema=False)
    (OUT / "texts.txt").write_text("".join(t + "\n" for t in TEXTS if t is not None))


main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/sft/: small data sets for fine-tuning in the layouts in which WikiText, UltraChat, Alpaca and GovReport are
shipped, with made-up rows; and the rows as lines of JSON (NAME.jsonl). Needs pyarrow.

    tools/make_sft_fixtures.py
"""
import json
import pathlib
import random

import pyarrow
import pyarrow.parquet

OUT = pathlib.Path(__file__).parent.parent / "tests/data/sft"
WORDS = "amber birch cedar delta ember fjord grove haven inlet juniper krill larch moss née österreich 森 🌲 quartz reed sedge".split()


def words(r, least, most):
    return " ".join(r.choice(WORDS) for _ in range(r.randint(least, most)))


def wikitext(r):
    """A line of an article is a row; every second one is empty."""
    return [{"text": ""} if i % 2 == 0 else {"text": f" = {words(r, 1, 3)} = \n" if i % 6 == 1 else f" {words(r, 4, 30)} \n"} for i in range(36)]


def ultrachat(r):
    rows = []
    for i in range(24):
        talk = []
        for _ in range(r.randint(1, 4)):
            talk += [{"content": "Q " + words(r, 2, 12), "role": "user"}, {"content": "A " + words(r, 2, 20), "role": "assistant"}]
        rows.append({"prompt": talk[0]["content"], "prompt_id": f"{r.getrandbits(128):032x}", "messages": talk})
    return rows


def alpaca(r):
    rows = []
    for i in range(40):
        row = {"instruction": words(r, 2, 9), "input": words(r, 1, 9) if i % 3 == 0 else "", "output": words(r, 1, 25)}
        rows.append({**row, "text": "as a whole: " + row["output"]})
    return rows


def govreport(r):
    return [{"id": f"GAO-{i}", "report": words(r, 30, 90), "summary": words(r, 5, 15)} for i in range(12)]


MESSAGE = pyarrow.list_(pyarrow.struct([("content", pyarrow.string()), ("role", pyarrow.string())]))


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    for make in (wikitext, ultrachat, alpaca, govreport):
        name = make.__name__
        rows = make(random.Random(name))
        columns = {key: pyarrow.array([row[key] for row in rows], MESSAGE if key == "messages" else pyarrow.string()) for key in rows[0]}
        pyarrow.parquet.write_table(pyarrow.table(columns), OUT / f"{name}.parquet", row_group_size=10,
                                    data_page_version="2.0" if name == "alpaca" else "1.0",
                                    compression="zstd" if name == "govreport" else "snappy")
        (OUT / f"{name}.jsonl").write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    lists = [[], ["a"], None, ["b", "c", "d"], [], ["e"]]  # texts in turns, some rows without any
    pyarrow.parquet.write_table(pyarrow.table({"data": pyarrow.array(lists, pyarrow.list_(pyarrow.string())), "n": pyarrow.array(range(6))}),
                                OUT / "lists.parquet", store_schema=False)
    ragged = [[{"content": "x", "role": None}], [{"content": None, "role": "user"}, None], None, []]
    pyarrow.parquet.write_table(pyarrow.table({"messages": pyarrow.array(ragged, MESSAGE)}), OUT / "ragged.parquet", store_schema=False)


main()

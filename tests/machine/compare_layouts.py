#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""compare_layouts.py PROGRAM [--cute FOLDER] [--ck FILE] [--triton FILE FILE]

Where numbers of matrix instructions lie: what test_ptx.c and test_gcn_matrix.c state against other people's statements of it.
PROGRAM: build/release/tests/machine/all.
  --cute    CUTLASS's include/cute/atom (mma.sync, wgmma and its operands in shared memory, ldmatrix)
  --ck      composable_kernel's include/ck/tensor_operation/gpu/warp/xdlops_gemm.hpp of 2025 or later (CDNA4's shape)
  --triton  Triton's MfmaGroup.cpp and LinearLayoutConversions.cpp (or Dialect.cpp before): CDNA4's shape, too
compare_layouts.sh has CDNA3's. Exit status 1: one differs.
"""
import re
import subprocess
import sys

places = differ = 0


def count(what, here, bad):
    global places, differ
    places += here
    differ += bad
    print(f"{what}: {here} places, {bad} differ")


def lines(program, *words):
    return [l.split() for l in subprocess.run([program, *words], check=True, capture_output=True, text=True).stdout.splitlines()]


# --- CuTe: Layout<Shape<...>, Stride<...>> of (thread, value)


def cute_layout(text, name, after="", n=0):
    begin = text.index(after)
    found = re.search(rf"using {name}\s*=\s*Layout<(.*?)>;", text[begin:], re.S)
    body = re.sub(r"Int<N/8>", str(n // 8), found[1])
    body = re.sub(r"(Shape|Stride)\s*<", "(", body).replace(">", ",)").replace("_", "")
    return eval("(" + body + ")")


def steps(index, shape, stride):
    if isinstance(shape, int):
        return index * stride
    total = 0
    for size, step in zip(shape, stride):
        size_of = size if isinstance(size, int) else eval("*".join(map(str, size)))
        total += steps(index % size_of, size, step)
        index //= size_of
    return total


def cute_at(layout, thread, value):
    shape, stride = layout
    return steps(thread, shape[0], stride[0]) + steps(value, shape[1], stride[1])


def compare_cute(program, folder):
    def text(name):
        return open(f"{folder}/{name}").read()

    sm80, sm89, gmma, copy = (text(n) for n in ("mma_traits_sm80.hpp", "mma_traits_sm89.hpp", "mma_traits_sm90_gmma.hpp", "copy_traits_sm75.hpp"))
    row = cute_layout(sm80, "SM80_16x8_Row")
    half, byte = "struct MMA_Traits<SM80_16x8x16_F16F16F16F16_TN>", "struct MMA_Traits<SM89_16x8x32_F32E4M3E4M3F32_TN>"
    cases = [
        ("mma.sync m16n8k16 A", "2", "A", cute_layout(sm80, "ALayout", half), 16, False),
        ("mma.sync m16n8k16 B", "2", "B", cute_layout(sm80, "BLayout", half), 8, True),
        ("mma.sync m16n8k16 C", "2", "C", row, 16, False),
        ("mma.sync m16n8k32 A", "4", "A", cute_layout(sm89, "ALayout", byte), 16, False),
        ("mma.sync m16n8k32 B", "4", "B", cute_layout(sm89, "BLayout", byte), 8, True),
        ("mma.sync m16n8k32 C", "4", "C", row, 16, False),
        ("wgmma m64n64k16 A in registers", "64", "A", cute_layout(gmma, "ALayout_64x16"), 64, False),
        ("wgmma m64n64k16 C", "64", "C", cute_layout(gmma, "CLayout_64xN", n=64), 64, False),
        ("wgmma m64n128k16 C", "128", "C", cute_layout(gmma, "CLayout_64xN", n=128), 64, False),
    ]
    for what, form, matrix, layout, first, turned in cases:
        here = lines(program, "fragments", form, matrix)
        bad = 0
        for thread, value, i, j in (map(int, l) for l in here):
            if turned:
                i, j = j, i
            bad += cute_at(layout, thread, value) != i + first * j
        count(what, len(here), bad)
    for matrix, struct in (("L", "SM75_U32x4_LDSM_N"), ("T", "SM75_U16x8_LDSM_T")):
        layout = cute_layout(copy, "DstLayout", f"struct Copy_Traits<{struct}>")
        if isinstance(layout[0][0], int):
            layout = (((layout[0][0],), layout[0][1]), ((layout[1][0],), layout[1][1]))
        here = lines(program, "fragments", "2", matrix)
        bad = n = 0
        for thread, e, i, j in (map(int, l) for l in here):
            for which in range(4):  # four matrices of 8 rows of 128 bits
                n += 1
                bad += cute_at(layout, thread, 32 * which + 16 * e) != 1024 * which + 128 * i + 16 * j
        count(f"ldmatrix x4{' transposed' if matrix == 'T' else ''}", n, bad)


# --- operands of wgmma in shared memory: CuTe says in words how a descriptor with a swizzle of 128 bytes is read


def compare_shared(program, folder):
    text = open(f"{folder}/mma_traits_sm90_gmma.hpp").read()
    for across, major, groups in ((1, "MN", 2), (0, "K", 16)):
        begin = text.index(f"make_gmma_desc<Major::{major}> //")
        form = re.search(r"LayoutType::B128\s*:\s*Swizzle<3,4,3> o smem_ptr o (\(\(.*\)\)):(\(\(.*\)\))", text[begin:])
        for lead, stride in ((2048, 1024), (1024, 2048), (8192, 1024)):
            sizes = {"T": 8, "8T": 64, "m": groups, "k": 2, "LBO": lead // 2, "SBO": stride // 2}
            shape, step = (eval(re.sub(r"8T|LBO|SBO|[Tmk]", lambda word: str(sizes[word[0]]), part)) for part in form.groups())
            here = lines(program, "fragments", "shared", str(across), str(lead), str(stride))
            bad = 0
            for m, k, byte in (map(int, l) for l in here):
                at = 2 * (steps(m, shape[0], step[0]) + steps(k, shape[1], step[1]))
                bad += byte != at ^ (at >> 7 & 7) << 4
            count(f"wgmma operand in shared memory, {major}-major, offsets {lead} and {stride}", len(here), bad)


# --- CDNA4's 32 x 32 x 16

INSTRUCTION = "v_mfma_f32_32x32x16_bf16"


def ours(program, matrix):
    """{(row, column): (lane, register, bit)} as `layouts` prints it."""
    got = {}
    for i, line in enumerate(lines(program, "layouts", INSTRUCTION, matrix)):
        for j, word in enumerate(line[0].split(",")[1:]):
            found = re.fullmatch(r"v(\d+)\{(\d+)\}(?:\.\[\d+:(\d+)\])?", word)
            got[i, j] = int(found[2]), int(found[1]), int(found[3] or 0)
    return got


def operands(program, what, side, each):
    for matrix in "AB":
        here = ours(program, matrix)
        bad = 0
        for at, (lane, register, bit) in here.items():
            line, k = at if matrix == "A" else at[::-1]
            bad += (line, k) != (lane % side, lane // side * each + 2 * register + bit // 16)
        count(f"{INSTRUCTION} {matrix}, {what}", len(here), bad)


def compare_ck(program, path):
    text = open(path).read()
    begin = text.index("mfma_type<MfmaInstr::mfma_f32_32x32x16bf16>")
    c = {n: int(v) for n, v in re.findall(r"constexpr index_t (\w+)\s*=\s*(\d+);", text[begin : begin + 1200])[:10]}
    side = c["num_threads_per_blk"]
    operands(program, "composable_kernel", side, c["k_per_blk"])
    here = ours(program, "D")
    bad = 0
    for (i, j), (lane, register, _) in here.items():
        group, rest = divmod(register, c["group_size"])
        row = (group * c["num_input_blks"] + lane // side) * c["group_size"] + rest
        bad += (i, j) != (row, lane % side)
    count(f"{INSTRUCTION} D, composable_kernel", len(here), bad)


def compare_triton(program, group, conversions):
    found = re.search(r"TRITON_MFMA_v4_2case\(32, 32, bf16T, bf16T, mfma_f32_32x32x16_bf16, (\d+), (\d+)", open(group).read())
    operands(program, "Triton", 32, int(found[2]))
    text = re.sub(r"/\*.*?\*/", "", open(conversions).read())
    found = re.search(r"== 32\).*?\{\{\w+, \{(\{.*?\})\}\},\s*\{\w+, \{(\{.*?\})\}\}\}", text, re.S)
    basis = [[tuple(map(int, p)) for p in re.findall(r"\{\s*(\d+), (\d+)\}", part)] for part in found.groups()]
    here = ours(program, "D")
    bad = 0
    for (i, j), (lane, register, _) in here.items():
        column = row = 0
        for index, vectors in ((register, basis[0]), (lane, basis[1])):
            for bit, (x, y) in enumerate(vectors):
                if index >> bit & 1:
                    column, row = column ^ x, row ^ y
        bad += (i, j) != (row, column)
    count(f"{INSTRUCTION} D, Triton", len(here), bad)


def main(words):
    program, rest = words[0], words[1:]
    while rest:
        option = rest.pop(0)
        if option == "--cute":
            folder = rest.pop(0)
            compare_cute(program, folder)
            compare_shared(program, folder)
        elif option == "--ck":
            compare_ck(program, rest.pop(0))
        elif option == "--triton":
            compare_triton(program, rest.pop(0), rest.pop(0))
        else:
            sys.exit(__doc__)
    print(f"{places} places, {differ} differ")
    return differ > 0 or places == 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))

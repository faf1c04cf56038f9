#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""compare_emulator.py RECORDS TINYGRAD [KERNEL...]

Launches on AMD GPUs that tests/machine executed, repeated by tinygrad's emulator of CDNA machine code: do both leave
the same bits in all memory? RECORDS: the folder of TM_MACHINE_RECORD (gcn_record.c says what is in it). TINYGRAD: a
checkout of github.com/tinygrad/tinygrad. KERNEL: only records whose names contain one of these. Words have 32 bits.
COMPILER=... are the words before "clang" and "ld.lld" (default: build/venv/bin/python -m ziglang).
Exit status 1: a word differs or a launch did not run.
"""
import ctypes
import os
import struct
import subprocess
import sys
import tempfile
import time

COMPILER = os.environ.get("COMPILER", "build/venv/bin/python -m ziglang").split()
READ_WRITE, PRIVATE_ANONYMOUS_NOREPLACE, PRIVATE_ANONYMOUS_NORESERVE = 3, 0x100022, 0x4022  # of mmap, Linux
PAGE = 4096
LDS_GRANULES = 0x1FF  # of 512 bytes: the most that a descriptor's field can say

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def mapped(begin, end):
    """Maps the pages of [begin, end) there; (begin, bytes) of them."""
    begin, bytes_ = begin // PAGE * PAGE, (end + PAGE - 1) // PAGE * PAGE - begin // PAGE * PAGE
    if libc.mmap(begin, bytes_, READ_WRITE, PRIVATE_ANONYMOUS_NOREPLACE, -1, 0) != begin:
        sys.exit(f"cannot map {bytes_} bytes at {begin:#x}: {os.strerror(ctypes.get_errno())}")
    return begin, bytes_


class Code:
    """A code object in memory: its segments, and its symbols by name (address, bytes)."""

    def __init__(self, text, arch):
        with tempfile.TemporaryDirectory() as folder:
            object_, code = f"{folder}/text.o", f"{folder}/text.co"
            target = ["-target", "amdgcn-amd-amdhsa", f"-mcpu={arch}"]
            subprocess.run([*COMPILER, "clang", "-x", "assembler", "-Wa,--no-warn", *target, "-c", text, "-o", object_], check=True)
            subprocess.run([*COMPILER, "ld.lld", "-shared", object_, "-o", code], check=True)
            blob = open(code, "rb").read()
        headers, sections = struct.unpack_from("<QQ", blob, 32)
        _, n_headers, _, n_sections = struct.unpack_from("<HHHH", blob, 54)
        parts = [struct.unpack_from("<IIQQQQQ", blob, headers + 56 * i) for i in range(n_headers)]
        loads = [(offset, at, held, taken) for kind, _, offset, at, _, held, taken in parts if kind == 1]
        self.memory = ctypes.create_string_buffer(max(at + taken for _, at, _, taken in loads) + PAGE)
        self.base = (ctypes.addressof(self.memory) + PAGE - 1) // PAGE * PAGE
        for offset, at, held, _ in loads:
            ctypes.memmove(self.base + at, blob[offset : offset + held], held)
        tables = [struct.unpack_from("<IIQQQQII", blob, sections + 64 * i) for i in range(n_sections)]
        self.symbols = {}
        for _, kind, _, _, offset, bytes_, link, _ in tables:
            for at in range(offset, offset + bytes_ if kind == 11 else offset, 24):  # SHT_DYNSYM
                name, _, _, _, value, size = struct.unpack_from("<IBBHQQ", blob, at)
                begin = tables[link][4] + name
                self.symbols[blob[begin : blob.index(b"\0", begin)].decode()] = (value, size)


def read_record(folder):
    """The lines of `launch` by their first words, and (address, bytes before, bytes after) of each allocation and of the
    zeros between them, which a launch leaves as they are."""
    told, spans = {}, []
    for line in open(f"{folder}/launch"):
        word, *rest = line.split()
        if word == "memory":
            spans.append((int(rest[0]), int(rest[1])))
        else:
            told[word] = rest
    before, after = (open(f"{folder}/{name}", "rb").read() for name in ("before", "after"))
    memory, at = [], 0
    for address, n in spans:
        if memory:
            end = memory[-1][0] + len(memory[-1][1])
            memory.append((end, bytes(address - end), bytes(address - end)))
        memory.append((address, before[at : at + n], after[at : at + n]))
        at += n
    return told, memory


def widen_lds(emulator):
    """That emulator also reads LDS where lanes that are masked out point: anywhere in 32 bits. There is memory then."""
    room = libc.mmap(None, (1 << 32) + PAGE, READ_WRITE, PRIVATE_ANONYMOUS_NORESERVE, -1, 0)
    new, options_of = emulator.Buffer, emulator.BufferSpec

    def buffer(device, size, dtype, options=None):
        if options is None and size == LDS_GRANULES * 512 // 4:
            options = options_of(external_ptr=room)
        return new(device, size, dtype, options=options)

    emulator.Buffer = buffer


def launch(emulator, folder, told, memory):
    """What the other emulator leaves in each part of memory."""
    (kernel,), (arch,) = told["kernel"], told["arch"]
    code = Code(f"{folder}/text.s", arch)
    pages = mapped(memory[0][0], memory[-1][0] + len(memory[-1][1]))
    try:
        for address, before, _ in memory:
            ctypes.memmove(address, before, len(before))
        # LLVM's "User Guide for AMDGPU Backend", code object V3 kernel descriptor
        descriptor = ctypes.string_at(code.base + code.symbols[kernel + ".kd"][0], 64)
        scratch, entry, resources = struct.unpack_from("<I", descriptor, 4)[0], *struct.unpack_from("<q", descriptor, 16), *struct.unpack_from("<I", descriptor, 52)
        resources |= LDS_GRANULES << 15
        arguments = int(told["arguments"][0])
        sizes = [int(x) for word in ("blocks", "threads") for x in told[word]]
        begin = code.base + code.symbols[kernel + ".kd"][0] + entry
        user = [arguments & 0xFFFFFFFF, arguments >> 32]
        emulator.run_asm(begin, code.symbols[kernel][1], *sizes, arguments, resources, scratch, "cdna", user)
        return [ctypes.string_at(address, len(before)) for address, before, _ in memory]
    finally:
        libc.munmap(*pages)


def words(data):
    return memoryview(data + bytes(-len(data) % 4)).cast("I")


def compare(memory, theirs):
    """(words that one of both wrote, words that differ, the first of them in words)"""
    written = differ = 0
    first = ""
    for (address, before, after), their in zip(memory, theirs):
        for i in range(0, len(before), PAGE):
            old, ours, other = (x[i : i + PAGE] for x in (before, after, their))
            if old == ours == other:
                continue
            for k, (a, b, c) in enumerate(zip(words(old), words(ours), words(other))):
                written += a != b or a != c
                differ += b != c
                if b != c and not first:
                    first = f"; first at {address + i + 4 * k:#x}: {b:08x} here, {c:08x} there"
    return written, differ, first


def repeat(emulator, folder):
    """Repeats a launch and prints what differs; True: nothing does."""
    begun = time.process_time()
    told, memory = read_record(folder)
    try:
        theirs = launch(emulator, folder, told, memory)
    except Exception as e:
        print(f"{os.path.basename(folder)}: did not run: {type(e).__name__}: {str(e)[:300]}")
        return False
    written, differ, first = compare(memory, theirs)
    print(f"{os.path.basename(folder)}: {written} words compared, {differ} differ{first}; {time.process_time() - begun:.1f} s")
    return written > 0 and differ == 0


def apart(emulator, folder):
    """The same in a process of its own: an emulator that follows a wrong address ends it."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        good = repeat(emulator, folder)
        sys.stdout.flush()
        os._exit(0 if good else 1)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        print(f"{os.path.basename(folder)}: did not run: the emulator ended by signal {os.WTERMSIG(status)}")
    return status == 0


def main(records, tinygrad, kernels):
    os.environ.setdefault("DEV", "CPU")
    sys.path.insert(0, tinygrad)
    from test.mockgpu.amd import emu

    widen_lds(emu)
    names = [n for n in sorted(os.listdir(records)) if not kernels or any(k in n for k in kernels)]
    good = sum(apart(emu, f"{records}/{name}") for name in names)
    print(f"{len(names)} launches, {good} left the same bits")
    return not 0 < len(names) == good


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))

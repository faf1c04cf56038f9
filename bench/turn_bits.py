# SPDX-License-Identifier: Apache-2.0
"""A bit turned from outside in what a program has written, once a period: in its memory, or in its files below a folder.

    python3 bench/turn_bits.py PID memory SEED PERIOD
    python3 bench/turn_bits.py PID FOLDER SEED PERIOD

PID and all that it starts are looked at, until PID ends. A place in memory is drawn among the pages that are there of
unnamed mappings of 4 MiB or more; a place in a file among the bytes of all files below FOLDER, those that have lost their
name included. Each turn is a line: seconds since the start, what, where. The last line is how many there were.
"""
import os
import random
import struct
import sys
import time

PAGE = os.sysconf("SC_PAGESIZE")


def family(pid):
    """The process and those that it has started, as far as they live."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as f:
                parents[int(name)] = int(f.read().rsplit(")", 1)[1].split()[1])
        except OSError:
            pass
    found = [pid]
    for member in found:
        found += [child for child, parent in parents.items() if parent == member]
    return [member for member in found if member in parents]


def pages(pid):
    """Addresses of pages that are there, of unnamed mappings that may be written."""
    found = []
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/pagemap", "rb") as pagemap:
        for line in maps:
            words = line.split()
            begin, end = (int(x, 16) for x in words[0].split("-"))
            if words[4] != "0" or len(words) > 5 or not words[1].startswith("rw") or end - begin < 4 << 20:
                continue
            pagemap.seek(begin // PAGE * 8)
            entries = pagemap.read((end - begin) // PAGE * 8)
            found += [begin + i * PAGE for i, (e,) in enumerate(struct.iter_unpack("<Q", entries)) if e >> 63]
    return found


def turn_memory(pids, draw):
    there = [(pid, address) for pid in pids for address in pages(pid)]
    if not there:
        return None
    pid, page = draw.choice(there)
    address, mask = page + draw.randrange(PAGE), 1 << draw.randrange(8)
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        memory.seek(address)
        old = memory.read(1)[0]
        memory.seek(address)
        memory.write(bytes([old ^ mask]))
    return f"process {pid} address {address:#x} {old:#04x} -> {old ^ mask:#04x}"


def turn_file(pids, folder, draw):
    paths = [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names]
    for pid in pids:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            link = f"/proc/{pid}/fd/{fd}"
            target = os.readlink(link)
            if target.startswith(folder + "/") and target.endswith(" (deleted)"):
                paths.append(link)
    sizes = [(path, os.stat(path).st_size) for path in paths]
    total = sum(size for _, size in sizes)
    if total == 0:
        return None
    at = draw.randrange(total)
    for path, size in sizes:
        if at < size:
            break
        at -= size
    fd = os.open(path, os.O_RDWR)
    old = os.pread(fd, 1, at)[0]
    new = old ^ 1 << draw.randrange(8)
    os.pwrite(fd, bytes([new]), at)
    os.fsync(fd)
    os.close(fd)
    return f"{os.path.realpath(path)} byte {at} {old:#04x} -> {new:#04x}"


def main():
    pid, where, draw, period = int(sys.argv[1]), sys.argv[2], random.Random(int(sys.argv[3])), float(sys.argv[4])
    begun, turned = time.monotonic(), 0
    while True:
        time.sleep(period)
        pids = family(pid)
        if not pids:
            break
        try:
            told = turn_memory(pids, draw) if where == "memory" else turn_file(pids, where, draw)
        except (OSError, ValueError, IndexError):  # it went away meanwhile
            continue
        if told:
            turned += 1
            print(f"{time.monotonic() - begun:.2f} {told}", flush=True)
    print(turned)


main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A clang for `make judge-clang` that is ROCm's own hiprtc: what a user's machine compiles, without a GPU.

  HIPRTC=libhiprtc.so LLVM=/usr/lib/llvm-21/bin hiprtc_clang.py FLAGS... -S FILE.hip -o FILE.s

hiprtc compiles for --offload-arch, with the options that src/gpu/compile.c gives it. LLVM's objdump and readelf make
assembler of the code object: instructions with labels, descriptors of kernels, metadata. The emulator reads that.
"""
import ctypes
import os
import re
import subprocess
import sys

GIVEN = ("--offload-arch=", "-ffp-contract=", "-std=", "-O", "-D")


def fail(text):
    print("hiprtc_clang: " + text, file=sys.stderr)
    sys.exit(1)


def hiprtc(source, options):
    """The bytes of the code object."""
    library = ctypes.CDLL(os.environ.get("HIPRTC", "libhiprtc.so"))
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    if library.hiprtcCreateProgram(ctypes.byref(program), source, b"k.hip", 0, None, None) != 0:
        fail("hiprtc does not take the text")
    words = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
    if library.hiprtcCompileProgram(program, len(options), words) != 0:
        library.hiprtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value + 1)
        library.hiprtcGetProgramLog(program, log)
        fail(log.value.decode(errors="replace"))
    library.hiprtcGetCodeSize(program, ctypes.byref(size))
    code = ctypes.create_string_buffer(size.value)
    if library.hiprtcGetCode(program, code) != 0:
        fail("hiprtc gives no code")
    return code.raw


def tool(name, *arguments):
    path = os.path.join(os.environ.get("LLVM", ""), name)
    return subprocess.run([path, *arguments], check=True, capture_output=True, text=True).stdout


def assembler(path, arch):
    """Lines: of each kernel its code and its descriptor, in the order of the metadata."""
    section, code, descriptors, targets = None, {}, {}, set()
    for line in tool("llvm-objdump", "-d", f"--mcpu={arch}", path).splitlines():
        head = re.match(r"[0-9a-f]+ <(\S+)>:$", line)
        text = re.match(r"\s+(\S.*?)\s*// ([0-9A-F]+):(?: [0-9A-F]{8})+(?: <(\S+?)\+0x([0-9a-f]+)>)?", line)
        if head:
            section = code.setdefault(head.group(1), [])
        elif text:
            what, at, function, offset = text.groups()
            if function and re.match(r"s_c?branch", what):
                targets.add((function, int(offset, 16)))
                what = f"{what.split()[0]} .L{function}_{int(offset, 16)}"
            section.append((int(at, 16), what))
    for line in tool("llvm-objdump", "-D", "-j", ".rodata", f"--mcpu={arch}", path).splitlines():
        if line.startswith(".amdhsa_kernel "):
            section = descriptors.setdefault(line.split()[1], [])
        if line.startswith((".amdhsa_", "\t.amdhsa_", ".end_amdhsa_kernel")):
            section.append(line)
    notes = tool("llvm-readelf", "--notes", path)
    metadata = notes[notes.index("---\n"):notes.index("...\n")]
    out = [f'.amdgcn_target "amdgcn-amd-amdhsa--{arch}"', ".text"]
    for name in re.findall(r"^    \.name: +(\S+)$", metadata, re.M):
        first = code[name][0][0]
        out.append(name + ":")
        for at, what in code[name]:
            if (name, at - first) in targets:
                out.append(f".L{name}_{at - first}:")
            out.append("\t" + what)
        out += descriptors[name]
    return out + [".section .note", ".amdgpu_metadata", metadata + "...", ".end_amdgpu_metadata"]


def main():
    words = sys.argv[1:]
    if "-S" not in words or "-o" not in words:
        fail("usage: hiprtc_clang.py FLAGS... -S FILE -o FILE")
    source, out = words[words.index("-S") + 1], words[words.index("-o") + 1]
    options = [word for word in words if word.startswith(GIVEN)]
    arch = next(word for word in options if word.startswith(GIVEN[0]))[len(GIVEN[0]):]
    with open(source, "rb") as f:
        code = hiprtc(f.read(), options)
    with open(out + ".o", "wb") as f:
        f.write(code)
    lines = assembler(out + ".o", arch)
    os.unlink(out + ".o")
    with open(out, "w") as f:
        f.write("\n".join(lines) + "\n")


main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The set of GPU kernels that releases have inside (src/gpu/embedded.h): the code that the tests judge.

  tools/embed_kernels.py make     build/kernels/set.bin of what src/device/gpu/source/modules.txt lists, if it is not
                                  there or older than texts, list, compilers or this tool
  tools/embed_kernels.py check    assembles every text again: the same bytes as in the set?
  tools/embed_kernels.py judged   exit status 5 if the tests have not judged this very set

A module is a text with definitions. For AMD's GPUs clang writes assembler, which the tests execute; of that very text
come the bytes of the code object (version 5: what the LLVM 18 of ROCm 6.3 writes by default). For NVIDIA's, NVRTC 12.0
writes PTX (ISA 8.0) for sm_80: drivers of CUDA 12.0 and later load it, on sm_80 and what came later; the texts use
nothing that only later ones have. What the list has under "sm_90" does, and is for sm_90a alone. build/kernels/ARCH has
MODULE.code and, of AMD's, MODULE.s.
"""
import concurrent.futures
import ctypes
import fcntl
import glob
import hashlib
import os
import re
import struct
import subprocess
import sys
import tempfile

FOLDER, LIST, PYTHON = "build/kernels", "src/device/gpu/source/modules.txt", "build/venv/bin/python"
ARCHS = {"hip": ("gfx942", "gfx950"), "cuda": ("sm_80",), "sm_90": ("sm_90a",)}
OLDEST_CUDA, ISA = 12000, "8.0"
CLANG = "-O3 -std=c++17 -ffp-contract=off -mcode-object-version=5"
HIP = "-x hip --cuda-device-only --no-gpu-bundle-output -nogpuinc -nogpulib " + CLANG
NVRTC = ("--fmad=false", "--std=c++17")
ENTRY = struct.Struct("<QQQi12s128s")  # src/gpu/embedded.c


def fail(text):
    print("embed_kernels: " + text, file=sys.stderr)
    sys.exit(4)


def xxh3(data):
    library = ctypes.CDLL("libxxhash.so.0")
    library.XXH3_64bits.restype = ctypes.c_uint64
    return library.XXH3_64bits(data, ctypes.c_size_t(len(data)))


def compress(data):
    library = ctypes.CDLL("libzstd.so.1")
    library.ZSTD_compress.restype = library.ZSTD_compressBound.restype = ctypes.c_size_t
    room = library.ZSTD_compressBound(ctypes.c_size_t(len(data)))
    out = ctypes.create_string_buffer(room)
    n = library.ZSTD_compress(out, ctypes.c_size_t(room), data, ctypes.c_size_t(len(data)), 19)
    if n > room:
        fail("zstd cannot compress the set")
    return out.raw[:n]


def texts():
    """Every text as the device passes it to a compiler, by name."""
    sources = sorted(glob.glob("src/device/gpu/source/*.cu"))
    out, name = {}, None
    for line in subprocess.run(["tools/gpu_texts.sh", *sources], check=True, capture_output=True, text=True).stdout.splitlines():
        if line.startswith("extern"):
            name = re.search(r"tm_gpu_text_(\w+)", line).group(1)
            out[name] = ""
        elif line.startswith('    "'):
            out[name] += re.sub(r"\\(.)", r"\1", line[5:-2]) + "\n"
    return {name: out["dialect"] + text for name, text in out.items()}


class Module:
    def __init__(self, arch, name, definitions, text):
        self.arch, self.name, self.definitions, self.text = arch, name, definitions, text
        self.kernels = []
        whole = b"".join(word.encode() + b"\0" for word in [arch, *definitions]) + text.encode()
        self.key = xxh3(whole)
        self.path = f"{FOLDER}/{arch}/{name}-{self.key:016x}"


def listed():
    all_texts, modules = texts(), {}
    for line in open(LIST):
        words, kernel = line.rstrip("\n").split(": ")
        maker, name, *definitions = words.split(" ")
        for arch in ARCHS[maker]:
            module = modules.setdefault((arch, words), Module(arch, name, definitions, all_texts[name]))
            module.kernels.append(kernel)
    return list(modules.values())


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        fail(f"{' '.join(words)}: {done.stderr[:2000]}")


def assemble(arch, text, code):
    """The code object of an assembler text."""
    with tempfile.TemporaryDirectory() as folder:
        run(PYTHON, "-m", "ziglang", "clang", "-target", "amdgcn-amd-amdhsa", f"-mcpu={arch}", "-c", text, "-o", f"{folder}/k.o")
        run(PYTHON, "-m", "ziglang", "ld.lld", "-shared", "-s", f"{folder}/k.o", "-o", code)


def compile_amd(module):
    with tempfile.TemporaryDirectory() as folder:
        source = f"{folder}/k.hip"
        with open(source, "w") as f:
            f.write(module.text)
        run(PYTHON, "-m", "ziglang", "clang", *HIP.split(), f"--offload-arch={module.arch}",
            *[f"-D{d}" for d in module.definitions], "-S", source, "-o", module.path + ".s")
    assemble(module.arch, module.path + ".s", module.path + ".code.new")


def nvrtc_library():
    found = glob.glob("build/venv/lib/python*/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12")
    if not found:
        fail("there is no NVRTC 12 in build/venv: run tools/kernel_compilers.sh")
    return ctypes.CDLL(found[0])


def compile_nvidia(module):
    library, program, size = nvrtc_library(), ctypes.c_void_p(), ctypes.c_size_t()
    arch = "--gpu-architecture=" + module.arch.replace("sm_", "compute_")
    options = [o.encode() for o in [arch, *NVRTC, *[f"-D{d}" for d in module.definitions]]]
    library.nvrtcCreateProgram(ctypes.byref(program), module.text.encode(), b"k.cu", 0, None, None)
    code = library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    what = "PTX" if code == 0 else "ProgramLog"
    getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    out = ctypes.create_string_buffer(size.value)
    getattr(library, f"nvrtcGet{what}")(program, out)
    library.nvrtcDestroyProgram(ctypes.byref(program))
    text = out.value.decode()
    if code != 0:
        fail(f"NVRTC cannot compile {module.name}: {text[:2000]}")
    # NVRTC 12.0 leaves constants of its own header <nv/target> that nobody reads.
    for line in re.findall(r"^\.global .*2nv6target.*\n", text, re.M):
        name = re.search(r"_ZN\w+", line).group()
        if text.count(name) != 1:
            fail(f"{module.name}: {name} is used")
        text = text.replace(line, "")
    if f".version {ISA}\n" not in text or f".target {module.arch}\n" not in text:
        fail(f"{module.name}: not PTX {ISA} for {module.arch}")
    with open(module.path + ".code.new", "wb") as f:
        f.write(text.encode() + b"\0")


def compile_one(module):
    if not os.path.exists(module.path + ".code"):
        (compile_nvidia if module.arch.startswith("sm_") else compile_amd)(module)
        os.rename(module.path + ".code.new", module.path + ".code")


def pack(modules):
    entries, content = [], b""
    head = 8 + ENTRY.size * len(modules)
    for m in modules:
        content += b"\0" * (-(head + len(content)) % 64)
        with open(m.path + ".code", "rb") as f:
            code = f.read()
        kernels = f" {' '.join(sorted(m.kernels))} ".encode()
        if len(kernels) >= 128:
            fail(f"{m.name}: too many kernels")
        needs = OLDEST_CUDA if m.arch.startswith("sm_") else 0
        entries.append(ENTRY.pack(m.key, head + len(content), len(code), needs, m.arch.encode(), kernels))
        content += code
    raw = struct.pack("<Q", len(modules)) + b"".join(entries) + content
    body = struct.pack("<Q", len(raw)) + compress(raw)
    return b"TMKSET1\0" + struct.pack("<Q", xxh3(body)) + body, len(raw)


def made_by():
    """What the code depends on beside texts and definitions."""
    own = hashlib.sha256(open("tools/embed_kernels.py", "rb").read()).hexdigest()
    return own + "".join(sorted(os.path.basename(p) for p in glob.glob("build/venv/lib/python*/site-packages/*.dist-info")))


def prepare_folder():
    os.makedirs(FOLDER, exist_ok=True)
    lock = open(FOLDER + "/lock", "w")  # until the process ends
    fcntl.flock(lock, fcntl.LOCK_EX)
    path = FOLDER + "/made-by"
    if not os.path.exists(path) or open(path).read() != made_by():
        for old in glob.glob(FOLDER + "/*/*") + glob.glob(FOLDER + "/*.*"):
            os.remove(old)
    for arch in sum(ARCHS.values(), ()):
        os.makedirs(f"{FOLDER}/{arch}", exist_ok=True)
    with open(path, "w") as f:
        f.write(made_by())
    return lock


def make():
    lock = prepare_folder()
    modules = listed()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_one, modules))
    known = {m.path for m in modules}
    for old in glob.glob(FOLDER + "/*/*.*"):
        if old.rsplit(".", 1)[0] not in known:
            os.remove(old)
    for arch in sum(ARCHS.values(), ()):  # what the tests have to launch
        with open(f"{FOLDER}/{arch}/kernels", "w") as f:
            f.writelines(f"{os.path.basename(m.path)} {k}\n" for m in modules if m.arch == arch for k in m.kernels)
    packed, raw = pack(modules)
    path = FOLDER + "/set.bin"
    if not os.path.exists(path) or open(path, "rb").read() != packed:
        with open(path + ".new", "wb") as f:
            f.write(packed)
        os.rename(path + ".new", path)
        print(f"{path}: {len(modules)} modules ("
              + ", ".join(f"{sum(m.arch == a for m in modules)} for {a}" for a in sum(ARCHS.values(), ()))
              + f"), {raw} bytes, packed {len(packed)}")
    lock.close()


def check():
    texts_of = sorted(glob.glob(FOLDER + "/gfx*/*.s"))
    if not texts_of:
        fail("there is no set: tools/embed_kernels.py make")

    def same(text):
        with tempfile.TemporaryDirectory() as folder:
            assemble(text.split("/")[-2], text, folder + "/again")
            return open(folder + "/again", "rb").read() == open(text[:-1] + "code", "rb").read()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for text, equal in zip(texts_of, pool.map(same, texts_of)):
            if not equal:
                print(f"embed_kernels: {text} assembled again is another code", file=sys.stderr)
                sys.exit(5)
    print(f"{len(texts_of)} texts assembled again: the same bytes")


def judged():
    if not os.path.exists(FOLDER + "/set.bin"):
        fail("there is no set of kernels: make judge-kernels")
    with open(FOLDER + "/set.bin", "rb") as f:
        wanted = f"{struct.unpack('<Q', f.read()[8:16])[0]:016x}\n"
    for arch in sum(ARCHS.values(), ()):
        path = f"{FOLDER}/judged.{arch}"
        if not os.path.exists(path) or open(path).read() != wanted:
            print(f"embed_kernels: the tests have not judged the kernels of this set for {arch}: make judge-kernels",
                  file=sys.stderr)
            sys.exit(5)


if __name__ == "__main__":
    os.chdir(os.path.dirname(os.path.abspath(__file__)) + "/..")
    commands = {"make": make, "check": check, "judged": judged}
    if len(sys.argv) != 2 or sys.argv[1] not in commands:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    if not os.access(PYTHON, os.X_OK) and sys.argv[1] != "judged":
        fail("there are no compilers of kernels: run tools/kernel_compilers.sh, or leave kernels out (KERNELS=none)")
    commands[sys.argv[1]]()

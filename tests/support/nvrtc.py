"""NVRTC from the package index, without CUDA and without a GPU: compiles CUDA sources, and reads what came of them.

``pip install nvidia-cuda-nvrtc-cu12 nvidia-cuda-nvrtc nvidia-cuda-nvdisasm`` brings versions 12 and 13 of the compiler
and the disassembler.
"""

import ctypes
import re
import subprocess
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = {"12": "nvidia-cuda-nvrtc-cu12", "13": "nvidia-cuda-nvrtc"}
DISASSEMBLER = "nvidia-cuda-nvdisasm"


def _file(package: str, pattern: str) -> Path | None:
    """The file of an installed package whose path matches, or None."""
    try:
        files = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        return None
    found = [Path(str(file.locate())) for file in files if re.search(pattern, str(file))]
    return found[0] if found else None


@cache
def library(version: str) -> Any:
    """NVRTC of this version, or None where its package is not installed."""
    path = _file(PACKAGES[version], rf"/libnvrtc\.so\.{version}$")
    return None if path is None else ctypes.CDLL(str(path))


@cache
def disassembler() -> Path | None:
    return _file(DISASSEMBLER, r"bin/nvdisasm$")


class CompileError(Exception):
    """NVRTC refused a source; the message is its log."""


@dataclass(frozen=True)
class Kernel:
    """What a kernel takes: registers of a thread, and bytes of memory, of a thread and (``shared``) of a block."""

    registers: int
    spilled: int
    frame: int  # local memory: what is spilled, and arrays that do not lie in registers
    shared: int

    @property
    def only_spills(self) -> bool:
        """Whether local memory holds what is spilled and no array; it is a multiple of 8 bytes."""
        return self.frame <= -(-self.spilled // 8) * 8


@dataclass(frozen=True)
class Compiled:
    code: bytes
    kernels: dict[str, Kernel]


@cache
def compiled(version: str, source: str, arch: str) -> Compiled:
    """A source compiled for an architecture such as ``"sm_80"``; what each kernel takes is read from the log."""
    nvrtc, program = library(version), ctypes.c_void_p()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None) == 0
    options = [f"--gpu-architecture={arch}".encode(), b"--std=c++17", b"--ptxas-options=-v"]
    failed = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    log = _read(nvrtc, program, "ProgramLog").decode(errors="replace")
    if failed:
        raise CompileError(log)
    code = _read(nvrtc, program, "CUBIN")
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return Compiled(code, dict(_about(part) for part in log.split("Compiling entry function")[1:]))


def _read(nvrtc: Any, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    assert getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)) == 0
    text = ctypes.create_string_buffer(size.value)
    assert getattr(nvrtc, f"nvrtcGet{what}")(program, text) == 0
    return text.raw


def _about(log: str) -> tuple[str, Kernel]:
    """A kernel's name and what it takes, from the assembler's report on it."""

    def number(pattern: str) -> int:
        found = re.search(pattern, log)
        return int(found[1]) if found else 0

    registers = number(r"Used (\d+) registers")
    assert registers, log
    bytes_of = [number(rf"(\d+) bytes {what}") for what in ("spill stores", "stack frame", "smem")]
    return re.findall(r"'(\w+)'", log)[0], Kernel(registers, *bytes_of)


def assembly(compiled: Compiled, kernel: str, folder: Path) -> list[str]:
    """The instructions of a kernel and its labels, line by line."""
    path = folder / "kernel.cubin"
    path.write_bytes(compiled.code)
    done = subprocess.run([str(disassembler()), str(path)], capture_output=True, text=True, check=True)
    lines = re.split(r"^\.text\.(\w+):$", done.stdout, flags=re.MULTILINE)
    return lines[lines.index(kernel) + 1].split("\n\t.section")[0].splitlines()


def time_loop(compiled: Compiled, kernel: str, folder: Path) -> tuple[list[str], list[str]]:
    """The instructions of a kernel outside and inside its outermost loop with a barrier, the loop over time."""
    text = assembly(compiled, kernel, folder)
    labels = {line[:-1]: n for n, line in enumerate(text) if line.startswith(".L_") and line.endswith(":")}
    backwards = [
        (labels[target[1]], n)
        for n, line in enumerate(text)
        if (target := re.search(r"BRA.*`\((\.L_\w+)\)", line)) and labels.get(target[1], n) < n
    ]
    barred = [(a, b) for a, b in backwards if any("BAR.SYNC" in line for line in text[a:b])]
    first, last = max(barred, key=lambda span: span[1] - span[0])
    return text[:first] + text[last:], text[first:last]

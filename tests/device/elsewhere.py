"""torch.device("elsewhere"), built from elsewhere.cpp with the compiler of the machine."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

SOURCE = Path(__file__).with_name("elsewhere.cpp")
COMPILER = shutil.which("g++") or shutil.which("c++")


def build(folder: Path) -> Path:
    """The library, compiled against the torch that is installed."""
    assert COMPILER is not None
    made, torch_folder = folder / "elsewhere.so", Path(torch.__file__).parent
    abi = int(torch.compiled_with_cxx11_abi())
    include, libraries = torch_folder / "include", torch_folder / "lib"
    subprocess.run(
        [COMPILER, "-std=c++20", "-O0", "-shared", "-fPIC", "-w", f"-D_GLIBCXX_USE_CXX11_ABI={abi}",
         f"-I{include}", f"-I{include / 'torch/csrc/api/include'}", str(SOURCE), "-o", str(made),
         f"-L{libraries}", "-ltorch", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{libraries}"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return made


def install(library: Path) -> torch.device:
    """Make the device known to this process, for good."""
    torch.ops.load_library(str(library))
    torch.utils.rename_privateuse1_backend("elsewhere")
    module: Any = ModuleType("torch.elsewhere")
    module.is_available = module.is_initialized = lambda: True
    module.device_count, module.current_device = lambda: 1, lambda: 0
    module._is_in_bad_fork = lambda: False
    module.manual_seed_all = lambda seed: None
    module.get_rng_state = lambda device=0: torch.get_rng_state()
    module.set_rng_state = lambda state, device=0: torch.set_rng_state(state)
    torch._register_device_module("elsewhere", module)
    torch.utils.generate_methods_for_privateuse1_backend()
    return torch.device("elsewhere:0")

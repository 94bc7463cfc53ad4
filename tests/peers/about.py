"""Print the version of PyTorch, the BLAS that it has loaded, and why torch.compile fails, as JSON."""
import ctypes
import json
import os

import torch


def named(path):
    """Return the version string of OpenBLAS, or the file name of another library."""
    library = ctypes.CDLL(path)
    if not hasattr(library, "openblas_get_config"):
        return os.path.basename(path)
    library.openblas_get_config.restype = library.openblas_get_corename.restype = ctypes.c_char_p
    version = " ".join(library.openblas_get_config().decode().split()[:2])
    return f"{version} ({library.openblas_get_corename().decode()})"


def no_compiler():
    """Return the reason why torch.compile does not work, or an empty string."""
    if not hasattr(torch, "compile"):
        return "PyTorch " + torch.__version__ + " does not have torch.compile"
    try:
        torch.compile(lambda x: (x @ x).relu().sum())(torch.ones(8, 8))
    except Exception as e:  # of any part of the compiler
        return str(e).strip().split("\n")[0]
    return ""


def main():
    with open("/proc/self/maps") as maps:
        loaded = {line.split()[-1] for line in maps if "/" in line}
    libraries = sorted(p for p in loaded if "blas" in os.path.basename(p) or "mkl_core" in p)
    names = sorted({named(p) for p in libraries})
    print(json.dumps({"torch": torch.__version__, "blas": ", ".join(names) or "not known",
                      "no_compiler": no_compiler()}))


if __name__ == "__main__":
    main()

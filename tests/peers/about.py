"""Print the version of PyTorch and the BLAS that it has loaded, as JSON."""
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


def main():
    with open("/proc/self/maps") as maps:
        loaded = {line.split()[-1] for line in maps if "/" in line}
    libraries = sorted(p for p in loaded if "blas" in os.path.basename(p) or "mkl_core" in p)
    names = sorted({named(p) for p in libraries})
    print(json.dumps({"torch": torch.__version__, "blas": ", ".join(names) or "not known"}))


if __name__ == "__main__":
    main()

package library

import "fmt"

// Version returns the version of a cuBLASLt or NCCL library, such as 12.8.4, from the library
// itself.
func Version(l *Library) (string, error) {
	if f, ok := l.Symbol("cublasLtGetVersion"); ok { // size_t (void)
		return cublasVersion(int(callSize(f))), nil
	}
	if f, ok := l.Symbol("ncclGetVersion"); ok { // ncclResult_t (int *)
		var v int32
		if r := callInto(f, &v); r != 0 {
			return "", fmt.Errorf("query the version of %q: ncclGetVersion returned %d", l.Path, r)
		}
		return ncclVersion(int(v)), nil
	}
	return "", fmt.Errorf("query the version of %q: it is neither cuBLASLt nor NCCL", l.Path)
}

// cublasVersion formats CUBLAS_VERSION: 11605 is 11.6.5, and 120804 is 12.8.4.
func cublasVersion(v int) string {
	if v < 100000 {
		return fmt.Sprintf("%d.%d.%d", v/1000, v/100%10, v%100)
	}
	return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100)
}

// ncclVersion formats NCCL_VERSION_CODE: 2804 is 2.8.4, and 22105 is 2.21.5.
func ncclVersion(v int) string {
	if v < 10000 {
		return fmt.Sprintf("%d.%d.%d", v/1000, v/100%10, v%100)
	}
	return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100)
}

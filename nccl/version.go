package nccl

import (
	"fmt"
	"strconv"
	"strings"
)

// dynamicGID is the first version of NCCL that selects a RoCE port's GID automatically.
// Earlier versions use index 0 by default (NCCL User Guide, NCCL_IB_GID_INDEX).
const dynamicGID = 22100

// ParseVersion parses a version of NCCL, such as "2.21.5", "2.21.5-1+cuda12.4", or "2.21". It
// returns the number that ncclGetVersion uses since 2.9, such as 22105. It rejects earlier
// versions.
func ParseVersion(text string) (int, error) {
	digits, _, _ := strings.Cut(text, "-")
	digits, _, _ = strings.Cut(digits, "+")
	parts := strings.Split(digits, ".")
	invalid := func() (int, error) {
		return 0, fmt.Errorf("%q is not a version of NCCL, such as 2.21.5", text)
	}
	if len(parts) < 2 || len(parts) > 3 {
		return invalid()
	}
	n := 0
	for i := range 3 {
		part := "0"
		if i < len(parts) {
			part = parts[i]
		}
		v, err := strconv.ParseUint(part, 10, 8)
		if err != nil || v > 99 || part[0] < '0' || part[0] > '9' {
			return invalid()
		}
		n = n*100 + int(v)
	}
	if n < 20900 {
		return invalid()
	}
	return n, nil
}

// versionText formats a version number as text.
func versionText(n int) string { return fmt.Sprintf("%d.%d.%d", n/10000, n/100%100, n%100) }

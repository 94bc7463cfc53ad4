package bench

import (
	"os"
	"strconv"
	"strings"
)

// resetPeakRSS has Linux forget the most memory that this process has held, and
// reports whether it did: see proc(5), clear_refs.
func resetPeakRSS() bool {
	return os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) == nil
}

// peakRSS is the most memory that this process has held since, in bytes, or 0 where
// the system does not say.
func peakRSS() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kB, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return kB << 10
		}
	}
	return 0
}

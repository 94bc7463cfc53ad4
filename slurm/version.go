package slurm

import (
	"regexp"
	"strconv"
)

var versionNumber = regexp.MustCompile(`(\d{1,4})\.(\d{1,4})`)

// parseVersion reads the two numbers that name a release of Slurm, "23.11.4" or
// "slurm-wlm 22.05.8": a year and a month.
func parseVersion(s string) (major, minor int, ok bool) {
	m := versionNumber.FindStringSubmatch(s)
	if m == nil {
		return 0, 0, false
	}
	major, _ = strconv.Atoi(m[1]) // 4 digits at most
	minor, _ = strconv.Atoi(m[2])
	return major, minor, true
}

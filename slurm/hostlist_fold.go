package slurm

import (
	"strconv"
	"strings"
)

// FoldHosts writes names as a host list, as `scontrol show hostlist` does:
// neighbours that differ only in the number at their end share a bracket, and
// order and duplicates are kept. For names as [ExpandHosts] returns them,
// expanding the result gives the same names again.
func FoldHosts(hosts []string) string {
	var out strings.Builder
	for i := 0; i < len(hosts); {
		if i > 0 {
			out.WriteByte(',')
		}
		prefix, digits := splitNumber(hosts[i])
		ranges, single := []hostRange{}, true
		next := i
		for ; next < len(hosts) && digits != ""; next++ {
			p, d := splitNumber(hosts[next])
			if d == "" || p != prefix {
				break
			}
			ranges = joinRanges(ranges, d)
			single = next == i
		}
		if single {
			out.WriteString(hosts[i])
			i++
			continue
		}
		out.WriteString(prefix)
		out.WriteByte('[')
		writeRanges(&out, ranges)
		out.WriteByte(']')
		i = next
	}
	return out.String()
}

// joinRanges adds one number to the ranges: to the last one if it goes on there.
func joinRanges(ranges []hostRange, digits string) []hostRange {
	n, _ := strconv.ParseUint(digits, 10, 64) // splitNumber gives at most 18 digits
	if len(ranges) > 0 {
		r := &ranges[len(ranges)-1]
		follows := n == r.hi+1 && n-r.lo < maxRangeHosts &&
			string(appendPadded(nil, n, r.width)) == digits
		if follows {
			r.hi = n
			return ranges
		}
	}
	return append(ranges, hostRange{lo: n, hi: n, width: len(digits)})
}

func writeRanges(out *strings.Builder, ranges []hostRange) {
	for i, r := range ranges {
		if i > 0 {
			out.WriteByte(',')
		}
		out.Write(appendPadded(nil, r.lo, r.width))
		if r.hi > r.lo {
			out.WriteByte('-')
			out.Write(appendPadded(nil, r.hi, r.width))
		}
	}
}

// splitNumber cuts the digits off the end of a name. A name with more digits
// than a number may have is taken as having none.
func splitNumber(host string) (prefix, digits string) {
	cut := len(host)
	for cut > 0 && isDigit(host[cut-1]) {
		cut--
	}
	if len(host)-cut > maxHostDigits {
		return host, ""
	}
	return host[:cut], host[cut:]
}

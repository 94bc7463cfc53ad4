// Package format formats sizes, durations, counts, and lists for messages, so that all commands
// print them in the same form. It is not for JSON or other machine-readable output.
package format

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Bytes returns a number of bytes with three digits in a binary unit: "512 bytes",
// "1.5 KiB", "21.7 GiB".
func Bytes[T int | int64 | uint64 | float64](n T) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"}
	v, i := float64(n), 0
	// 1023.5 would be printed as 1.02e+03.
	for math.Abs(v) >= 999.5 && i < len(units)-1 {
		v, i = v/1024, i+1
	}
	switch {
	case i == 0 && v == 1:
		return "1 byte"
	case i == 0:
		return fmt.Sprintf("%.0f bytes", v)
	}
	return fmt.Sprintf("%.3g %s", v, units[i])
}

// Duration returns the two largest units of a duration: "12s", "3m20s", "2h05m", "3d4h".
// Negative durations are "0s". For times below a second, see [Seconds].
func Duration(d time.Duration) string {
	s := int64(max(d, 0).Round(time.Second) / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	case s < 86400:
		return fmt.Sprintf("%dh%02dm", s/3600, s/60%60)
	}
	return fmt.Sprintf("%dd%dh", s/86400, s/3600%24)
}

// Seconds formats a measured time, given in seconds: with four digits in s or ms, or with three in us.
func Seconds(s float64) string {
	switch {
	case s >= 1:
		return fmt.Sprintf("%.4g s", s)
	case s >= 1e-3:
		return fmt.Sprintf("%.4g ms", s*1e3)
	}
	return fmt.Sprintf("%.3g us", s*1e6)
}

// Number rounds v to an integer and separates thousands with commas: "12,345".
func Number[T int | int64 | float64](v T) string {
	s := strconv.FormatFloat(float64(v), 'f', 0, 64)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Count returns a number and the noun that it counts: "1 rank", "4 ranks". The plural is
// formed with "s".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Percent returns a share from 0 to 1 as a percentage: "25%".
func Percent(share float64) string { return fmt.Sprintf("%.0f%%", share*100) }

// List joins words as in a sentence: "a", "a and b", "a, b, and c". It shows at most limit
// words: "a, b, and 3 more".
func List(words []string, limit int) string {
	if rest := len(words) - limit; rest > 0 {
		words = append(words[:limit:limit], fmt.Sprintf("%d more", rest))
	}
	switch n := len(words); n {
	case 0:
		return ""
	case 1:
		return words[0]
	case 2:
		return words[0] + " and " + words[1]
	default:
		return strings.Join(words[:n-1], ", ") + ", and " + words[n-1]
	}
}

// maxRanges is the maximum number of ranges in the result of [Ranges].
const maxRanges = 16

// Ranks formats ranks as a text: "rank 3", "ranks 0-3, 7". It has the order and the limit of
// [Ranges].
func Ranks(ranks []int) string { return Numbered("rank", ranks) }

// Numbered formats a noun and the numbers of its instances: "attempt 3", "attempts 0-3, 7". It has
// the order and the limit of [Ranges]. The plural is formed with "s".
func Numbered(noun string, numbers []int) string {
	if len(numbers) == 1 {
		return fmt.Sprintf("%s %d", noun, numbers[0])
	}
	return noun + "s " + Ranges(numbers)
}

// Ranges formats different numbers in ascending order: "0-3, 7". If there are many ranges, it
// shows only the first ones: "0, 2, 4 and 97 more".
func Ranges(numbers []int) string {
	numbers = slices.Sorted(slices.Values(numbers))
	var parts []string
	for len(numbers) > 0 && len(parts) < maxRanges {
		n := 1
		for n < len(numbers) && numbers[n] == numbers[0]+n {
			n++
		}
		if n == 2 { // "0, 1" is as short as "0-1"
			n = 1
		}
		part := strconv.Itoa(numbers[0])
		if n > 1 {
			part += "-" + strconv.Itoa(numbers[n-1])
		}
		parts, numbers = append(parts, part), numbers[n:]
	}
	text := strings.Join(parts, ", ")
	if len(numbers) > 0 {
		text += fmt.Sprintf(" and %d more", len(numbers))
	}
	return text
}

package jobs

import (
	"strconv"
	"strings"
)

// A Size is an amount of memory in bytes, written as an integer and KiB, MiB, or GiB, such
// as "25 MiB". The maximum is 1 GiB. Zero means that the key is not in the file.
type Size int

const (
	kibi Size = 1 << 10
	mebi Size = 1 << 20
	gibi Size = 1 << 30
)

const sizeForms = `allowed: an integer and KiB, MiB, or GiB, up to "1 GiB", such as "25 MiB"`

// units of sizes, largest first.
var units = []struct {
	name  string
	bytes Size
}{{"GiB", gibi}, {"MiB", mebi}, {"KiB", kibi}}

// String returns the size in the format of the job file, in the largest unit that divides it
// evenly.
func (s Size) String() string {
	for _, u := range units {
		if s%u.bytes == 0 {
			return strconv.Itoa(int(s/u.bytes)) + " " + u.name
		}
	}
	return strconv.Itoa(int(s)) + " B"
}

// UnmarshalTOML accepts a TOML string.
func (s *Size) UnmarshalTOML(v any) error {
	text, err := stringValue(v)
	if err != nil {
		return valueErrorf(sizeForms, "%s", err)
	}
	n, invalid := parseSize(text)
	if invalid != nil {
		invalid.suggestion = suggestSize(text)
		return invalid
	}
	*s = n
	return nil
}

func parseSize(text string) (Size, *valueError) {
	count, unit, _ := strings.Cut(text, " ")
	for _, u := range units {
		var n int64
		if unit != u.name || !parseDigits(count, &n) {
			continue
		}
		switch {
		case n == 0:
			return 0, valueErrorf(sizeForms, "%q is zero", text)
		case n > int64(gibi/u.bytes):
			return 0, valueErrorf(sizeForms, "%q exceeds 1 GiB", text)
		}
		return Size(n) * u.bytes, nil
	}
	return 0, valueErrorf(sizeForms, "%q is not a size", text)
}

// suggestSize returns the probable meaning of text such as "25M", "25MB", "25 mib", and "25MiB",
// or an empty string.
func suggestSize(text string) string {
	compact := strings.ToUpper(strings.ReplaceAll(text, " ", ""))
	compact = strings.TrimSuffix(strings.TrimSuffix(compact, "B"), "I")
	for _, u := range units {
		if count, ok := strings.CutSuffix(compact, u.name[:1]); ok {
			guess := count + " " + u.name
			if _, invalid := parseSize(guess); invalid == nil && guess != text {
				return guess
			}
		}
	}
	return ""
}

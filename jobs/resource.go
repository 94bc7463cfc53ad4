package jobs

import (
	"cmp"
	"math"
	"strconv"
	"strings"
	"time"
)

// A WallTime is a time limit in a format of sbatch --time: "M", "M:S", "H:M:S", "D-H",
// "D-H:M", or "D-H:M:S". The string is stored as written. Empty means that the key is not in
// the file.
type WallTime string

// maxWallTime exceeds all real limits. A longer limit is a typing error.
const maxWallTime = 10 * 365 * 24 * time.Hour

const wallTimeForms = `allowed: minutes "90", or "M:S", "H:M:S", "D-H", "D-H:M", "D-H:M:S"`

// Duration returns the limit as a duration, or 0 if there is no limit.
func (w WallTime) Duration() time.Duration {
	d, err := parseWallTime(string(w))
	if err != nil {
		return 0
	}
	return d
}

// UnmarshalTOML accepts a TOML string.
func (w *WallTime) UnmarshalTOML(v any) error {
	if _, ok := v.(time.Time); ok {
		return valueErrorf(wallTimeForms, `must be a string in quotes`)
	}
	s, err := stringValue(v)
	if err != nil {
		return valueErrorf(wallTimeForms, "%s", err)
	}
	if _, err := parseWallTime(s); err != nil {
		return err
	}
	*w = WallTime(s)
	return nil
}

func parseWallTime(s string) (time.Duration, error) {
	var days, hours, minutes, seconds int64
	clock, fields := s, []*int64{&hours, &minutes, &seconds}
	d, c, hasDays := strings.Cut(s, "-")
	if hasDays {
		if clock = c; !parseDigits(d, &days) {
			return 0, valueErrorf(wallTimeForms, "%q is not a time limit", s)
		}
	}
	parts := strings.Split(clock, ":")
	switch {
	case len(parts) > 3:
		return 0, valueErrorf(wallTimeForms, "%q is not a time limit", s)
	case !hasDays && len(parts) < 3:
		fields = fields[1:] // "M" and "M:S"
	}
	for i, part := range parts {
		if !parseDigits(part, fields[i]) {
			return 0, valueErrorf(wallTimeForms, "%q is not a time limit", s)
		}
	}
	switch {
	case hasDays && hours > 23:
		return 0, valueErrorf(wallTimeForms, "%q has %d hours, but a day has 24", s, hours)
	case (hasDays || len(parts) == 3) && minutes > 59:
		return 0, valueErrorf(wallTimeForms, "%q has %d minutes, but an hour has 60", s, minutes)
	case seconds > 59:
		return 0, valueErrorf(wallTimeForms, "%q has %d seconds, but a minute has 60", s, seconds)
	}
	total := ((days*24+hours)*60+minutes)*60 + seconds
	switch {
	case total == 0:
		return 0, valueErrorf(wallTimeForms, "must be greater than 0, not %q: remove the key for the limit of the partition", s)
	case total > int64(maxWallTime/time.Second):
		return 0, valueErrorf(wallTimeForms, "%q exceeds ten years", s)
	}
	return time.Duration(total) * time.Second, nil
}

// parseDigits parses up to nine decimal digits. The limit keeps every sum in range.
func parseDigits(s string, into *int64) bool {
	if len(s) > 9 || !isDigits(s) {
		return false
	}
	*into, _ = strconv.ParseInt(s, 10, 64)
	return true
}

// A Memory is an amount of memory in the format of sbatch --mem: an integer and K, M, G,
// or T, which are powers of 1024. "0" means all memory of a node. The string is stored as
// written. Empty means that the key is not in the file.
type Memory string

const memoryForms = `allowed: an integer and K, M, G, or T, such as "64G"; "0" for all memory of a node`

// Bytes returns the amount in bytes. It returns 0 if the amount is not set or means all memory
// of a node.
func (m Memory) Bytes() int64 {
	n, err := parseMemory(string(m))
	if err != nil {
		return 0
	}
	return n
}

// UnmarshalTOML accepts a TOML string.
func (m *Memory) UnmarshalTOML(v any) error {
	s, err := stringValue(v)
	if err != nil {
		return valueErrorf(memoryForms, "%s", err)
	}
	if _, err := parseMemory(s); err != nil {
		// "64 GB", "64GiB", and "64g" all mean "64G".
		guess := strings.ToUpper(strings.ReplaceAll(s, " ", ""))
		guess = strings.TrimSuffix(strings.TrimSuffix(guess, "B"), "I")
		if _, invalid := parseMemory(guess); invalid == nil {
			err.suggestion = guess
		}
		return err
	}
	*m = Memory(s)
	return nil
}

func parseMemory(s string) (int64, *valueError) {
	if s == "0" {
		return 0, nil
	}
	if isDigits(s) {
		return 0, valueErrorf(memoryForms, "%q has no unit", s)
	}
	power := 0
	if s != "" {
		power = 10 * (1 + strings.IndexByte("KMGT", s[len(s)-1]))
	}
	if power == 0 || !isDigits(s[:len(s)-1]) {
		return 0, valueErrorf(memoryForms, "%q is not an amount of memory", s)
	}
	n, err := strconv.ParseInt(s[:len(s)-1], 10, 64)
	switch {
	case err != nil || n > math.MaxInt64>>power:
		return 0, valueErrorf(memoryForms, "%q is too large", s)
	case n == 0:
		return 0, valueErrorf(memoryForms, "%q is zero: write \"0\" without a unit for all memory of a node", s)
	}
	return n << power, nil
}

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

// Cores is a number of CPU cores, or [AllCores].
type Cores int

// AllCores means all cores of the node, which its ranks share. It is "all" in the file.
const AllCores Cores = -1

const (
	allCoresText = "all"
	coresForms   = `allowed: a number, or "all" for all cores of the node`
)

var coresLimits = limits{low: 1, lowInt: 1, highInt: maxCount}

// UnmarshalTOML accepts an integer of at least 1, or "all".
func (c *Cores) UnmarshalTOML(v any) error {
	if v == allCoresText {
		*c = AllCores
		return nil
	}
	n, err := coresLimits.integer(v)
	if r, ok := err.(*valueError); ok {
		r.allowed = cmp.Or(r.allowed, coresForms)
		return r
	}
	*c = Cores(n)
	return nil
}

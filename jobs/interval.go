package jobs

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A Duration is a duration in Go's format: "90s", "5m", "1h30m". It is never negative. The
// description of each key states whether it may be zero.
type Duration time.Duration

// String returns the duration in Go's format.
func (d Duration) String() string { return time.Duration(d).String() }

// UnmarshalTOML accepts a TOML string in the format of [time.ParseDuration].
func (d *Duration) UnmarshalTOML(v any) error {
	const allowed = `allowed: a number with a unit (s, m, h), such as "90s" or "1h30m"`
	s, err := stringValue(v)
	if err != nil {
		return valueErrorf(allowed, "%s", err)
	}
	t, err := time.ParseDuration(s)
	if err != nil {
		r := valueErrorf(allowed, "%q is not a duration", s)
		if isDigits(s) {
			r.suggestion = s + "s"
		}
		return r
	}
	if t < 0 {
		return valueErrorf(allowed, "%q is negative", s)
	}
	*d = Duration(t)
	return nil
}

// A Unit is the unit of an [Interval].
type Unit string

// Units of an interval.
const (
	Steps  Unit = "steps"  // optimizer steps of all ranks
	Epochs Unit = "epochs" // epochs of the training set
)

// An Interval is a distance between events in training, such as "500 steps" or "1 epoch". The
// zero value means that the key is not in the file.
type Interval struct {
	N    int  // 1 to 2147483647
	Unit Unit // Steps or Epochs
}

// String returns the interval in the format of the job file.
func (i Interval) String() string {
	if i.N == 1 {
		return "1 " + strings.TrimSuffix(string(i.Unit), "s")
	}
	return strconv.Itoa(i.N) + " " + string(i.Unit)
}

// IsZero reports whether the interval is not set.
func (i Interval) IsZero() bool { return i == Interval{} }

// UnmarshalTOML accepts a TOML string: a number, one space, and the unit in the singular or
// plural.
func (i *Interval) UnmarshalTOML(v any) error {
	const allowed = `allowed: a number with its unit, such as "500 steps" or "1 epoch"`
	s, err := stringValue(v)
	if err != nil {
		return valueErrorf(allowed, "%s", err)
	}
	number, unit, _ := strings.Cut(s, " ")
	switch unit {
	case "step", "steps":
		i.Unit = Steps
	case "epoch", "epochs":
		i.Unit = Epochs
	default:
		r := valueErrorf(allowed, "%q is not an interval", s)
		if isDigits(s) {
			r.suggestion = s + " steps"
		}
		return r
	}
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil || n < 1 || !isDigits(number) {
		return valueErrorf(allowed, "%q is not an interval: the number must be from 1 to %d", s, maxCount)
	}
	i.N = int(n)
	return nil
}

// isDigits reports whether s is one or more decimal digits.
func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// A StepRange is a range of training steps, such as "100-110": the first and the last step,
// counted from 1. The zero value means that the key is not in the file.
type StepRange struct{ First, Last int }

// maxTracedSteps is the maximum length of a range. More steps are not useful, and each rank
// stores their events in memory.
const maxTracedSteps = 1000

// String returns the range in the format of the job file.
func (r StepRange) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

// IsZero reports whether the range is not set.
func (r StepRange) IsZero() bool { return r == StepRange{} }

// UnmarshalTOML accepts a TOML string.
func (r *StepRange) UnmarshalTOML(v any) error {
	const allowed = `allowed: the first and the last step, such as "100-110"`
	s, err := stringValue(v)
	if err != nil {
		return valueErrorf(allowed, "%s", err)
	}
	from, to, _ := strings.Cut(s, "-")
	var first, last int64
	if !parseDigits(from, &first) || !parseDigits(to, &last) {
		invalid := valueErrorf(allowed, "%q is not a range of steps", s)
		if parseDigits(s, &first) && first >= 1 {
			invalid.suggestion = s + "-" + s
		}
		return invalid
	}
	switch {
	case first < 1:
		return valueErrorf(allowed, "%q is not a range of steps: the first step is 1", s)
	case last < first:
		return valueErrorf(allowed, "%q ends before it begins", s)
	case last-first >= maxTracedSteps:
		return valueErrorf(allowed, "%q has %d steps, but at most %d can be recorded", s, last-first+1, maxTracedSteps)
	}
	*r = StepRange{int(first), int(last)}
	return nil
}

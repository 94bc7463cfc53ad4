package jobs

import (
	"fmt"
	"strings"
)

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

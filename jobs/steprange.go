package jobs

import (
	"fmt"
	"strings"
)

// StepRange is some steps of a training, written "100-110": the first and the last one,
// counted from 1. Its zero value means that the file does not give it.
type StepRange struct{ First, Last int }

// maxTracedSteps is the most steps of a range: nobody looks at more of them, and each
// rank keeps what happens in them in memory.
const maxTracedSteps = 1000

// String returns the range as the file would write it.
func (r StepRange) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

// IsZero reports whether the range is not given.
func (r StepRange) IsZero() bool { return r == StepRange{} }

// UnmarshalTOML takes a TOML string.
func (r *StepRange) UnmarshalTOML(v any) error {
	const allowed = `allowed: the first and the last step, such as "100-110"`
	s, err := stringValue(v)
	if err != nil {
		return refuse(allowed, "%s", err)
	}
	from, to, _ := strings.Cut(s, "-")
	var first, last int64
	if !number(from, &first) || !number(to, &last) {
		bad := refuse(allowed, "%q is not a range of steps", s)
		if number(s, &first) && first >= 1 {
			bad.suggestion = s + "-" + s
		}
		return bad
	}
	switch {
	case first < 1:
		return refuse(allowed, "%q is not a range of steps: they are counted from 1", s)
	case last < first:
		return refuse(allowed, "%q ends before it begins", s)
	case last-first >= maxTracedSteps:
		return refuse(allowed, "%q is %d steps: at most %d can be recorded", s, last-first+1, maxTracedSteps)
	}
	*r = StepRange{int(first), int(last)}
	return nil
}

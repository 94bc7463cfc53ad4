package main

import "fmt"

// target is a bound for a value.
type target struct {
	least bool // otherwise at most
	bound float64
}

func atMost(v float64) *target  { return &target{false, v} }
func atLeast(v float64) *target { return &target{true, v} }

// met reports whether a value is within the bound.
func (t *target) met(v float64) bool {
	if t.least {
		return v >= t.bound
	}
	return v <= t.bound
}

// cells returns two cells of a table: the target, and whether it is met. The target may be nil, and
// the value may be unknown.
func (t *target) cells(v float64, known bool, format func(float64) string) []string {
	if t == nil {
		return []string{"-", "-"}
	}
	word := "at most "
	if t.least {
		word = "at least "
	}
	verdict := "not known"
	switch {
	case known && t.met(v):
		verdict = "yes"
	case known:
		verdict = "**no**"
	}
	return []string{word + format(t.bound), verdict}
}

// measure is one value of both sides of a row, and its comparison.
type measure struct {
	name   string
	of     func(*side) []float64
	format func(float64) string
	target *target // for ddpbatch's value divided by PyTorch's
	more   bool    // more is better
}

// opponent returns PyTorch's value, of the mode that is better, and its text.
func (r *row) opponent(m measure) (float64, string) {
	v := middle(m.of(&r.Theirs))
	if r.Compiled == nil {
		return v, m.format(v)
	}
	other := middle(m.of(r.Compiled))
	if other > 0 && (other > v) == m.more {
		return other, m.format(other) + " (compiled)"
	}
	return v, m.format(v) + " (eager)"
}

// measures returns the values of a row that is a step.
func (r *row) measures() []measure {
	if r.Model == "gpt2" {
		return []measure{
			{"tokens/s", func(s *side) []float64 { return s.PerSecond }, whole, atLeast(1.6), true},
			{"peak memory", func(s *side) []float64 { return s.PeakRSS }, mebibytes, atMost(0.8), false},
		}
	}
	time := measure{"time", func(s *side) []float64 { return s.Median }, milliseconds, nil, false}
	if r.Model == "gpt" || r.Precision == "fp32" {
		time.target = atMost(0.8)
	}
	return []measure{time}
}

// speedTarget returns the goal for the speed of a matrix multiplication, relative to PyTorch's.
func (r *row) speedTarget() *target {
	if r.Model == "gpt" {
		return nil
	}
	return atLeast(1)
}

// shareTarget returns the goal for the fraction of the core's limit that a row reaches.
func (r *row) shareTarget() *target {
	switch {
	case r.Kind == "step" && r.Model == "gpt" && r.Precision == "fp32":
		return atLeast(0.75)
	case r.Kind == "gemm" && r.Model != "gpt":
		return atLeast(0.85)
	}
	return nil
}

func whole(v float64) string     { return fmt.Sprintf("%.0f", v) }
func mebibytes(v float64) string { return fmt.Sprintf("%.0f MiB", v/(1<<20)) }
func times(v float64) string     { return fmt.Sprintf("%.3gx", v) }
func percent(v float64) string   { return fmt.Sprintf("%.3g%%", v*100) }

// milliseconds formats with three digits, or more if there are no decimals.
func milliseconds(seconds float64) string {
	if seconds >= 1 {
		return fmt.Sprintf("%.0f ms", seconds*1e3)
	}
	return fmt.Sprintf("%.3g ms", seconds*1e3)
}

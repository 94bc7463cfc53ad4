package jobs

import (
	"math"
	"strconv"
)

// A Count is a whole number from 1 to 2147483647. Zero means that the key is not in the file.
type Count int

// A NonNegativeCount is a whole number from 0 to 2147483647.
type NonNegativeCount int

// A Seed is a seed for random numbers: a whole number from 0 to 2^63-1, the maximum in TOML.
type Seed uint64

// A Positive is a number above 0 that float32 rounds neither to 0 nor to infinity. Training
// uses float32.
type Positive float64

// A Fraction is a number in [0, 1) that float32 does not round to 1. It also does not round to
// 0 unless it is 0.
type Fraction float64

// A Share is a number in [0, 0.5]: the smaller of two parts, or 0.
type Share float64

// A NonNegative is 0 or a [Positive].
type NonNegative float64

// maxCount ensures that the product of two counts, such as nodes and ranks per node, fits in
// an int.
const maxCount = math.MaxInt32

// UnmarshalTOML accepts a TOML integer.
func (c *Count) UnmarshalTOML(v any) error {
	n, err := integer(v, 1, maxCount)
	if err != nil {
		return err
	}
	*c = Count(n)
	return nil
}

// UnmarshalTOML accepts a TOML integer.
func (c *NonNegativeCount) UnmarshalTOML(v any) error {
	n, err := integer(v, 0, maxCount)
	if err != nil {
		return err
	}
	*c = NonNegativeCount(n)
	return nil
}

// UnmarshalTOML accepts a TOML integer.
func (s *Seed) UnmarshalTOML(v any) error {
	n, err := integer(v, 0, math.MaxInt64)
	if err != nil {
		return err
	}
	*s = Seed(n)
	return nil
}

// UnmarshalTOML accepts a TOML float or integer.
func (p *Positive) UnmarshalTOML(v any) error {
	x, err := float(v)
	if err != nil {
		return err
	}
	if x <= 0 {
		return valueErrorf("", "must be above 0, not %v", v)
	}
	if err := checkFloat32(x, v); err != nil {
		return err
	}
	*p = Positive(x)
	return nil
}

// UnmarshalTOML accepts a TOML float or integer.
func (f *Fraction) UnmarshalTOML(v any) error {
	x, err := float(v)
	if err != nil {
		return err
	}
	if x < 0 || x >= 1 {
		return valueErrorf("", "must be at least 0 and below 1, not %v", v)
	}
	if float32(x) == 1 {
		return valueErrorf("", "must be below 1 in float32, in which training computes: %v is 1 there", v)
	}
	if err := checkFloat32(x, v); err != nil {
		return err
	}
	*f = Fraction(x)
	return nil
}

// UnmarshalTOML accepts a TOML float or integer.
func (s *Share) UnmarshalTOML(v any) error {
	x, err := float(v)
	if err != nil {
		return err
	}
	if x < 0 || x > 0.5 {
		return valueErrorf("", "must be at least 0 and at most 0.5, not %v", v)
	}
	*s = Share(x)
	return nil
}

// UnmarshalTOML accepts a TOML float or integer.
func (n *NonNegative) UnmarshalTOML(v any) error {
	x, err := float(v)
	if err != nil {
		return err
	}
	if x < 0 {
		return valueErrorf("", "must be 0 or more, not %v", v)
	}
	if err := checkFloat32(x, v); err != nil {
		return err
	}
	*n = NonNegative(x)
	return nil
}

func integer(v any, low, high int64) (int64, error) {
	var n int64
	switch v := v.(type) {
	case int64:
		n = v
	case string:
		return 0, stringNotNumber("a whole number", v)
	case float64:
		text := strconv.FormatFloat(v, 'f', -1, 64)
		if v != math.Trunc(v) || math.Abs(v) > maxCount {
			return 0, valueErrorf("", "must be a whole number, not %s", text)
		}
		return 0, valueErrorf("write "+text, "must be a whole number, not %s.0", text)
	default:
		return 0, valueErrorf("", "must be a whole number, not %s", typeName(v))
	}
	if n < low {
		return 0, valueErrorf("", "must be %d or more, not %d", low, n)
	}
	if n > high {
		return 0, valueErrorf("", "must be %d or less, not %d", high, n)
	}
	return n, nil
}

func float(v any) (float64, error) {
	switch v := v.(type) {
	case int64:
		return float64(v), nil
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return 0, valueErrorf("", "must be a finite number, not %v", v)
		}
		return v, nil
	case string:
		return 0, stringNotNumber("a number", v)
	}
	return 0, valueErrorf("", "must be a number, not %s", typeName(v))
}

// checkFloat32 returns an error if float32 rounds x to infinity, or a nonzero x to 0. x must
// not be negative. v is x as written in the file.
func checkFloat32(x float64, v any) error {
	if x > math.MaxFloat32 {
		return valueErrorf("", "must fit float32, in which training computes: %v is infinite there", v)
	}
	if x != 0 && float32(x) == 0 {
		return valueErrorf("", "must fit float32, in which training computes: %v is 0 there", v)
	}
	return nil
}

// stringNotNumber returns the error for a string in place of a number.
func stringNotNumber(want, s string) error {
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return valueErrorf("", "must be %s without quotes, not a string", want)
	}
	return valueErrorf("", "must be %s, not %.40q", want, s)
}

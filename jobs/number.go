package jobs

import (
	"math"
	"strconv"
)

// Count is a whole number from 1 to 2147483647. Zero means that the file does
// not give it.
type Count int

// NonNegativeCount is a whole number from 0 to 2147483647.
type NonNegativeCount int

// Seed starts the random numbers: a whole number from 0 to 2^63-1, the largest
// that TOML can write.
type Seed uint64

// Positive is a number above 0 which float32, in which training computes, rounds
// neither to 0 nor to infinity.
type Positive float64

// Fraction is a number in [0, 1), which float32 does not round to 1, nor to 0 if it
// is not 0.
type Fraction float64

// Share is a number in [0, 0.5]: the smaller part of two, or none.
type Share float64

// NonNegative is 0 or a [Positive].
type NonNegative float64

// maxCount keeps the product of two counts (nodes and ranks per node) inside an
// int.
const maxCount = math.MaxInt32

// UnmarshalTOML takes a TOML integer.
func (c *Count) UnmarshalTOML(v any) error {
	n, err := integer(v, 1, maxCount)
	if err != nil {
		return err
	}
	*c = Count(n)
	return nil
}

// UnmarshalTOML takes a TOML integer.
func (c *NonNegativeCount) UnmarshalTOML(v any) error {
	n, err := integer(v, 0, maxCount)
	if err != nil {
		return err
	}
	*c = NonNegativeCount(n)
	return nil
}

// UnmarshalTOML takes a TOML integer.
func (s *Seed) UnmarshalTOML(v any) error {
	n, err := integer(v, 0, math.MaxInt64)
	if err != nil {
		return err
	}
	*s = Seed(n)
	return nil
}

// UnmarshalTOML takes a TOML float or integer.
func (p *Positive) UnmarshalTOML(v any) error {
	x, err := float(v)
	if err != nil {
		return err
	}
	if x <= 0 {
		return refuse("", "must be above 0, not %v", v)
	}
	if err := fitsFloat32(x, v); err != nil {
		return err
	}
	*p = Positive(x)
	return nil
}

// UnmarshalTOML takes a TOML float or integer.
func (f *Fraction) UnmarshalTOML(v any) error {
	x, err := float(v)
	if err != nil {
		return err
	}
	if x < 0 || x >= 1 {
		return refuse("", "must be at least 0 and below 1, not %v", v)
	}
	if float32(x) == 1 {
		return refuse("", "must be below 1 in float32, in which training computes: %v is 1 there", v)
	}
	if err := fitsFloat32(x, v); err != nil {
		return err
	}
	*f = Fraction(x)
	return nil
}

// UnmarshalTOML takes a TOML float or integer.
func (s *Share) UnmarshalTOML(v any) error {
	x, err := float(v)
	if err != nil {
		return err
	}
	if x < 0 || x > 0.5 {
		return refuse("", "must be at least 0 and at most 0.5, not %v", v)
	}
	*s = Share(x)
	return nil
}

// UnmarshalTOML takes a TOML float or integer.
func (n *NonNegative) UnmarshalTOML(v any) error {
	x, err := float(v)
	if err != nil {
		return err
	}
	if x < 0 {
		return refuse("", "must be 0 or more, not %v", v)
	}
	if err := fitsFloat32(x, v); err != nil {
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
		return 0, notNumber("a whole number", v)
	case float64:
		text := strconv.FormatFloat(v, 'f', -1, 64)
		if v != math.Trunc(v) || math.Abs(v) > maxCount {
			return 0, refuse("", "must be a whole number, not %s", text)
		}
		return 0, refuse("write "+text, "must be a whole number, not %s.0", text)
	default:
		return 0, refuse("", "must be a whole number, not %s", describe(v))
	}
	if n < low {
		return 0, refuse("", "must be %d or more, not %d", low, n)
	}
	if n > high {
		return 0, refuse("", "must be %d or less, not %d", high, n)
	}
	return n, nil
}

func float(v any) (float64, error) {
	switch v := v.(type) {
	case int64:
		return float64(v), nil
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return 0, refuse("", "must be a finite number, not %v", v)
		}
		return v, nil
	case string:
		return 0, notNumber("a number", v)
	}
	return 0, refuse("", "must be a number, not %s", describe(v))
}

// fitsFloat32 refuses x, not negative and written as v, if float32 rounds it to
// infinity, or to 0 though it is not 0.
func fitsFloat32(x float64, v any) error {
	if x > math.MaxFloat32 {
		return refuse("", "must fit float32, in which training computes: %v is infinite there", v)
	}
	if x != 0 && float32(x) == 0 {
		return refuse("", "must fit float32, in which training computes: %v is 0 there", v)
	}
	return nil
}

// notNumber refuses a string where a number belongs.
func notNumber(want, s string) error {
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return refuse("", "must be %s without quotes, not a string", want)
	}
	return refuse("", "must be %s, not %.40q", want, s)
}

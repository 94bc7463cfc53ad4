package jobs

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
)

// maxCount is the upper limit of an int without one. It ensures that the product of two
// counts, such as nodes and ranks per node, fits in an int.
const maxCount = math.MaxInt32

type limits struct {
	low, high       float64
	aboveLow        bool  // whether low itself is invalid
	belowHigh       bool  // whether high itself is invalid
	bounded         bool  // whether there is an upper bound
	lowInt, highInt int64 // the bounds of an integer
	exact           bool  // whether rounding to float32 does not matter
}

// parseLimits parses the range tag of a number: "1..", "0..0.5", "0..<1", or "0<..". It panics
// if the tag is invalid, which is a bug.
func parseLimits(text string, kind reflect.Kind, exact bool) limits {
	low, high, ok := strings.Cut(text, "..")
	l := limits{exact: exact, high: math.Inf(1), highInt: maxCount}
	if kind == reflect.Uint64 {
		l.highInt = math.MaxInt64 // the maximum of TOML
	}
	low, l.aboveLow = strings.CutSuffix(low, "<")
	high, l.belowHigh = strings.CutPrefix(high, "<")
	var err, errHigh error
	l.low, err = strconv.ParseFloat(low, 64)
	if l.bounded = high != ""; l.bounded {
		l.high, errHigh = strconv.ParseFloat(high, 64)
		l.highInt = int64(l.high)
	}
	if !ok || err != nil || errHigh != nil {
		panic(fmt.Sprintf("jobs: invalid range %q", text))
	}
	l.lowInt = int64(l.low)
	return l
}

// String returns the limits in the form "at least 0 and less than 1".
func (l limits) String() string {
	decimal := func(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
	text := "at least " + decimal(l.low)
	if l.aboveLow {
		text = "greater than " + decimal(l.low)
	}
	switch {
	case l.bounded && l.belowHigh:
		text += " and less than " + decimal(l.high)
	case l.bounded:
		text += " and at most " + decimal(l.high)
	}
	return text
}

// schema returns the limits as a JSON schema.
func (l limits) schema(kind reflect.Kind) map[string]any {
	if kind != reflect.Float64 {
		return map[string]any{"type": "integer", "minimum": l.lowInt, "maximum": l.highInt}
	}
	s := map[string]any{"type": "number"}
	if l.aboveLow {
		s["exclusiveMinimum"] = l.low
	} else {
		s["minimum"] = l.low
	}
	switch {
	case l.bounded && l.belowHigh:
		s["exclusiveMaximum"] = l.high
	case l.bounded:
		s["maximum"] = l.high
	}
	return s
}

// setNumber stores a TOML number in an int, a uint64, or a float64.
func (l limits) setNumber(v any, into reflect.Value) error {
	if into.Kind() == reflect.Float64 {
		x, err := l.float(v)
		if err == nil {
			into.SetFloat(x)
		}
		return err
	}
	n, err := l.integer(v)
	switch {
	case err != nil:
		return err
	case into.Kind() == reflect.Uint64:
		into.SetUint(uint64(n))
	default:
		into.SetInt(n)
	}
	return nil
}

// integer returns the value of a TOML integer within the limits.
func (l limits) integer(v any) (int64, error) {
	var n int64
	switch v := v.(type) {
	case int64:
		n = v
	case string:
		return 0, notANumber("an integer", v)
	case float64:
		text := strconv.FormatFloat(v, 'f', -1, 64)
		if v != math.Trunc(v) || math.Abs(v) > maxCount {
			return 0, valueErrorf("", "must be an integer, not %s", text)
		}
		return 0, valueErrorf("write "+text, "must be an integer, not %s.0", text)
	default:
		return 0, valueErrorf("", "must be an integer, not %s", typeName(v))
	}
	if n < l.lowInt {
		return 0, valueErrorf("", "must be %d or more, not %d", l.lowInt, n)
	}
	if n > l.highInt {
		return 0, valueErrorf("", "must be %d or less, not %d", l.highInt, n)
	}
	return n, nil
}

// float returns the value of a TOML float or integer within the limits. Training uses float32,
// so the value in float32 must also be within the limits, finite, and 0 only if the value is 0.
func (l limits) float(v any) (float64, error) {
	var x float64
	switch v := v.(type) {
	case int64:
		x = float64(v)
	case float64:
		x = v
	case string:
		return 0, notANumber("a number", v)
	default:
		return 0, valueErrorf("", "must be a number, not %s", typeName(v))
	}
	y := float64(float32(x))
	switch {
	case math.IsNaN(x) || math.IsInf(x, 0):
		return 0, valueErrorf("", "must be a finite number, not %v", v)
	case x < l.low || l.aboveLow && x == l.low || x > l.high || l.belowHigh && x == l.high:
		return 0, valueErrorf("", "must be %s, not %v", l, v)
	case l.exact:
	case l.belowHigh && y == l.high:
		return 0, valueErrorf("", "must be less than %v: %v rounds to %v in float32", l.high, v, l.high)
	case math.IsInf(y, 0):
		return 0, valueErrorf("", "must fit in float32: %v is too large", v)
	case x != 0 && y == 0:
		return 0, valueErrorf("", "must fit in float32: %v rounds to 0", v)
	}
	return x, nil
}

// notANumber returns the error for a string in place of a number.
func notANumber(want, s string) error {
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return valueErrorf("", "must be %s without quotes, not a string", want)
	}
	return valueErrorf("", "must be %s, not %.40q", want, s)
}

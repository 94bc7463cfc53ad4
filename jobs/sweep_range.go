package jobs

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
)

func isRange(table map[string]any) bool {
	return table["min"] != nil || table["max"] != nil
}

const rangeForms = "allowed: { min = 1e-4, max = 0.1 }, and log = true for equal chances in each decade"

// decodeRange decodes { min = 1e-4, max = 0.1, log = true }. No message contains the values,
// because they may belong to an environment variable.
func (a *Axis) decodeRange(d *decoder, x leaf, table map[string]any) {
	wholes, before := 0, len(d.found)
	for _, name := range sortedKeys(table) {
		at := append(slices.Clip(x.at), name)
		where := d.lookup(keyName(at)).value
		v := table[name]
		f, number := v.(float64)
		if i, ok := v.(int64); ok {
			f, number = float64(i), true
			wholes++
		}
		b, isBool := v.(bool)
		switch {
		case name == "min" && number:
			a.min = f
		case name == "max" && number:
			a.max = f
		case name == "log" && isBool:
			a.log = b
		case name == "min", name == "max":
			d.addValueError(at, keyName(at), where, valueErrorf(rangeForms, "must be a number, not %s", typeName(v)))
		case name == "log":
			d.addValueError(at, keyName(at), where, valueErrorf(rangeForms, "must be true or false, not %s", typeName(v)))
		default:
			d.unknownAmong([]string{"log", "max", "min"}, x.at, at, name)
		}
	}
	if len(d.found) > before {
		return
	}
	a.whole = wholes == 2
	refused := ""
	switch {
	case table["min"] == nil || table["max"] == nil:
		refused = "needs both min and max"
	case !(a.min < a.max):
		refused = "min must be below max"
	case a.max-a.min > 1e15:
		refused = "is too wide to draw from"
	case a.log && a.min <= 0:
		refused = "with log = true, min must be more than 0"
	}
	if refused != "" {
		d.addValueError(x.at, x.name(), d.lookup(x.name()).value, valueErrorf(rangeForms, "%s", refused))
		return
	}
	d.takesEnd(a, x, a.min, a.max)
	if len(d.found) == before {
		d.takesEnd(a, x, a.max, a.min)
	}
}

// takesEnd reports an end of a range that the key's type rejects. Values drawn from a range of
// floats are between the ends, so the range of a learning rate may start at 0. takesEnd
// therefore checks the adjacent float32 value, because the types reject values that float32
// rounds to 0 or 1.
func (d *decoder) takesEnd(a *Axis, x leaf, end, other float64) {
	if a.whole {
		d.takes(x, asVariable(x.key, int64(end)))
		return
	}
	t, ok := reflect.New(x.kind).Interface().(tomlValue)
	beside := float64(math.Nextafter32(float32(end), float32(other)))
	if !ok || t.UnmarshalTOML(asVariable(x.key, beside)) != nil {
		d.takes(x, asVariable(x.key, end))
	}
}

// draw returns a random value of the axis, and its index if the axis is a list, or else -1.
// Floats have six significant digits, which are easy to read and copy.
func (a Axis) draw(random *rand.Rand) (v any, index int) {
	if a.values != nil {
		i := random.IntN(len(a.values))
		return a.values[i], i
	}
	x := random.Float64()
	low, high := a.min, a.max
	if a.whole {
		high++ // include max
	}
	if a.log {
		x = math.Exp(math.Log(low) + x*(math.Log(high)-math.Log(low)))
	} else {
		x = low + x*(high-low)
	}
	if a.whole {
		return asVariable(a.path, int64(min(math.Floor(x), a.max))), -1
	}
	x, _ = strconv.ParseFloat(strconv.FormatFloat(x, 'g', 6, 64), 64)
	return asVariable(a.path, min(max(x, a.min), a.max)), -1
}

package jobs

import (
	"fmt"
	"math"
	"reflect"
	"strings"
)

// A form describes the values of a type, for messages and as a JSON schema. The schema accepts
// all values that the type accepts, and may accept more.
type form struct {
	words  string
	schema map[string]any
}

func text(words, pattern string) form {
	return form{words, map[string]any{"type": "string", "pattern": pattern}}
}

func wholeNumber(least int64, most any) form {
	return form{fmt.Sprintf("whole number from %d", least), map[string]any{"type": "integer", "minimum": least, "maximum": most}}
}

// forms describes the types that are neither composite types nor choices. TestForms compares
// each with its type.
var forms = map[reflect.Type]form{
	reflect.TypeFor[bool]():             {"true or false", map[string]any{"type": "boolean"}},
	reflect.TypeFor[string]():           text("text", plainText),
	reflect.TypeFor[Text]():             text("text", plainText),
	reflect.TypeFor[Name]():             text("name", "^[^-./#\"'`\\\\\\x00-\\x1f][^/#\"'`\\\\\\x00-\\x1f]{0,127}$"),
	reflect.TypeFor[Word]():             text("word", `^[^-\s]\S*$`),
	reflect.TypeFor[Count]():            wholeNumber(1, maxCount),
	reflect.TypeFor[NonNegativeCount](): wholeNumber(0, maxCount),
	reflect.TypeFor[Seed]():             wholeNumber(0, int64(math.MaxInt64)),
	reflect.TypeFor[Positive]():         {"number above 0", map[string]any{"type": "number", "exclusiveMinimum": 0}},
	reflect.TypeFor[NonNegative]():      {"number from 0", map[string]any{"type": "number", "minimum": 0}},
	reflect.TypeFor[Fraction]():         {"number from 0, below 1", map[string]any{"type": "number", "minimum": 0, "exclusiveMaximum": 1}},
	reflect.TypeFor[Share]():            {"number from 0 to 0.5", map[string]any{"type": "number", "minimum": 0, "maximum": 0.5}},
	reflect.TypeFor[WallTime]():         text(`time limit, such as "02:00:00"`, `^([0-9]+|[0-9]+(:[0-9]+){1,2}|[0-9]+-[0-9]+(:[0-9]+){0,2})$`),
	reflect.TypeFor[Memory]():           text(`memory, such as "64G"`, `^(0|[0-9]+[KMGT])$`),
	reflect.TypeFor[Size]():             text(`size, such as "25 MiB"`, `^[0-9]+ [KMG]iB$`),
	reflect.TypeFor[Duration]():         text(`duration, such as "90s"`, `^\+?(0|(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`),
	reflect.TypeFor[Interval]():         text(`interval, such as "500 steps"`, `^[0-9]+ (steps?|epochs?)$`),
	reflect.TypeFor[StepRange]():        text(`range of steps, such as "100-110"`, `^[0-9]+-[0-9]+$`),
	reflect.TypeFor[InterfaceName]():    text("interface's name", `^[^/:\s]{1,15}$`),
	reflect.TypeFor[EnvName]():          text("variable's name", `^[A-Za-z_][A-Za-z0-9_]*$`),
	reflect.TypeFor[Dependency]():       text(`condition, such as "afterok:prepare"`, `^(`+strings.Join(dependencyKinds, "|")+`):.+$`),
}

const plainText = `^[^\x00-\x1f\x7f]*$`

// formOf returns the form of a type. It panics if the type is not in forms, which is a bug.
func formOf(t reflect.Type) form {
	if f, ok := forms[t]; ok {
		return f
	}
	switch {
	case t == reflect.TypeFor[Axes]():
		return form{"lists of values", axesSchema()}
	case t == reflect.TypeFor[Values]():
		return form{"values", map[string]any{"type": "object"}}
	case t.Kind() == reflect.Pointer:
		return formOf(t.Elem())
	}
	if choices := choicesOf(t); choices != nil {
		return form{quotedList(choices), map[string]any{"enum": choices}}
	}
	switch t.Kind() {
	case reflect.Slice:
		inner := formOf(t.Elem())
		return form{"list: " + inner.words, map[string]any{"type": "array", "items": inner.schema}}
	case reflect.Map:
		inner := formOf(t.Elem())
		return form{"table: " + inner.words, map[string]any{"type": "object",
			"propertyNames": formOf(t.Key()).schema, "additionalProperties": inner.schema}}
	case reflect.Struct:
		return form{"table", map[string]any{"type": "object"}}
	}
	panic("jobs: no form in forms for the type " + t.String())
}

func quotedList(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = `"` + w + `"`
	}
	return strings.Join(quoted, ", ")
}

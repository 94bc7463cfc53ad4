package jobs

import (
	"reflect"
	"strings"
)

// A form describes the values of a key as text and as a JSON schema. The schema accepts all
// values that the key accepts, and may accept more.
type form struct {
	words  string
	schema map[string]any
}

func stringForm(words, pattern string) form {
	return form{words, map[string]any{"type": "string", "pattern": pattern}}
}

const plainText = `^[^\x00-\x1f\x7f]*$`

// forms describes the types with their own format. TestForms compares each with its type.
var forms = map[reflect.Type]form{
	reflect.TypeFor[bool]():     {"true or false", map[string]any{"type": "boolean"}},
	reflect.TypeFor[string]():   stringForm("text", plainText),
	reflect.TypeFor[Text]():     stringForm("text", plainText),
	reflect.TypeFor[Name]():     stringForm("name", "^[^-./#\"'`\\\\\\x00-\\x1f][^/#\"'`\\\\\\x00-\\x1f]{0,127}$"),
	reflect.TypeFor[Word]():     stringForm("word", `^[^-\s]\S*$`),
	reflect.TypeFor[WallTime](): stringForm(`time limit, such as "02:00:00"`, `^([0-9]+|[0-9]+(:[0-9]+){1,2}|[0-9]+-[0-9]+(:[0-9]+){0,2})$`),
	reflect.TypeFor[Memory]():   stringForm(`memory, such as "64G"`, `^(0|[0-9]+[KMGT])$`),
	reflect.TypeFor[Cores](): {"integer, " + coresLimits.String() + `, or "all"`, map[string]any{"anyOf": []any{
		coresLimits.schema(reflect.Int), map[string]any{"enum": []string{allCoresText}},
	}}},
	reflect.TypeFor[Size]():          stringForm(`size, such as "25 MiB"`, `^[0-9]+ [KMG]iB$`),
	reflect.TypeFor[Duration]():      stringForm(`duration, such as "90s"`, `^\+?(0|(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`),
	reflect.TypeFor[Interval]():      stringForm(`interval, such as "500 steps"`, `^[0-9]+ (steps?|epochs?)$`),
	reflect.TypeFor[StepRange]():     stringForm(`range of steps, such as "100-110"`, `^[0-9]+-[0-9]+$`),
	reflect.TypeFor[InterfaceName](): stringForm("interface name", `^[^/:\s]{1,15}$`),
	reflect.TypeFor[EnvName]():       stringForm("variable name", `^[A-Za-z_][A-Za-z0-9_]*$`),
	reflect.TypeFor[Dependency]():    stringForm(`condition, such as "afterok:prepare"`, `^(`+string(Singleton)+`|(`+strings.Join(dependencyKinds, "|")+`):.+)$`),
	reflect.TypeFor[ComponentName](): stringForm(`name, such as "server"`, componentNamePattern),
	reflect.TypeFor[Script]():        stringForm("shell code", `^[^\x00-\x08\x0b-\x1f\x7f]+$`),
	reflect.TypeFor[Expandable]():    stringForm("text with variables", plainText),
	reflect.TypeFor[ArrayRange]():    stringForm(`indices, such as "0-14%4"`, arrayRangePattern),
	reflect.TypeFor[Option]():        stringForm(`option, such as "--name=value"`, `^--[a-z][a-z0-9-]*(=.*)?$`),
	reflect.TypeFor[Axes]():          {"lists of values", axesSchema()},
	reflect.TypeFor[Values]():        {"values", map[string]any{"type": "object"}},
}

func (f *field) form() form {
	made := formOf(f.typ, f.rules)
	if f.typed < 0 {
		return made
	}
	text := map[string]any{"type": "string", "pattern": typedPattern}
	return form{made.words + `, or a type and a number, such as "a100:4"`, map[string]any{"anyOf": []any{made.schema, text}}}
}

// formOf returns the form of a type with rules. It panics if the type has no form, which is a
// bug.
func formOf(t reflect.Type, r rules) form {
	if f, ok := forms[t]; ok {
		return f
	}
	if r.choices != nil && t.Kind() != reflect.Slice {
		return form{quotedList(r.choices), map[string]any{"enum": r.choices}}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return formOf(t.Elem(), r)
	case reflect.Slice:
		inner := formOf(t.Elem(), r)
		return form{"list: " + inner.words, map[string]any{"type": "array", "items": inner.schema}}
	case reflect.Map:
		inner := formOf(t.Elem(), r)
		return form{"table: " + inner.words, map[string]any{"type": "object",
			"propertyNames": formOf(t.Key(), rules{}).schema, "additionalProperties": inner.schema}}
	case reflect.Struct:
		return form{"table", tableSchema(t)}
	case reflect.Int, reflect.Uint64:
		return form{"integer, " + r.limits.String(), r.limits.schema(t.Kind())}
	case reflect.Float64:
		return form{"number, " + r.limits.String(), r.limits.schema(t.Kind())}
	}
	panic("jobs: no form for the type " + t.String())
}

func quotedList(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = `"` + w + `"`
	}
	return strings.Join(quoted, ", ")
}

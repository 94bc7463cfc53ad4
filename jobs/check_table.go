package jobs

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// kindHints are the fixes for keys that are not valid with a kind, by key and kind.
var kindHints = map[[2]string]string{
	// A second text may contain characters that are not in the vocabulary of the first.
	{"train.data.eval_path", "text"}: "set holdout = 0.1 to evaluate on a tenth of the text",
}

// checkTable reports required keys that are missing in a table or in the tables in it, and
// keys that are not valid with the kind of their table.
func (d *decoder) checkTable(path string, v reflect.Value) {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	kind := ""
	if d.isValid(joinKey(path, "kind")) {
		kind = kindOf(v)
	}
	all := tableOf(v.Type()).fields
	for i := range all {
		f := &all[i]
		key := joinKey(path, f.key)
		switch {
		case f.isTable():
			if (d.given[key] || f.required) && !d.invalid[key] {
				d.checkTable(key, v.Field(f.index))
			}
		case f.required, slices.Contains(f.requires, kind):
			d.require(key)
		case kind != "" && !f.appliesTo(kind) && d.given[key]:
			hint := kindHints[[2]string{key, kind}]
			setDefault(&hint, "valid with kind: "+strings.Join(f.kinds, ", "))
			d.report(key, hint, "is not valid with kind = %q", kind)
		}
	}
}

// require reports a missing key, at the position of the table that should contain it.
func (d *decoder) require(key string) {
	if d.given[key] || d.isExpected(key) {
		return
	}
	var at span
	for table := key; at == (span{}); {
		dot := strings.LastIndexByte(table, '.')
		if dot < 0 {
			break
		}
		table = table[:dot]
		if d.invalid[table] {
			return // the value is not a table
		}
		if at = d.lookup(table).header; !at.known() {
			at = d.lookup(table).key
		}
	}
	f := fieldAt(reflect.TypeFor[Job](), strings.Split(key, "."))
	d.add(key, at, fmt.Sprintf("missing key %q", key), fmt.Sprintf("for example: %s = %s", f.key, f.example), "")
}

// isExpected reports whether an unknown key was probably meant as key or as a table around it.
func (d *decoder) isExpected(key string) bool {
	for {
		if d.guessed[key] {
			return true
		}
		dot := strings.LastIndexByte(key, '.')
		if dot < 0 {
			return false
		}
		key = key[:dot]
	}
}

// isAnyWithin reports whether one of the keys is table or a key in it.
func isAnyWithin(keys map[string]bool, table string) bool {
	for key := range keys {
		if isWithin(key, table) {
			return true
		}
	}
	return false
}

// isValid reports whether all keys are set and have valid values.
func (d *decoder) isValid(keys ...string) bool {
	return !slices.ContainsFunc(keys, func(key string) bool { return !d.given[key] || d.invalid[key] })
}

// report adds a diagnostic about the value of a key in the file.
func (d *decoder) report(key, allowed, format string, args ...any) {
	at := d.lookup(key)
	d.add(key, cmp.Or(at.value, at.header, at.key), key+": "+fmt.Sprintf(format, args...), allowed, "")
}

// reportElement adds a diagnostic about one element of an array.
func (d *decoder) reportElement(key string, i int, message string) {
	d.reportElementAllowed(key, i, message, "")
}

// reportElementAllowed adds a diagnostic about one element of an array, with a fix.
func (d *decoder) reportElementAllowed(key string, i int, message, allowed string) {
	at, name := d.lookup(key), fmt.Sprintf("%s[%d]", key, i)
	where := at.value
	if i < len(at.elements) {
		where = at.elements[i]
	}
	element := d.lookup(name) // known in an array of tables
	d.add(name, cmp.Or(where, element.header, element.key), name+": "+message, allowed, "")
}

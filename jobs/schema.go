package jobs

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"
)

// A Key is a key of the job file, for documentation and editors.
type Key struct {
	Name    string // "slurm.nodes"; "slurm" for the table itself
	Table   bool   // whether it is a table, whose keys follow
	Type    string // description, such as "integer, at least 1"
	Default string // default value; "required" if the key must be set; empty if there is no default
	Help    string // description with units, in full sentences
}

// Keys returns all keys of the job file in the order of their declaration.
func Keys() []Key {
	var keys []Key
	eachKey(reflect.TypeFor[Job](), nil, func(path []string, f *field) {
		keys = append(keys, Key{Name: keyName(path), Table: f.isTable(), Type: f.form().words, Default: f.defaultText(), Help: f.helpText()})
	})
	return keys
}

// defaultText returns the default value for documentation.
func (f *field) defaultText() string {
	switch {
	case f.isTable():
		return ""
	case f.required, f.kinds != nil && len(f.requires) == len(f.kinds):
		return "required"
	case len(f.requires) > 0:
		return "required for " + strings.Join(f.requires, ", ")
	case f.text != "":
		return f.text
	case f.auto == "" && f.typ.Kind() == reflect.Bool:
		return "false"
	}
	return f.auto
}

// helpText returns the description with the kinds of the table that have the key.
func (f *field) helpText() string {
	if f.kinds == nil {
		return f.help
	}
	list := quotedList(f.kinds)
	if i := strings.LastIndex(list, ", "); i >= 0 {
		comma := ""
		if len(f.kinds) > 2 {
			comma = ","
		}
		list = list[:i] + comma + " or " + list[i+2:]
	}
	return f.help + " Only with kind = " + list + "."
}

// SchemaURL is the URL where editors find the schema of the current development version.
const SchemaURL = "https://raw.githubusercontent.com/ddpbatch/ddpbatch/main/docs/reference/job.schema.json"

// Schema returns the JSON schema (draft 7) of the job file, for completion and checks in
// editors. The schema accepts all files that [Parse] accepts. Parse may reject more, because
// it also checks relations between keys.
func Schema() []byte {
	root := tableSchema(reflect.TypeFor[Job]())
	root["$schema"] = "http://json-schema.org/draft-07/schema#"
	root["$id"] = SchemaURL
	root["title"] = "ddpbatch job file"
	root["required"] = []string{"name"}
	root["oneOf"] = []any{map[string]any{"required": []string{"train"}}, map[string]any{"required": []string{"command"}}}
	return marshal(root)
}

func marshal(v any) []byte {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		panic("jobs: " + err.Error())
	}
	return []byte(b.String())
}

// tableSchema returns the schema of a struct that is a TOML table.
func tableSchema(t reflect.Type) map[string]any {
	properties := map[string]any{}
	all := tableOf(t).fields
	for i := range all {
		f := &all[i]
		s := maps.Clone(f.form().schema)
		if f.isTable() {
			s = tableSchema(tableType(f.typ))
		}
		s["description"] = f.helpText()
		properties[f.key] = s
	}
	return map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
}

// axesSchema returns the schema of a sweep's axes. It accepts the tables that trials can vary,
// with a list of values or a range in place of each value.
func axesSchema() map[string]any {
	properties := map[string]any{}
	for _, name := range sweepableTables {
		properties[name] = map[string]any{"type": "object"}
	}
	return map[string]any{"type": "object", "minProperties": 1, "properties": properties,
		// A quoted key "train.batch" equals train.batch.
		"patternProperties":    map[string]any{`^(` + strings.Join(sweepableTables, "|") + `)\.`: map[string]any{}},
		"additionalProperties": false}
}

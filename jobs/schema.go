package jobs

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
)

// SchemaURL is the URL where editors find the schema of the current development version.
const SchemaURL = "https://raw.githubusercontent.com/ddpbatch/ddpbatch/main/docs/reference/job.schema.json"

// Schema returns the JSON schema (draft 7) of the job file, for completion and checks in
// editors. The schema accepts all files that [Parse] accepts. Parse may reject more, because
// it also checks relations between keys.
func Schema() []byte {
	meanings := map[string]Key{}
	for _, k := range Keys() {
		meanings[k.Name] = k
	}
	root := tableSchema(reflect.TypeFor[Job](), nil, meanings)
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
func tableSchema(t reflect.Type, path []string, meanings map[string]Key) map[string]any {
	properties := map[string]any{}
	for field := range t.Fields() {
		name := field.Tag.Get("toml")
		if name == "" {
			continue
		}
		at := append(path[:len(path):len(path)], name)
		var s map[string]any
		if inner := tableType(field.Type); inner != nil && inner.Kind() == reflect.Struct {
			s = tableSchema(inner, at, meanings)
		} else {
			s = map[string]any{}
			for k, v := range formOf(field.Type).schema {
				s[k] = v
			}
		}
		if m := meanings[keyName(at)].Help; m != "" {
			s["description"] = m
		}
		properties[name] = s
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
		"patternProperties":    map[string]any{`^(` + strings.Join(slices.Clone(sweepableTables), "|") + `)\.`: map[string]any{}},
		"additionalProperties": false}
}

package jobs

import (
	"embed"
	"fmt"
	"slices"
	"strings"
)

// schemaLine is how editors with taplo, such as Even Better TOML, find a file's schema.
const schemaLine = "#:schema " + SchemaURL + "\n"

//go:embed starters/*.toml
var starters embed.FS

// StarterKinds lists the kinds that [Starter] knows, the usual one first.
func StarterKinds() []string { return []string{"mlp", "linear", "cnn", "gpt", "command", "torchrun"} }

// Starter returns a commented job file to start from. Every key of its sections
// that goes with its model and data is in it; those that few jobs need are commented out.
// Its first line tells editors of the [Schema].
func Starter(kind string) ([]byte, error) {
	if !slices.Contains(StarterKinds(), kind) {
		return nil, fmt.Errorf("no starter %q: there are %s", kind, strings.Join(StarterKinds(), ", "))
	}
	text, err := starters.ReadFile("starters/" + kind + ".toml")
	return append([]byte(schemaLine), text...), err
}

package jobs

import (
	"embed"
	"fmt"
	"slices"
	"strings"
)

// schemaLine tells editors with taplo, such as Even Better TOML, the schema of a file.
const schemaLine = "#:schema " + SchemaURL + "\n"

//go:embed starters/*.toml
var starters embed.FS

// StarterKinds returns the kinds that [Starter] accepts, most common first.
func StarterKinds() []string { return []string{"mlp", "linear", "cnn", "gpt", "command", "torchrun"} }

// Starter returns a commented job file as a starting point. It contains all keys of its
// sections that apply to its model and data. Rarely used keys are commented out. Its first
// line refers editors to the [Schema].
func Starter(kind string) ([]byte, error) {
	if !slices.Contains(StarterKinds(), kind) {
		return nil, fmt.Errorf("no starter %q: there are %s", kind, strings.Join(StarterKinds(), ", "))
	}
	text, err := starters.ReadFile("starters/" + kind + ".toml")
	return append([]byte(schemaLine), text...), err
}

package jobs

import (
	"embed"
	"fmt"
	"slices"
	"strings"
)

//go:embed starters/*.toml
var starters embed.FS

// StarterKinds lists the kinds that [Starter] knows, the usual one first.
func StarterKinds() []string { return []string{"mlp", "linear", "cnn", "gpt", "command", "torchrun"} }

// Starter returns a commented job file to start from. Every key of its sections
// that goes with its model and data is in it; those that few jobs need are commented out.
func Starter(kind string) ([]byte, error) {
	if !slices.Contains(StarterKinds(), kind) {
		return nil, fmt.Errorf("no starter %q: there are %s", kind, strings.Join(StarterKinds(), ", "))
	}
	return starters.ReadFile("starters/" + kind + ".toml")
}

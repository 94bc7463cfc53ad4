package jobs

import (
	"bytes"
	"embed"
	"fmt"
	"regexp"
	"slices"
	"strconv"
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

// A Shape describes changes to a starter. Zero values change nothing.
type Shape struct {
	Site        string
	Nodes, GPUs int    // GPUs is per node, with one rank per GPU
	File        string // target file name, quoted for a shell
	Account     string

	// Required are the keys of [slurm] that the site requires. ApplyShape uncomments them.
	// CPUsPerTask is the site's default. ApplyShape comments out the key, so the default applies.
	Required    []string
	CPUsPerTask int
}

// ApplyShape returns a starter with the changes in s. It retains the comments.
func ApplyShape(starter []byte, s Shape) []byte {
	for _, key := range s.Required {
		off := regexp.MustCompile(`(?m)^#(` + regexp.QuoteMeta(key) + ` = (?:"[^"]*"|\d+))( *)`)
		starter = off.ReplaceAll(starter, []byte("$1$2 "))
	}
	if s.CPUsPerTask > 0 {
		on := regexp.MustCompile(`(?m)^cpus_per_task = \d+( *)# .*$`)
		starter = on.ReplaceAllFunc(starter, func(old []byte) []byte {
			at := bytes.IndexByte(old, '#')
			return []byte(fmt.Sprintf("%-*s# cores per rank; this is the site's default", at, fmt.Sprintf("#cpus_per_task = %d ", s.CPUsPerTask)))
		})
	}
	set := func(key, value string) {
		// Keep the column of a trailing comment if there is enough space.
		line := regexp.MustCompile(`(?m)^#?` + key + ` = ("[^"]*"|\d+)( *)`)
		starter = line.ReplaceAllFunc(starter, func(old []byte) []byte {
			return []byte(fmt.Sprintf("%-*s", len(old), key+" = "+value+" "))
		})
		starter = regexp.MustCompile(`(?m) +$`).ReplaceAllLiteral(starter, nil)
	}
	if s.Site != "" {
		set("site", `"`+s.Site+`"`)
	}
	if s.Nodes > 0 {
		set("nodes", fmt.Sprint(s.Nodes))
	}
	if s.GPUs > 0 {
		set("gpus_per_node", fmt.Sprint(s.GPUs))
		set("tasks_per_node", fmt.Sprint(s.GPUs))
	}
	if s.Account != "" {
		set("account", strconv.Quote(s.Account))
	}
	if s.File != "" {
		starter = bytes.ReplaceAll(starter, []byte(" job.toml"), []byte(" "+s.File))
	}
	return starter
}

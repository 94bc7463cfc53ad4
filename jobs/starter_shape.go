package jobs

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
)

// Shape says how a job file differs from its starter. Zero values change nothing.
type Shape struct {
	Site        string
	Nodes, GPUs int    // GPUs of each node, one for each rank
	File        string // the file that it is written to, as a shell reads its name
	Account     string

	// Required are keys of [slurm] that the site requires: they are switched on.
	// CPUsPerTask is the site's default, which is left to the site.
	Required    []string
	CPUsPerTask int
}

// Shaped returns a starter with another shape. It keeps the comments.
func Shaped(starter []byte, s Shape) []byte {
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
		// The place of a comment behind the value does not change if it has room.
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

package jobs

import (
	"bytes"
	"fmt"
	"regexp"
)

// Shape is what a starter asks for, where it is not what the starter has: the site's
// profile, nodes, and GPUs of each node, one for each rank; and how a shell names the file
// that it is written to, for the commands in its comments. Zero values leave it as it is.
type Shape struct {
	Site        string
	Nodes, GPUs int
	File        string
}

// Shaped is a starter with another shape. Comments stay.
func Shaped(starter []byte, s Shape) []byte {
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
	if s.File != "" {
		starter = bytes.ReplaceAll(starter, []byte(" job.toml"), []byte(" "+s.File))
	}
	return starter
}

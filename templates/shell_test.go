package templates

import (
	"bytes"
	"slices"
	"testing"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

// missingDirectory is the format of the error if the directory of the job is missing on the node.
const missingDirectory = `ddpbatch: error: Slurm started the job on %s in /tmp, not in %q: the directory is missing or not accessible\n`

// checkShellWords parses the script as bash. It checks that the script contains the values as
// words, and that no part of them is a command or an expansion.
func checkShellWords(t *testing.T, script []byte, module, conda, binary, runDir string) {
	t.Helper()
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(bytes.NewReader(script), "script")
	if err != nil {
		t.Fatalf("%v in\n%s", err, script)
	}
	var commands [][]string
	syntax.Walk(file, func(node syntax.Node) bool {
		call, ok := node.(*syntax.CallExpr)
		if !ok {
			return true
		}
		// Without a shell, command expansion fails and file name expansion matches nothing.
		words, err := expand.Fields(&expand.Config{Env: expand.ListEnviron("conda_hook=hook")}, call.Args...)
		if err != nil {
			t.Fatalf("%v in\n%s", err, script)
		}
		commands = append(commands, words)
		return true
	})
	want := [][]string{
		{"type", "module"}, {".", "/etc/profile"}, {"set", "-eu"}, {"printf", missingDirectory, "", ""}, {"exit", "1"}, {"set", "+u"}, {"module", "load", module},
		{}, {"conda", "shell.bash", "hook"}, {"eval", "hook"}, {"conda", "activate", conda}, {"set", "-u"},
		{"exec", binary, "launch", "--run-dir", runDir},
	}
	if conda == "" {
		want = slices.Delete(want, 7, 11)
	}
	if !slices.EqualFunc(commands, want, slices.Equal) {
		t.Fatalf("the commands are %q, want %q, in\n%s", commands, want, script)
	}
}

package jobs

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestHintsForCommonErrors checks that diagnostics for common errors contain the fix.
func TestHintsForCommonErrors(t *testing.T) {
	const head = "name = \"x\"\n"
	for _, c := range []struct{ name, file, message, fix string }{
		{"curly quotes", "name = \u201cx\u201d\n", "not valid TOML", "straight quotes"},
		{"curly closing quote", head + "[command]\nargv = [\"x\u201d]\n", "not valid TOML", "straight quotes"},
		{"True", head + "slurm.exclusive = True\n", "not valid TOML", "write true"},
		{"no", head + "slurm.exclusive = no\n", "not valid TOML", "write false"},
		{"float", head + "slurm.nodes = 2.0\n", "integer, not 2.0", "write 2"},
		{"number for a list", head + "train.model.hidden = 64\n", "must be a list, not an integer", "write hidden = [64]"},
		{"text for a list", head + "setup.modules = \"gcc/13\"\n", "must be a list, not a string", `write modules = ["gcc/13"]`},
		{"command line", head + "command.argv = \"python train.py\"\n", "must be a list", `write argv = ["python", "train.py"]`},
		{"list for a number", head + "slurm.nodes = [2]\n", "must be an integer, not a list", ""},
		{"YAML", "name: x\nslurm:\n  nodes: 2\n", "not valid TOML", "this is YAML"},
		{"Python", "# model\n\nimport torch\n", "", "ddpbatch launch -- python3 SCRIPT"},
		{"Python with docstring", "#!/usr/bin/env python3\n\"\"\"Train.\"\"\"\nimport os\n", "", "this is a Python script"},
		{"Python import of names", "from torch import nn\n", "", "this is a Python script"},
		{"YAML with comment", "# my job\n---\nname: x\n", "", "this is YAML"},
		{"JSON", "{\"name\": \"x\"}\n", "not valid TOML", "this is JSON"},
		{"batch script", "#!/bin/bash\n#SBATCH --nodes=2\nsrun python train.py\n", "not valid TOML", "ddpbatch init --from"},
		{"batch script of directives", "#!/bin/bash\n#SBATCH --nodes=2\n", "no keys", "ddpbatch init --from"},
	} {
		_, err := Parse("job.toml", []byte(c.file))
		var found Diagnostics
		if !errors.As(err, &found) {
			t.Errorf("%s: got %v", c.name, err)
			continue
		}
		if !slices.ContainsFunc(found, func(d Diagnostic) bool {
			return strings.Contains(d.Message, c.message) && strings.Contains(d.Allowed, c.fix)
		}) {
			t.Errorf("%s: got %v, want %q with hint %q", c.name, found, c.message, c.fix)
		}
	}
}

// TestCheckFilesUnexpandedVariable checks that the error for a path with a variable says that
// variables are not expanded.
func TestCheckFilesUnexpandedVariable(t *testing.T) {
	job, err := Parse("job.toml", []byte("name = \"x\"\n[command]\nargv = [\"x\"]\nworkdir = \"$HOME/code\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	var found Diagnostics
	if err := job.CheckFiles(t.TempDir()); !errors.As(err, &found) || !strings.Contains(found[0].Allowed, "not expanded") {
		t.Errorf("got %v", err)
	}
}

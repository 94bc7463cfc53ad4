package tests

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/ddpbatch/ddpbatch/tests/program"
)

// testReference matches the tests that docs/compared.md names: `slurm: TestName`, or `cmd/ddpbatch:
// TestScripts/name` for a script.
var testReference = regexp.MustCompile("`([a-z/]+): (Test\\w+)(?:/(\\w+))?`")

// TestComparedIsShown checks that the tests exist that docs/compared.md and docs/launchers.md name
// as evidence.
func TestComparedIsShown(t *testing.T) {
	var found [][]string
	for _, name := range []string{"compared.md", "launchers.md"} {
		page, err := os.ReadFile("../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		here := testReference.FindAllStringSubmatch(string(page), -1)
		if len(here) < 5 {
			t.Fatalf("%s names %d tests only", name, len(here))
		}
		found = append(found, here...)
	}
	for _, m := range found {
		folder, name, script := filepath.Join("..", m[1]), m[2], m[3]
		if _, has := program.HasTest(t, folder, name); !has {
			t.Errorf("there is no %s in %s", name, m[1])
		}
		if script != "" && name == "TestScripts" {
			if _, err := os.Stat(filepath.Join(folder, "testdata", "script", script+".txtar")); err != nil {
				t.Errorf("%s: %v", m[0], err)
			}
		}
	}
}

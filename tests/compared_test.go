package tests

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/ddpbatch/ddpbatch/tests/program"
)

// shownBy finds the tests that docs/compared.md names: `slurm: TestName`, or
// `cmd/ddpbatch: TestScripts/name` for a script.
var shownBy = regexp.MustCompile("`([a-z/]+): (Test\\w+)(?:/(\\w+))?`")

// What is said of this program in the comparison with others is shown by tests
// that exist.
func TestComparedIsShown(t *testing.T) {
	page, err := os.ReadFile("../docs/compared.md")
	if err != nil {
		t.Fatal(err)
	}
	found := shownBy.FindAllStringSubmatch(string(page), -1)
	if len(found) < 20 {
		t.Fatalf("only %d tests are named", len(found))
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

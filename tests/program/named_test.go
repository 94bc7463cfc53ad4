package program_test

import (
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/tests/program"
)

const usedByTheTest = "what it " + "looks for"

// notATest has the signature of a test, but not the name.
func notATest(*testing.T) { _ = "of no test" }

func TestMain(m *testing.M) { _ = notATest; m.Run() }

// TestHasTest checks that HasTest finds a test with the texts that it uses, and nothing that is
// not a test.
func TestHasTest(t *testing.T) {
	said, has := program.HasTest(t, ".", "TestHasTest")
	if !has {
		t.Fatal("it does not find itself")
	}
	for _, want := range []string{usedByTheTest[:8], "it does not find itself"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is missing in what the test says:\n%s", want, said)
		}
	}
	for _, other := range []string{"of no " + "test", "would be " + "run"} {
		if strings.Contains(said, other) {
			t.Errorf("the test says %q, which is not its own", other)
		}
	}
	for _, name := range []string{"notATest", "TestMain", "TestNowhere", "usedByTheTest"} {
		if _, has := program.HasTest(t, ".", name); has {
			t.Errorf("%s is no test", name)
		}
	}
	if _, has := program.HasTest(t, "../peers/nothing", "TestHasTest"); has {
		t.Error("there is a test in a folder that is not there")
	}
}

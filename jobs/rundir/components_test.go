package rundir

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestComponentStates checks that the states of the newest attempt are read, from all nodes, and that
// files of an unusual content are skipped.
func TestComponentStates(t *testing.T) {
	d := Dir{Path: t.TempDir()}
	if got, err := d.ReadComponents(); err != nil || got != nil {
		t.Errorf("no directory: %v, %v", got, err)
	}
	state := func(attempt, node int, phase ComponentPhase) ComponentState {
		return ComponentState{Name: "server", Attempt: attempt, Node: node, Host: "n1", Address: "10.0.0.1:1", Phase: phase, Time: time.Unix(1000, 0).UTC()}
	}
	for _, s := range []ComponentState{state(1, 0, ComponentFailed), state(2, 0, ComponentStarting), state(2, 1, ComponentReady), state(2, 0, ComponentReady)} {
		if err := d.WriteComponents(s.Attempt, s.Node, []ComponentState{s}); err != nil {
			t.Fatal(err)
		}
	}
	for node, text := range map[int]string{2: "[", 3: "[" + strings.Repeat("{},", maxComponents) + "{}]"} {
		if err := os.WriteFile(filepath.Join(d.Path, componentsName, nodeFile(2, node)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := d.ReadComponents()
	if want := []ComponentState{state(2, 0, ComponentReady), state(2, 1, ComponentReady)}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	for node := range maxAllComponents/maxComponents + 2 {
		text := "[" + strings.Repeat("{},", maxComponents-1) + "{}]"
		if err := os.WriteFile(filepath.Join(d.Path, componentsName, nodeFile(3, node)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := d.ReadComponents(); err != nil || len(got) != maxAllComponents {
		t.Errorf("many nodes: got %d states, %v, want %d", len(got), err, maxAllComponents)
	}
	if info, err := os.Stat(filepath.Join(d.Path, componentsName, nodeFile(2, 0))); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got mode %v, %v", info.Mode(), err)
	}
}

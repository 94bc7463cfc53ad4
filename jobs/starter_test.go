package jobs

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestStarterKinds checks that every kind of model and every launcher has a starter.
func TestStarterKinds(t *testing.T) {
	want := []string{"command", "torchrun"}
	want = append(want, fieldAt(reflect.TypeFor[Job](), []string{"train", "model", "kind"}).rules.choices...)
	got := StarterKinds()
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("starters %q, want %q", got, want)
	}
}

// TestStarters checks that each starter is a valid job file, also with its optional keys.
func TestStarters(t *testing.T) {
	off := regexp.MustCompile(`^#[a-z_A-Z]+ = `)
	for _, kind := range StarterKinds() {
		src, err := Starter(kind)
		if err != nil {
			t.Fatal(err)
		}
		job := parse(t, string(src))
		if kind != "command" && kind != "torchrun" {
			if job.Train == nil || string(job.Train.Model.Kind) != kind {
				t.Errorf("%s is %+v", kind, job.Train)
			}
		} else if job.Command == nil || (kind == "torchrun") != (job.Command.Launcher == LauncherTorchrun) {
			t.Errorf("%s is %+v", kind, job.Command)
		}

		// Every key that is commented out must be valid without the comment sign.
		lines, on := strings.Split(string(src), "\n"), 0
		for i, line := range lines {
			if off.MatchString(line) {
				on++
				lines[i] = line[1:]
				parse(t, strings.Join(lines, "\n"))
				lines[i] = line
			}
		}
		if on < 15 {
			t.Errorf("%s has only %d keys that are switched off", kind, on)
		}

		// The table at the end must be valid without the comment signs.
		before, notify, _ := strings.Cut(string(src), "# [notify]\n")
		if job := parse(t, before+"[notify]\n"+strings.ReplaceAll(notify, "# ", "")); len(job.Notify.Events) != 2 {
			t.Errorf("%s: got notify %+v, want two events", kind, job.Notify)
		}

		// The starter contains all keys of its sections, possibly commented out.
		for key := range specKeys() {
			table, name := "", key
			if i := strings.LastIndexByte(key, '.'); i >= 0 {
				table, name = key[:i], key[i+1:]
			}
			here := table == "" || strings.Contains(string(src), "\n["+table+"]")
			if job.Train != nil { // skip keys of other models and other data
				kinds := map[string]string{"train.model": string(job.Train.Model.Kind), "train.data": string(job.Train.Data.Kind)}
				if kind, ok := kinds[table]; ok {
					here = here && fieldAt(reflect.TypeFor[Job](), strings.Split(key, ".")).appliesTo(kind)
				}
			}
			if key == "component" && job.Train != nil {
				here = false // not valid with [train]
			}
			if here && !regexp.MustCompile(`\b`+name+`\b`).Match(src) {
				t.Errorf("%s does not mention %s", kind, key)
			}
		}
	}
	if _, err := Starter("pip"); err == nil || !strings.Contains(err.Error(), "torchrun") {
		t.Errorf("Starter(pip): %v", err)
	}
}

// TestShaped checks that ApplyShape changes the values of a starter and retains its comments.
func TestShaped(t *testing.T) {
	for _, kind := range StarterKinds() {
		src, err := Starter(kind)
		if err != nil {
			t.Fatal(err)
		}
		got := ApplyShape(src, Shape{Site: "lumi", Nodes: 3, GPUs: 8})
		job := parse(t, string(got))
		if job.Site != "lumi" || job.Slurm.Nodes != 3 || job.Slurm.GPUsPerNode != 8 || job.Slurm.TasksPerNode != 8 {
			t.Errorf("%s: %+v", kind, job.Slurm)
		}
		if a, b := strings.Count(string(src), "\n"), strings.Count(string(got), "\n"); a != b {
			t.Errorf("%s had %d lines and has %d", kind, a, b)
		}
		if string(ApplyShape(src, Shape{})) != string(src) {
			t.Errorf("%s: no shape changes it", kind)
		}
	}
}

//go:build linux

package cluster

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite golden files")

// TestConfGolden compares the configuration files of a cluster with golden files.
func TestConfGolden(t *testing.T) {
	o, err := Options{Dir: "/dir", Nodes: 2, SlurmConf: []string{"KillWait=2", "RequeueExit=3"}}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]string{
		"slurm.conf":    slurmConf(o, subnet{7}),
		"gres.conf":     gresConf(o),
		"slurmdbd.conf": slurmdbdConf(o, subnet{7}),
		"hosts":         hosts(o, subnet{7}, "machine"),
	} {
		file := filepath.Join("testdata", name+".golden")
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s differs from %s (-update rewrites it); got:\n%s", name, file, got)
		}
	}
}

// TestNoGPUs checks that the configuration of a cluster without GPUs does not mention gres.
func TestNoGPUs(t *testing.T) {
	o, err := Options{Dir: "/dir", GPUs: -1}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if conf := slurmConf(o, subnet{0}); strings.Contains(strings.ToLower(conf), "gres") {
		t.Errorf("slurm.conf speaks of gres without GPUs:\n%s", conf)
	}
	if conf := gresConf(o); conf != "" {
		t.Errorf("gres.conf = %q; want nothing", conf)
	}
}

// TestOverride checks that additional lines of slurm.conf replace lines with the same key.
func TestOverride(t *testing.T) {
	base := []string{"KillWait=10", "PartitionName=low Nodes=ALL", "PartitionName=high Nodes=ALL"}
	for _, tt := range []struct {
		name  string
		extra []string
		want  []string
	}{
		{"nothing", nil, base},
		{"same key, other case", []string{"killwait=2"}, []string{"killwait=2", base[1], base[2]}},
		{"new key", []string{"InactiveLimit=5"}, []string{base[0], base[1], base[2], "InactiveLimit=5"}},
		{"same partition", []string{"PartitionName=low Nodes=n1"}, []string{base[0], "PartitionName=low Nodes=n1", base[2]}},
		{"new partition", []string{"PartitionName=lower Nodes=n1"}, []string{base[0], base[1], base[2], "PartitionName=lower Nodes=n1"}},
		{"twice the same", []string{"A=1", "A=2"}, []string{base[0], base[1], base[2], "A=2"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := override(base, tt.extra); !slices.Equal(got, tt.want) {
				t.Errorf("override = %q; want %q", got, tt.want)
			}
		})
	}
}

// TestInvalidOptions checks that options outside of their ranges and invalid lines of slurm.conf
// are rejected.
func TestInvalidOptions(t *testing.T) {
	for _, o := range []Options{
		{Nodes: -2},
		{Nodes: maxNodes + 1},
		{CPUs: -1},
		{GPUs: -2},
		{SlurmConf: []string{"no key"}},
		{SlurmConf: []string{"# A=1"}},
		{SlurmConf: []string{"A=1\nB=2"}},
	} {
		if _, err := o.withDefaults(); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}

// FuzzConfKey checks that any line with a key replaces itself.
func FuzzConfKey(f *testing.F) {
	for _, line := range []string{"KillWait=2", " PartitionName=low Nodes=ALL", "=", "a b=c", "#a=b", "A=1\nB=2", "NodeName=", "É=1"} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		key := confKey(line)
		if key == "" {
			return
		}
		if strings.ContainsAny(key, "\n\r#") && !strings.Contains(key, "=") {
			t.Errorf("confKey(%q) = %q", line, key)
		}
		if got := override([]string{line}, []string{line}); len(got) != 1 {
			t.Errorf("%q does not replace itself: %q", line, got)
		}
	})
}

// TestFields checks the key-value pairs of scontrol's output, with empty values and values that
// contain "=".
func TestFields(t *testing.T) {
	f := fields("JobId=3 JobName=a=b Reason=None\tWorkDir=/tmp/x StdOut= word JobId=4\n")
	for key, want := range map[string]string{
		"JobId": "3", "JobName": "a=b", "Reason": "None", "WorkDir": "/tmp/x", "StdOut": "", "word": "",
	} {
		if f[key] != want {
			t.Errorf("%s is %q; want %q", key, f[key], want)
		}
	}
}

// FuzzFields checks that each key-value pair is part of the line.
func FuzzFields(f *testing.F) {
	f.Add("JobId=3 JobName=a=b Reason=None")
	f.Add("= == a= =b")
	f.Fuzz(func(t *testing.T, line string) {
		for key, value := range fields(line) {
			if !strings.Contains(line, key+"="+value) {
				t.Errorf("fields(%q) has %q=%q", line, key, value)
			}
		}
	})
}

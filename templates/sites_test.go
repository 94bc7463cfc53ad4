package templates

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/templates/sites"
)

// TestSites renders every example for every profile, and a job on all GPUs of two nodes. Each
// profile must accept these jobs.
func TestSites(t *testing.T) {
	examples, err := filepath.Glob("../jobs/examples/*.toml")
	if err != nil || len(examples) == 0 {
		t.Fatalf("no examples (%v)", err)
	}
	want := map[string]bool{}
	for _, site := range (sites.Finder{}).Names() {
		p := profile(t, site)
		for _, path := range append(examples, "gpus") {
			name := strings.TrimSuffix(filepath.Base(path), ".toml")
			golden := filepath.Join("testdata", "sites", site, name+".sbatch")
			want[golden] = true
			t.Run(site+"/"+name, func(t *testing.T) {
				script := renderFor(t, p, path)
				checkShell(t, script)
				if *update {
					if err := os.MkdirAll(filepath.Dir(golden), 0o755); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(golden, script, 0o644); err != nil {
						t.Fatal(err)
					}
				}
				text, err := os.ReadFile(golden)
				if err != nil {
					t.Fatalf("%v (go test ./templates -update writes it)", err)
				}
				if !bytes.Equal(script, text) {
					t.Errorf("%s differs (go test ./templates -update rewrites it):\ngot\n%s\nwant\n%s", golden, script, text)
				}
			})
		}
	}
	files, err := filepath.Glob("testdata/sites/*/*.sbatch")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !want[file] {
			t.Errorf("%s belongs to no profile and example", file)
		}
	}
}

// renderFor renders a job file, or "gpus", for a site. It sets the account and the other keys
// that the site requires.
func renderFor(t *testing.T, p *sites.Profile, path string) []byte {
	t.Helper()
	src := []byte("name = \"gpus\"\nslurm = { nodes = 2, time = \"00:20:00\" }\ncommand.argv = [\"python3\", \"train.py\"]\n")
	if path != "gpus" {
		var err error
		if src, err = jobs.Read(path); err != nil {
			t.Fatal(err)
		}
	}
	var set []jobs.Override
	given := func(key string, value any) {
		o, err := jobs.ParseOverride(fmt.Sprintf("slurm.%s=%v", key, value))
		if err != nil {
			t.Fatal(err)
		}
		set = append(set, o)
	}
	r := p.Suggested()
	if path == "gpus" && r.GPUsPerNode > 0 {
		given("gpus_per_node", r.GPUsPerNode)
	}
	if r.Nodes == 1 {
		given("nodes", 1)
	}
	for _, key := range p.Require {
		switch key {
		case "account":
			suffix := p.Accounts.Suffix
			if by, ok := p.Accounts.SuffixByConstraint[jobs.Word(r.Constraint)]; ok {
				suffix = by
			}
			given("account", "project"+string(suffix))
		case "partition":
			given("partition", r.Partition)
		case "qos":
			given("qos", r.QOS)
		case "constraint":
			given("constraint", r.Constraint)
		}
	}
	job, err := jobs.Parse(path, src, set...)
	if err != nil {
		t.Fatal(err)
	}
	p.Apply(job)
	if found := p.Lint(job); len(found) > 0 {
		t.Fatalf("%v", found)
	}
	in := Input{Job: job, Site: p, Binary: "/opt/ddpbatch/bin/ddpbatch", RunDir: "/scratch/runs/" + string(job.Name)}
	if job.Sweep != nil {
		in.Array = job.Sweep.Array(nil)
	}
	script, err := Render(in)
	if err != nil {
		t.Fatal(err)
	}
	return script
}

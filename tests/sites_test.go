package tests

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/templates"
	"github.com/ddpbatch/ddpbatch/templates/sites"
	"github.com/ddpbatch/ddpbatch/tests/cluster"
)

// TestSitesAreAccepted checks the scripts of each site profile with a Slurm that is configured like
// the center in the profile. sbatch --test-only must accept each golden script and a job that
// requests everything that a resource has. sbatch and the profile's own check must reject a job
// that requests a little more.
//
// Slurm checks partitions, features, times, nodes, GPUs, cores, and memory here. Without accounting
// it accepts any account and any QOS, so the test configures the limits of a QOS as limits of its
// partition. The test removes no option from a script. sbatch accepts --network, which needs a
// plugin that is not installed here, without checking it. No job starts, so the test does not cover
// the options of srun and of container runtimes.
func TestSitesAreAccepted(t *testing.T) {
	c := cluster.ForTest(t, cluster.Options{Nodes: -1})
	for _, name := range (sites.Finder{}).Names() {
		t.Run(name, func(t *testing.T) {
			p, err := sites.Finder{}.Find(name, "")
			if err != nil {
				t.Fatal(err)
			}
			reconfigure(t, c, p, p.Suggested())
			scripts, err := filepath.Glob(filepath.Join("../templates/testdata/sites", name, "*.sbatch"))
			if err != nil || len(scripts) == 0 {
				t.Fatalf("%d scripts (%v)", len(scripts), err)
			}
			for _, path := range scripts {
				script, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				accepted(t, c, path, script)
			}
			for i, r := range p.Resources {
				reconfigure(t, c, p, r)
				script, found := scriptFor(t, p, r, nil)
				if len(found) > 0 {
					t.Errorf("resource[%d], all of it: %v", i, found)
				}
				accepted(t, c, fmt.Sprintf("resource[%d], all of it", i), script)
				for _, more := range excesses(p, r) {
					script, found := scriptFor(t, p, r, more.set)
					if len(found) == 0 {
						t.Errorf("resource[%d] with %v: the profile's check accepts it", i, more.set)
					}
					if o := testOnly(t, c, script); o.code == 0 || !strings.Contains(o.stderr, more.refusal) {
						t.Errorf("resource[%d] with %v: %v; want it refused with %q\n%s", i, more.set, o, more.refusal, script)
					}
				}
			}
		})
	}
}

// testOnly runs sbatch --test-only on a script.
func testOnly(t *testing.T, c *cluster.Cluster, script []byte) outcome {
	t.Helper()
	cmd := c.Command(t.Context(), "sbatch", "--test-only")
	cmd.Stdin = strings.NewReader(string(script))
	cmd.Env, _ = slurm.Scrub(cmd.Env)
	return finish(t, cmd)
}

func accepted(t *testing.T, c *cluster.Cluster, name string, script []byte) {
	t.Helper()
	if o := testOnly(t, c, script); o.code != 0 || !strings.Contains(o.stderr, "to start at") || strings.Contains(o.stderr, "error") {
		t.Errorf("%s: %v\n%s", name, o, script)
	}
}

// reconfigure configures the cluster like the center of the profile, with all of its partitions. A
// partition that several resources share, by QOS or constraint, has the limits of first if first is
// one of them.
func reconfigure(t *testing.T, c *cluster.Cluster, p *sites.Profile, first sites.Resource) {
	t.Helper()
	lines := []string{"EnforcePartLimits=ALL", "GresTypes=gpu"}
	done := make(map[jobs.Word]bool)
	for _, r := range append([]sites.Resource{first}, p.Resources...) {
		if done[r.Partition] {
			continue
		}
		node, partition := slurmConf(p, r, fmt.Sprintf("p%d-", len(done)))
		lines = append(lines, node, partition)
		done[r.Partition] = true
	}
	if err := c.Reconfigure(t.Context(), lines...); err != nil {
		t.Fatalf("%v\n%s", err, strings.Join(lines, "\n"))
	}
}

// slurmConf returns the lines of slurm.conf for a resource's partition and nodes. There is one node
// more than a job may have, so that the job meets the limit and not the size of the machine.
func slurmConf(p *sites.Profile, r sites.Resource, prefix string) (node, partition string) {
	nodes := cmp.Or(r.Nodes, 8) + 1
	node = fmt.Sprintf("NodeName=%s[1-%d] CPUs=%d RealMemory=%d", prefix, nodes, cmp.Or(r.CPUsPerNode, 16), cmp.Or(r.Memory.Bytes()>>20, 64<<10))
	if r.GPUsPerNode > 0 {
		gpus := "gpu"
		if _, of, typed := strings.Cut(string(p.Request.GPUs), ":"); typed {
			gpus += ":" + of
		}
		node += fmt.Sprintf(" Gres=%s:%d", gpus, r.GPUsPerNode)
	}
	operator := func(c rune) bool { return strings.ContainsRune("&|[]()*,", c) }
	features := strings.FieldsFunc(string(r.Constraint+"&"+p.Defaults.Constraint), operator)
	slices.Sort(features)
	if features = slices.Compact(features); len(features) > 0 {
		node += " Features=" + strings.Join(features, ",")
	}
	partition = fmt.Sprintf("PartitionName=%s Nodes=%s[1-%d]", cmp.Or(r.Partition, "standard"), prefix, nodes)
	if r.Partition == "" { // no script of this site needs to name a partition
		partition += " Default=YES"
	}
	if r.Nodes > 0 {
		partition += fmt.Sprintf(" MaxNodes=%d", r.Nodes)
	}
	if r.Time != "" {
		partition += " MaxTime=" + string(r.Time)
	}
	if r.Exclusive {
		partition += " OverSubscribe=EXCLUSIVE"
	}
	return node, partition
}

// An excess is a request for more than a resource has.
type excess struct {
	set     map[string]any // keys of [slurm]
	refusal string         // message of sbatch
}

func excesses(p *sites.Profile, r sites.Resource) []excess {
	const node = "Requested node configuration is not available"
	var all []excess
	if r.Nodes > 0 {
		all = append(all, excess{map[string]any{"nodes": r.Nodes + 1}, "Node count specification invalid"})
	}
	if d := r.Time.Duration(); d > 0 {
		all = append(all, excess{map[string]any{"time": minutes(d + time.Minute)}, "Requested time limit is invalid"})
	}
	if r.CPUsPerNode > 0 {
		all = append(all, excess{map[string]any{"nodes": 1, "tasks_per_node": 1, "cpus_per_task": r.CPUsPerNode + 1}, node})
	}
	if r.GPUsPerNode > 0 && p.Request.GPUs != "none" {
		all = append(all, excess{map[string]any{"nodes": 1, "gpus_per_node": r.GPUsPerNode + 1}, node})
	}
	if r.Memory != "" {
		all = append(all, excess{map[string]any{"nodes": 1, "mem": fmt.Sprintf("%dM", r.Memory.Bytes()>>20+1)}, node})
	}
	return all
}

func minutes(d time.Duration) string { return fmt.Sprintf("%q", fmt.Sprint(int(d.Minutes()))) }

// scriptFor renders the script of a job that requests all of a resource, changed by the keys in
// set. It returns the script and the diagnostics of the profile's check.
func scriptFor(t *testing.T, p *sites.Profile, r sites.Resource, set map[string]any) ([]byte, jobs.Diagnostics) {
	t.Helper()
	suffix := p.Accounts.Suffix
	if by, ok := p.Accounts.SuffixByConstraint[jobs.Word(r.Constraint)]; ok {
		suffix = by
	}
	keys := map[string]any{
		"nodes": cmp.Or(r.Nodes, 8), "gpus_per_node": r.GPUsPerNode, "account": "project" + string(suffix),
		// A resource without a QOS is for all QOS that the profile does not name.
		"qos":  cmp.Or(r.QOS, "other"),
		"time": minutes(cmp.Or(r.Time.Duration(), time.Hour)),
	}
	for key, value := range map[string]string{"partition": string(r.Partition), "constraint": string(r.Constraint), "mem": string(r.Memory)} {
		if value != "" {
			keys[key] = value
		}
	}
	for key, value := range set {
		keys[key] = value
	}
	var overrides []jobs.Override
	for key, value := range keys {
		o, err := jobs.ParseOverride(fmt.Sprintf("slurm.%s=%v", key, value))
		if err != nil {
			t.Fatal(err)
		}
		overrides = append(overrides, o)
	}
	job, err := jobs.Parse("job.toml", []byte("name = \"all\"\ncommand.argv = [\"true\"]\n"), overrides...)
	if err != nil {
		t.Fatal(err)
	}
	p.Apply(job)
	found := p.Lint(job)
	script, err := templates.Render(templates.Input{Job: job, Site: p, Binary: "/opt/ddpbatch/bin/ddpbatch", RunDir: "/scratch/runs/all"})
	if err != nil {
		t.Fatal(err)
	}
	return script, found
}

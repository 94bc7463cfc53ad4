//go:build linux

package cluster

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestAccounting checks that the database and slurmdbd start with the cluster, contain its account,
// and stop with it.
func TestAccounting(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	begin := time.Now()
	c, err := Start(t.Context(), Options{Dir: dir, Nodes: 1, Accounting: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("up after %v", time.Since(begin).Round(time.Millisecond))
	all := spaces(t, c.machines[controlName].pid())
	running := mustOutput(t, c, "ps", "-eo", "comm")
	for _, name := range []string{"mariadbd", "slurmdbd"} {
		if !slices.Contains(strings.Fields(running), name) {
			t.Errorf("%s does not run", name)
		}
	}
	if got := mustOutput(t, c, "sacctmgr", "--noheader", "--parsable2", "show", "assoc", "format=cluster,account,user"); !strings.Contains(got, "|research|root\n") {
		t.Errorf("the accounts are:\n%s", got)
	}
	id := sbatch(t, c, "exit 3\n", "--account=research")
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		got := mustOutput(t, c, "sacct", "--allocations", "--noheader", "--parsable2", "--format=state,exitcode,account", "--jobs="+id)
		if got == "FAILED|3:0|research\n" {
			break
		}
		if time.Now().After(end) {
			t.Errorf("the accounts have %q for a job that failed\n%s", got, c.Logs())
			break
		}
	}

	// Rules for accounts in the configuration of a center.
	if err := c.Reconfigure(t.Context(), "AccountingStorageEnforce=associations", "NodeName=big[1-9] CPUs=64"); err != nil {
		t.Error(err)
	}
	mustOutput(t, c, "sbatch", "--test-only", "-N9", "--account=research", "--wrap=true")
	out, err := c.Command(t.Context(), "sbatch", "--test-only", "-N9", "--account=nobody", "--wrap=true").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "Invalid account") {
		t.Errorf("a job with an account that is not there: %v: %s", err, out)
	}

	begin = time.Now()
	stop := ticks(t)
	if err := c.Stop(); err != nil {
		t.Error(err)
	}
	t.Logf("stopped after %v", time.Since(begin).Round(time.Millisecond))
	for _, p := range append(within(t, all, stop), leftovers(t, dir)...) {
		t.Errorf("left behind: %s", p)
	}
}

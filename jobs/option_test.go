package jobs

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestControlledOptions checks that each option that ddpbatch sets is rejected with a fix, also if only
// the start of its name is given, and that each fix names keys that exist.
func TestControlledOptions(t *testing.T) {
	var names []string
	for _, k := range Keys() {
		names = append(names, k.Name)
	}
	key := regexp.MustCompile(`\b(?:slurm|setup|command|restart)\.[a-z_.]+`)
	for list, tables := range map[string][]controlled{"slurm.options": {jobOptions, sbatchControlled}, "slurm.step_options": {jobOptions, stepControlled}} {
		for _, table := range tables {
			for option, fix := range table {
				for _, name := range key.FindAllString(fix, -1) {
					if !slices.Contains(names, name) {
						t.Errorf("the fix for --%s names %s, which is not a key", option, name)
					}
				}
				for _, given := range []string{option, option + "=1"} {
					if given == "exclusive=1" { // a value of --exclusive is not slurm.exclusive
						continue
					}
					table, name, _ := strings.Cut(list, ".")
					_, err := Parse("job.toml", fmt.Appendf(nil, "name = \"x\"\n[%s]\n%s = [\"--%s\"]\n[command]\nargv = [\"x\"]\n", table, name, given))
					found, _ := err.(Diagnostics)
					if len(found) != 1 || found[0].Key != list+"[0]" || found[0].Allowed != fix {
						t.Errorf("%s with --%s: got %v, want %q", list, given, err, fix)
					}
				}
			}
		}
	}
	for _, start := range []string{"--parti=x", "--ntasks-per-n=2", "--arr=1", "--tres-per-t=cpu:4"} {
		if fix := jobOptions.fix(Option(start), sbatchControlled); fix == "" {
			t.Errorf("%s is accepted", start)
		}
	}
	for _, other := range []Option{"--tmp=10G", "--exclusive=user", "--gres-flags=disable-binding", "--container=x"} {
		if fix := jobOptions.fix(other, sbatchControlled); fix != "" {
			t.Errorf("%s is rejected: %s", other, fix)
		}
	}
}

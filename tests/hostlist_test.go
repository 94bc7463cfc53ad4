package tests

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/slurm"
)

// scontrol runs "scontrol show KIND LIST". It reports whether scontrol accepts the list, because
// scontrol exits with code 0 even if the list is invalid. scontrol contacts no daemon, but it needs
// a configuration to start.
type scontrol struct {
	t    *testing.T
	conf string
}

func newScontrol(t *testing.T) scontrol {
	t.Helper()
	if _, err := exec.LookPath("scontrol"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("no scontrol: run tests/setup.sh as root")
	}
	conf := filepath.Join(t.TempDir(), "slurm.conf")
	if err := os.WriteFile(conf, []byte("ClusterName=none\nSlurmctldHost=localhost\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return scontrol{t, conf}
}

// slurmVersion returns the version of the installed Slurm, such as "22.05.8". The environment has
// SLURM_CONF.
func slurmVersion(t *testing.T, environment ...string) string {
	t.Helper()
	version, err := slurm.Client{Environ: append(os.Environ(), environment...)}.Version(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return version
}

func (s scontrol) show(kind, list string) (string, bool) {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), "scontrol", "show", kind, list)
	cmd.Env = append(os.Environ(), "SLURM_CONF="+s.conf)
	o := finish(s.t, cmd)
	if strings.Contains(o.stderr, "Invalid host") {
		return "", false
	}
	if o.code != 0 || o.stderr != "" {
		s.t.Fatalf("%q: %v", cmd.Args, o)
	}
	return o.stdout, true
}

func (s scontrol) expand(list string) ([]string, bool) {
	s.t.Helper()
	out, ok := s.show("hostnames", list)
	return strings.Fields(out), ok
}

// number formats a number, sometimes with leading zeros.
func number(r *rand.Rand, n int) string {
	return fmt.Sprintf("%0*d", r.IntN(5), n)
}

// bracket returns a random bracket with up to four ranges of up to ten numbers.
func bracket(r *rand.Rand) string {
	var ranges []string
	for range 1 + r.IntN(4) {
		lo := []int{r.IntN(12), r.IntN(120), 90 + r.IntN(20), 995 + r.IntN(10)}[r.IntN(4)]
		text := number(r, lo)
		if r.IntN(3) > 0 {
			text += "-" + strconv.Itoa(lo+r.IntN(10))
		}
		ranges = append(ranges, text)
	}
	return "[" + strings.Join(ranges, ",") + "]"
}

var (
	names      = []string{"n", "node-", "gpu", "r1c2s", "a.b-", "x_", "nid", "c1-", ""}
	separators = []string{",", ",", ",", " ", ",,", ", "}
)

// hostList returns a random host list of a few items with up to three brackets each, in the grammar
// of Slurm 22.05: nothing may follow the last bracket of an item.
func hostList(r *rand.Rand) string {
	var b strings.Builder
	for i := range 1 + r.IntN(4) {
		if i > 0 {
			b.WriteString(separators[r.IntN(len(separators))])
		}
		item := names[r.IntN(len(names))]
		for j := range r.IntN(4) {
			if j > 0 {
				item += names[r.IntN(len(names))]
			}
			item += bracket(r)
		}
		if item == "" {
			item = "login"
		}
		b.WriteString(item)
	}
	return b.String()
}

// TestHostListsExpandAsSlurmDoes checks that ExpandHosts returns the names that scontrol prints, in
// the same order.
func TestHostListsExpandAsSlurmDoes(t *testing.T) {
	s := newScontrol(t)
	lists := []string{
		"n1", "n[08-11]", "n[8-11]", "n[1,01,001]", "n[1-003]", "n[00-3]", "n[10-12,1-2]", "a,b,a", "n[1-2],n[2-3]",
		"n[1-2]-[3-4]", "n[1-2][3-4]", "row[0,1]_rack[2-3]_blade[4,5]", "a[1-2]b[3-4]c[5-6]d[7-8]",
		"n1-3", "n-1-[2-3]", "[1-3]", "[1-2][3-4]", "n1,,n2", ",n1,", " n1 n2 ", "n[1-2]\tm3",
		"n[008-1001]", "n[0-65535]", "nid[000998-001002]", "tux[2,1-2]",
	}
	r := rand.New(rand.NewPCG(22, 5))
	for range 300 {
		lists = append(lists, hostList(r))
	}
	for _, list := range lists {
		want, ok := s.expand(list)
		got, err := slurm.ExpandHosts(list)
		if !ok || err != nil || !slices.Equal(got, want) {
			t.Errorf("%q:\n got %q, %v\nwant %q, %v", list, got, err, want, ok)
		}
	}
}

// TestHostListsThatSlurmRefuses checks that ExpandHosts rejects the lists that scontrol rejects,
// including lists that only some versions of scontrol reject.
func TestHostListsThatSlurmRefuses(t *testing.T) {
	s := newScontrol(t)
	since2311 := !strings.HasPrefix(slurmVersion(t, "SLURM_CONF="+s.conf), "22.05.")
	for _, tt := range []struct {
		lists                []string
		refused, refused2311 bool // by Slurm 22.05, by 23.11 and later
	}{
		{[]string{"n[3-1]", "n[-1]", "n[]", "n[a]", "n[1-3/2]", "n[1x3]", "foo[0-1,2--5]", "n[1-70000]", "n[0-65536]", "n[1-99999999]", "foo[x-y]"}, true, true},
		// Newer versions expand these to hosts such as "n1]".
		{[]string{"n[1-2]]", "n[[1-2]]", "n[1,[2-3]]"}, true, false},
		// Older versions expand these to hosts such as "n", "foo[1", and "n]".
		{[]string{"n[1"}, false, true},
		{[]string{"n[1-]", "foo[[1,3]"}, false, false},
	} {
		for _, list := range tt.lists {
			want := tt.refused
			if since2311 {
				want = tt.refused2311
			}
			if out, ok := s.expand(list); ok == want {
				t.Errorf("scontrol expands %q to %q, %t; want %t", list, out, ok, !want)
			}
			if got, err := slurm.ExpandHosts(list); err == nil {
				t.Errorf("ExpandHosts(%q) = %q", list, got)
			}
		}
	}
}

// TestHostListsFoldAsSlurmDoes checks that FoldHosts returns the list that scontrol prints, and
// that scontrol expands it to the same names.
func TestHostListsFoldAsSlurmDoes(t *testing.T) {
	s := newScontrol(t)
	lists := [][]string{
		{"n1"}, {"n01", "n02", "n3"}, {"tux2", "tux1", "tux2"}, {"n1", "n3", "n2"}, {"n9", "n10", "n011"}, {"n09", "n10", "n11", "n100"},
		{"node0", "node3", "node4", "node8", "linux", "linux2", "linux5", "node4"},
		{"n99", "n100", "n0099", "n0100"}, {"a", "a", "b"}, {"1", "2", "3"}, {"n1-1", "n1-2", "n2-1", "n2-2"},
	}
	r := rand.New(rand.NewPCG(8, 22))
	for range 150 {
		var hosts []string
		for range 1 + r.IntN(4) {
			name, lo := names[r.IntN(len(names)-1)], []int{r.IntN(12), 95 + r.IntN(10)}[r.IntN(2)]
			width := r.IntN(5)
			for i := range 1 + r.IntN(12) {
				if r.IntN(5) > 0 {
					hosts = append(hosts, fmt.Sprintf("%s%0*d", name, width, lo+i))
				}
			}
		}
		if len(hosts) > 0 {
			lists = append(lists, hosts)
		}
	}
	for _, hosts := range lists {
		names := strings.Join(hosts, ",")
		want, ok := s.show("hostlist", names)
		got := slurm.FoldHosts(hosts)
		if !ok || got != strings.TrimSpace(want) {
			t.Errorf("%s:\n got %s\nwant %s", names, got, want)
		}
		if back, ok := s.expand(got); !ok || !slices.Equal(back, hosts) {
			t.Errorf("%s: scontrol expands %s to %q", names, got, back)
		}
	}
}

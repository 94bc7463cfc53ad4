package slurm

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// TestExpandHosts checks the names against `scontrol show hostnames` of Slurm 22.05.8; for lists
// with text after a bracket, of 25.05.3.
func TestExpandHosts(t *testing.T) {
	tests := []struct{ list, want string }{
		{"", ""},
		{"n1", "n1"},
		{"n[08-11]", "n08 n09 n10 n11"},
		{"n[8-11]", "n8 n9 n10 n11"},
		{"n[1,01,001]", "n1 n01 n001"},
		{"n[1-003]", "n1 n2 n3"},
		{"n[00-3]", "n00 n01 n02 n03"},
		{"n[10-12,1-2]", "n10 n11 n12 n1 n2"},
		{"a,b,a", "a b a"},
		{"n[1-2],n[2-3]", "n1 n2 n2 n3"},
		{"n[1-2]-[3-4]", "n1-3 n1-4 n2-3 n2-4"},
		{"n[1-2][3-4]", "n13 n14 n23 n24"},
		{"row[0,1]_rack[2-3]_blade[4,5]",
			"row0_rack2_blade4 row0_rack2_blade5 row1_rack2_blade4 row1_rack2_blade5 " +
				"row0_rack3_blade4 row0_rack3_blade5 row1_rack3_blade4 row1_rack3_blade5"},
		{"a[1-2]b[3-4]c[5-6]d[7-8]",
			"a1b3c5d7 a1b3c5d8 a2b3c5d7 a2b3c5d8 a1b4c5d7 a1b4c5d8 a2b4c5d7 a2b4c5d8 " +
				"a1b3c6d7 a1b3c6d8 a2b3c6d7 a2b3c6d8 a1b4c6d7 a1b4c6d8 a2b4c6d7 a2b4c6d8"},
		{"n1-3", "n1-3"},
		{"n-1-[2-3]", "n-1-2 n-1-3"},
		{"[1-3]", "1 2 3"},
		{"[1-2][3-4]", "13 14 23 24"},
		{"n1,,n2", "n1 n2"},
		{",n1,", "n1"},
		{" n1 n2 ", "n1 n2"},
		{"n[1-2]\tm3", "n1 n2 m3"},
		{"n1\nn2", "n1 n2"},
		{"node[0001-0003]-int", "node0001-int node0002-int node0003-int"},
		{"gpu[0-1].cluster.example.org", "gpu0.cluster.example.org gpu1.cluster.example.org"},
		{"a[1-2]b,c[3-4]", "a1b a2b c3 c4"},
		{"[00-03]p", "00p 01p 02p 03p"},
		{"azAZ09-._", "azAZ09-._"},
		{"n[999999999999999999]", "n999999999999999999"},
		{"n[0000000000000000000007]", "n0000000000000000000007"},
		{"n[3-3]", "n3"},
		{"foo[1,3]-bar", "foo1-bar foo3-bar"},
	}
	for _, tt := range tests {
		got, err := ExpandHosts(tt.list)
		if err != nil {
			t.Errorf("ExpandHosts(%q): %v", tt.list, err)
		} else if strings.Join(got, " ") != tt.want {
			t.Errorf("ExpandHosts(%q) = %q, want %q", tt.list, got, tt.want)
		}
	}
}

// TestExpandHostsBeyondWidth checks that the width grows with the numbers.
func TestExpandHostsBeyondWidth(t *testing.T) {
	got, err := ExpandHosts("n[008-1001]")
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 994 || got[0] != "n008" || got[991] != "n999" || got[992] != "n1000" || got[993] != "n1001" {
		t.Errorf("n[008-1001] has %d hosts, from %q to %q", len(got), got[0], got[len(got)-1])
	}
}

// TestExpandHostsRejectsInvalidLists checks that errors name the column.
func TestExpandHostsRejectsInvalidLists(t *testing.T) {
	tests := []struct{ list, want string }{
		{"n[1", `"n[1": column 4: missing "]"`},
		{"n[", `column 3: missing number`},
		{"n[1-", `column 5: missing number`},
		{"n[1-2]]", `column 7: invalid character "]"`},
		{"n[[1-2]]", `column 3: "[" instead of a number`},
		{"n[1,[2-3]]", `column 5: "[" instead of a number`},
		{"n]1", `column 2: invalid character "]"`},
		{"foo]", `column 4: invalid character "]"`},
		{"ok,n[3-1]", `column 6: range 3-1 is reversed`},
		{"n[-1]", `column 3: "-" instead of a number`},
		{"n[]", `column 3: "]" instead of a number`},
		{"n[a]", `column 3: "a" instead of a number`},
		{"n[1-3/2]", `column 6: "/" instead of`},
		{"n[1x3]", `column 4: "x" instead of`},
		{"foo[0-1,2--5]", `column 11: "-" instead of a number`},
		{"n[1,,2]", `column 5: "," instead of a number`},
		{"n[1,]", `column 5: "]" instead of a number`},
		{"n[+1]", `column 3: "+" instead of a number`},
		{"n[0x1]", `column 4: "x" instead of`},
		{"foo[[1,3]", `column 5: "["`},
		{"foo[x-y]", `column 5: "x"`},
		// Versions of Slurm differ in how they read these lists. None prints them.
		{"n[1-]", `column 5: "]" instead of a number`},
		{"n[1, 2]", `column 5: " " instead of a number`},
		{"n{1-2}", `column 2: invalid character "{"`},
		{"n[1-70000]", `column 3: range 1-70000 has more than 65536 hosts`},
		{"n[0-65536]", `more than 65536 hosts`},
		{"n[1-99999999]", `more than 65536 hosts`},
		{"n[1-99999999999999999999]", `column 5: number with too many digits`},
		{"n[0-999][0-999]", `column 1: more than 262144 hosts in one item`},
		{"n[0-65535],m[0-65535],o[0-65535],p[0-65535],q1", `column 45: more than 262144 hosts`},
		{strings.Repeat("x", 250) + "[1-2]" + "abcdefgh", `name of 259 bytes`},
		{"n\x00", `column 2: invalid character "\x00"`},
		{"nö", `column 2: invalid character "ö"`},
		{"n\xff", `column 2: invalid character "\xff"`},
		{strings.Repeat("x", 250) + "[1-99]" + "abcd", `name of 256 bytes`},
		{"n[" + strings.Repeat("0", 256) + "]", `column 3: number with too many digits`},
		{"n[1-1000000000000000000]", `column 5: number with too many digits`},
		{"n{", `column 2: invalid character "{"`},
		{"n`", "column 2: invalid character"},
		{"n@", "column 2: invalid character"},
		{"n/", "column 2: invalid character"},
		{"n:", "column 2: invalid character"},
		{"$(id)", `column 1: invalid character "$"`},
	}
	for _, tt := range tests {
		got, err := ExpandHosts(tt.list)
		if err == nil {
			t.Errorf("ExpandHosts(%q) = %.3q..., want an error", tt.list, got)
		} else if !strings.Contains(err.Error(), tt.want) {
			t.Errorf("ExpandHosts(%q): %q, want %q in it", tt.list, err, tt.want)
		}
	}
	for list, want := range map[string]int{
		"n[0-65535]":                                  maxRangeHosts,
		"n[0-65535,0-65535,0-65535,0-65535]":          maxHosts,
		"n[0-511][0-511]":                             maxHosts,
		"n[0-65535],m[0-65535],o[0-65535],p[0-65535]": maxHosts,
		strings.Repeat("x", 253) + "[1-99]":           99,
	} {
		if hosts, err := ExpandHosts(list); err != nil || len(hosts) != want {
			t.Errorf("ExpandHosts(%.40q): got %d hosts, %v, want %d", list, len(hosts), err, want)
		}
	}
}

// TestExpandHostsBoundedMemory checks that the memory for an invalid list is limited by a constant
// and by the length of the list, which the caller limits.
func TestExpandHostsBoundedMemory(t *testing.T) {
	const mega = 1 << 20
	for _, list := range []string{
		"n[1-99999999]",
		"n[0-65535][0-65535][0-65535]",
		"n" + strings.Repeat("[0-65535]", 100),
		"n[" + strings.Repeat("0-65535,", 1000) + "1]",
		"n[" + strings.Repeat("0", 10_000) + "1-2]",
		strings.Repeat("[", mega),
		strings.Repeat("[1]", mega/3),
		strings.Repeat("]", mega),
		strings.Repeat("[]", mega/2),
		"n[" + strings.Repeat("1,", mega/2) + "1",
		"n[" + strings.Repeat("0-65535,", mega/8) + "1]",
		"n[" + strings.Repeat("9", mega) + "]",
		strings.Repeat("a", mega),
		strings.Repeat("a,", mega/2),
		strings.Repeat("n[0-65535],", mega/11),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := ExpandHosts(list); err == nil {
			t.Errorf("ExpandHosts(%.40q...): got no error", list)
		} else if len(err.Error()) > 300 {
			t.Errorf("ExpandHosts(%.40q...): got a message of %d bytes", list, len(err.Error()))
		}
		runtime.ReadMemStats(&after)
		if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 64<<20 || len(list) < 100 && allocated > 1<<20 {
			t.Errorf("ExpandHosts(%.40q...) allocated %d KiB", list, allocated>>10)
		}
	}
}

// TestExpandHostsMemory checks that the memory is proportional to the number of names.
func TestExpandHostsMemory(t *testing.T) {
	for _, hosts := range []int{1000, 10_000, 60_000} {
		list := fmt.Sprintf("node[00001-%05d]", hosts)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got, err := ExpandHosts(list)
		runtime.ReadMemStats(&after)
		if err != nil || len(got) != hosts {
			t.Fatal(len(got), err)
		}
		if per := int(after.TotalAlloc-before.TotalAlloc) / hosts; per > 200 {
			t.Errorf("%d hosts: got %d bytes per host", hosts, per)
		}
	}
	if allocs := testing.AllocsPerRun(1, func() { _, _ = ExpandHosts("node[00001-60000]") }); allocs > 200 {
		t.Errorf("got %.0f allocations for one range", allocs)
	}
}

// TestFoldHosts checks lists against `scontrol show hostlist` of Slurm 22.05.8.
func TestFoldHosts(t *testing.T) {
	tests := []struct{ hosts, want string }{
		{"", ""},
		{"n1", "n1"},
		{"n1,n1", "n[1,1]"},
		{"n01,n02,n3", "n[01-02,3]"},
		{"tux2,tux1,tux2", "tux[2,1-2]"},
		{"node0,node3,node4,node8,linux,linux2,linux5,node4", "node[0,3-4,8],linux,linux[2,5],node4"},
		{"n9,n10,n11", "n[9-11]"},
		{"n09,n10", "n[09-10]"},
		{"n99,n100,n101", "n[99-101]"},
		{"n1-3,n1-4", "n1-[3-4]"},
		{"a1b,a2b", "a1b,a2b"},
		{"1,2,3", "[1-3]"},
		{"n1,n01,n001", "n[1,01,001]"},
		{"n08,n9,n10", "n[08,9-10]"},
		{"n1.x,n2.x", "n1.x,n2.x"},
		{"n9999999999999999998,n9999999999999999999", "n9999999999999999998,n9999999999999999999"},
		{"n999999999999999998,n999999999999999999", "n[999999999999999998-999999999999999999]"},
		{"n1,m1,n2", "n1,m1,n2"},
		{"n2,n1", "n[2,1]"},
	}
	for _, tt := range tests {
		var hosts []string
		if tt.hosts != "" {
			hosts = strings.Split(tt.hosts, ",")
		}
		if got := FoldHosts(hosts); got != tt.want {
			t.Errorf("FoldHosts(%q) = %q, want %q", hosts, got, tt.want)
		}
	}
}

// TestFoldHostsSplitsLongRanges checks that no range is longer than Slurm accepts.
func TestFoldHostsSplitsLongRanges(t *testing.T) {
	var hosts []string
	for i := range 100_000 {
		hosts = append(hosts, fmt.Sprintf("n%d", i))
	}
	folded := FoldHosts(hosts)
	if want := "n[0-65535,65536-99999]"; folded != want {
		t.Fatalf("got %.60q, want %q", folded, want)
	}
	back, err := ExpandHosts(folded)
	if err != nil || !slices.Equal(back, hosts) {
		t.Errorf("ExpandHosts(%q) does not return the same hosts: %v", folded, err)
	}
}

// TestHostAt checks that a name has the same index as in the expanded list, and that a list with many
// names is not expanded.
func TestHostAt(t *testing.T) {
	for _, list := range []string{"a,b[08-12,3],c[1-2]x[1-3]y[7-8]", "n[1-2]-[3-4]", "[1-3]", ""} {
		hosts, err := ExpandHosts(list)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range hosts {
			if got, ok := HostAt(list, i); got != want || !ok {
				t.Errorf("%s, index %d: got %q, %v, want %q", list, i, got, ok, want)
			}
		}
		if got, ok := HostAt(list, len(hosts)); ok {
			t.Errorf("%s: got %q after the last name", list, got)
		}
	}
	const list, last = "a[0-65535],b[0-65535],c[0-65535],d[0-255]e[0-255]", "d255e255"
	if got, _ := HostAt(list, maxHosts-1); got != last {
		t.Errorf("got %q, want %q", got, last)
	}
	if n := testing.AllocsPerRun(10, func() { HostAt(list, maxHosts-1) }); n > 1000 {
		t.Errorf("%g allocations for the last name", n)
	}
}

// FuzzExpandHosts checks that any list is rejected with a column or expands to a limited number of
// hosts, which can be folded again.
func FuzzExpandHosts(f *testing.F) {
	for _, list := range []string{
		"", "n[01-03,7]", "a[1-2]b[3-4]", "n[1-", "n[3-1]", "n[1-99999999]", "a,b,a", "row[0,1]_rack[2-3]_blade[4,5]",
		"n[1-2]-[3-4]", "[1-3]", "n[1, 2]", "gpu[0-1].cluster.example.org", "n1\tn2\n", "n[000-3]x[9-10]",
	} {
		f.Add(list)
	}
	f.Fuzz(func(t *testing.T, list string) {
		hosts, err := ExpandHosts(list)
		if err != nil {
			if hosts != nil || !strings.Contains(err.Error(), "column ") {
				t.Fatalf("ExpandHosts(%q): got %q, %v, want no hosts and a column", list, hosts, err)
			}
			return
		}
		if len(hosts) > maxHosts {
			t.Fatalf("got %d hosts", len(hosts))
		}
		for _, host := range hosts {
			if host == "" || len(host) > maxHostBytes || strings.Trim(host, hostLetters) != "" {
				t.Fatalf("ExpandHosts(%q): got name %q", list, host)
			}
		}
		for _, i := range []int{-1, 0, 1, len(hosts) / 3, len(hosts) - 1, len(hosts)} {
			host, ok := HostAt(list, i)
			if inside := i >= 0 && i < len(hosts); ok != inside || inside && host != hosts[i] {
				t.Fatalf("HostAt(%q, %d): got %q, %v", list, i, host, ok)
			}
		}
		folded := FoldHosts(hosts)
		back, err := ExpandHosts(folded)
		if err != nil || !slices.Equal(back, hosts) {
			t.Fatalf("FoldHosts(%q) = %q, which expands to %q, %v", hosts, folded, back, err)
		}
	})
}

const hostLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._"

// BenchmarkExpandHosts measures the expansion of a list of 100,000 hosts.
func BenchmarkExpandHosts(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		hosts, err := ExpandHosts("node[00001-50000],gpu[0-99]-[0-499]")
		if err != nil || len(hosts) != 100_000 {
			b.Fatal(len(hosts), err)
		}
	}
}

// BenchmarkFoldHosts measures the folding of 100,000 hosts.
func BenchmarkFoldHosts(b *testing.B) {
	hosts, err := ExpandHosts("node[00001-50000],gpu[0-99]-[0-499]")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		FoldHosts(hosts)
	}
}

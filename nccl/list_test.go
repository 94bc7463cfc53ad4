package nccl

import (
	"strings"
	"testing"
)

// TestListAllows checks which interface names a list of NCCL allows: prefixes, exact names,
// exclusions, and at most 16 entries.
func TestListAllows(t *testing.T) {
	tests := []struct {
		value string
		yes   []string
		no    []string
	}{
		{"eth", []string{"eth", "eth0", "eth10"}, []string{"veth0", "lo"}},
		{"eth1", []string{"eth1", "eth10"}, []string{"eth0"}},
		{"=eth1", []string{"eth1"}, []string{"eth10", "eth"}},
		{"=eth1,ib0", []string{"eth1", "ib0"}, []string{"ib01"}},
		{"^docker,lo", []string{"eth0"}, []string{"docker0", "lo", "lo1"}},
		{"^=docker0", []string{"docker01", "lo"}, []string{"docker0"}},
		{"=^eth0", []string{"^eth0"}, []string{"eth0", "lo"}}, // "^" is first or part of a name
		{"eth0:1,ib0:2", []string{"eth0", "ib0"}, []string{"lo"}},
		{"eth0,,ib0,", []string{"eth0", "ib0"}, []string{"lo"}},
		{"==", nil, []string{"eth0"}},
		{",,", []string{"eth0"}, nil},
		{"^,", nil, []string{"eth0"}},
		{"a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,eth0", []string{"p"}, []string{"qth0", "zeth0"}},
		{"=a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q", []string{"p"}, []string{"q"}},
	}
	for _, tt := range tests {
		for _, name := range tt.yes {
			if !parseList(tt.value, maxInterfaces).allows(name, anyPort) {
				t.Errorf("%q does not allow %q", tt.value, name)
			}
		}
		for _, name := range tt.no {
			if parseList(tt.value, maxInterfaces).allows(name, anyPort) {
				t.Errorf("%q allows %q", tt.value, name)
			}
		}
	}
}

// TestListPorts checks which ports of an adapter a list of NCCL allows.
func TestListPorts(t *testing.T) {
	tests := []struct {
		value, device string
		port          int
		want          bool
	}{
		{"=mlx5_1:1", "mlx5_1", 1, true},
		{"=mlx5_1:1", "mlx5_10", 1, false},
		{"mlx5_1", "mlx5_10", 1, true}, // the prefix also matches a longer name
		{"=mlx5_1:1", "mlx5_1", 2, false},
		{"=mlx5_1", "mlx5_1", 2, true},
		{"=mlx5_1:10", "mlx5_1", 10, true},
		{"=mlx5_1:10", "mlx5_1", 1, false},
		{"=mlx5_1:9", "mlx5_1", 9, true},
		{"=mlx5_1:+1", "mlx5_1", 1, true},
		{"=mlx5_1:-1", "mlx5_1", 2, true}, // any port
		{"=mlx5_1:x", "mlx5_1", 1, false},
		{"=mlx5_1:2:0:1", "mlx5_1", 2, true}, // rail and plane, since NCCL 2.30
		{"^=mlx5_1:1", "mlx5_1", 1, false},
		{"^=mlx5_1:1", "mlx5_1", 2, true},
		{"^mlx5_bond", "mlx5_bond_0", 1, false},
		{"", "mlx5_0", 1, true},
		{"^", "mlx5_0", 1, false},
		{":1", "mlx5_0", 2, true}, // no name: ignored
	}
	for _, tt := range tests {
		if got := parseList(tt.value, maxPorts).allows(tt.device, tt.port); got != tt.want {
			t.Errorf("%q allows %s:%d: %v, want %v", tt.value, tt.device, tt.port, got, tt.want)
		}
	}
}

// FuzzList compares parseList with a close translation of the C loop in NCCL's parseStringList.
func FuzzList(f *testing.F) {
	for _, seed := range []string{"", "^", "=", "^=", "=^a", "a:1,b:2", ",,a,", ":1,a", "a:1:2,b", "^=mlx5_1:+1", "a: 7x", "a:-1", strings.Repeat("a,", 40)} {
		f.Add(seed, "mlx5_1")
		f.Add(seed, "a")
	}
	f.Fuzz(func(t *testing.T, value, name string) {
		if strings.ContainsRune(value, 0) || len(value) > 4000 {
			return // not a C string
		}
		l := parseList(value, maxPorts)
		want := parseStringList(strings.TrimPrefix(strings.TrimPrefix(value, "^"), "="), maxPorts)
		if len(l.items) != len(want) {
			t.Fatalf("%q has %d items, want %d", value, len(l.items), len(want))
		}
		for i := range want {
			if l.items[i] != want[i] {
				t.Fatalf("%q: item %d is %v, want %v", value, i, l.items[i], want[i])
			}
		}
		inverse := parseList("^"+strings.TrimPrefix(value, "^"), maxPorts)
		if name != "" && !l.not && inverse.allows(name, 1) == l.allows(name, 1) {
			t.Fatalf("%q and its inverse both say %v of %q", value, l.allows(name, 1), name)
		}
	})
}

func parseStringList(text string, most int) []item {
	var items []item
	text += "\x00"
	name := ""
	for i := 0; ; {
		c := text[i]
		switch {
		case c == ':':
			if name != "" {
				items = append(items, item{name, atoi(text[i+1 : len(text)-1])})
				name = ""
			}
			for c != ',' && c != 0 {
				i++
				c = text[i]
			}
		case c == ',' || c == 0:
			if name != "" {
				items = append(items, item{name, anyPort})
				name = ""
			}
		default:
			name += string(text[i : i+1])
		}
		i++
		if len(items) == most || c == 0 {
			return items
		}
	}
}

// TestParseVersion checks NCCL's version codes for texts of versions, and that invalid or
// unsupported versions are rejected.
func TestParseVersion(t *testing.T) {
	tests := []struct {
		text string
		want int // 0 is an error
	}{
		{"2.21.5", 22105}, {"2.20.5", 22005}, {"2.21", 22100}, {"2.21.5-1+cuda12.4", 22105}, {"2.30.7", 23007},
		{"2.8.3", 0}, {"2", 0}, {"", 0}, {"2.x.1", 0}, {"2.21.5.1", 0}, {"2.300.1", 0}, {"-2.21.5", 0}, {"2.+1.0", 0}, {"2. 21.5", 0},
	}
	for _, tt := range tests {
		got, err := ParseVersion(tt.text)
		if got != tt.want || (err != nil) != (tt.want == 0) {
			t.Errorf("%q is %d, %v, want %d", tt.text, got, err, tt.want)
		}
	}
}

// FuzzParseVersion checks that any accepted version has the same code after it is formatted and
// parsed again.
func FuzzParseVersion(f *testing.F) {
	for _, seed := range []string{"2.21.5", "2.21", "2.8.3", "", "2.21.5-1+cuda12.4", "99.99.99", "2..1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := ParseVersion(text)
		if err != nil {
			return
		}
		if again, err := ParseVersion(versionText(n)); err != nil || again != n {
			t.Fatalf("%q is %d, and %q is %d, %v", text, n, versionText(n), again, err)
		}
	})
}

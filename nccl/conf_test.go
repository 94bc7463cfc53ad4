package nccl

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestParseConf checks the rules of NCCL's parser for nccl.conf, which differ from common formats:
// white space is significant, and a NUL ends a line.
func TestParseConf(t *testing.T) {
	long := strings.Repeat("x", maxText)
	tests := []struct {
		name, text string
		want       []Setting
	}{
		{"empty", "", nil},
		{"comments and others", "# a=b\n\nNCCL_DEBUG\n =x\nA=1", []Setting{{" ", "x", "f", 4}, {"A", "1", "f", 5}}},
		{"nothing is trimmed", " A = 1 \r\n", []Setting{{" A ", " 1 \r", "f", 1}}},
		{"a comment begins the line", " #A=1\nB=1 # two\n", []Setting{{" #A", "1", "f", 1}, {"B", "1 # two", "f", 2}}},
		{"the first = counts", "NCCL_SOCKET_IFNAME==hsn0\n", []Setting{{"NCCL_SOCKET_IFNAME", "=hsn0", "f", 1}}},
		{"empty value", "A=\n", []Setting{{"A", "", "f", 1}}},
		{"no name", "=1\n", nil},
		{"both settings of one variable", "A=1\nA=2\n", []Setting{{"A", "1", "f", 1}, {"A", "2", "f", 2}}},
		{"a NUL ends the line", "A=1\x002\nB\x00=1\nC=3\n", []Setting{{"A", "1", "f", 1}, {"C", "3", "f", 3}}},
		{"too long", long + "y=" + long + "y", []Setting{{long, long, "f", 1}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := parseConf("f", []byte(tt.text)); !slices.Equal(got, tt.want) {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// FuzzParseConf compares parseConf with a close translation of the C loop in NCCL's setEnvFile.
func FuzzParseConf(f *testing.F) {
	for _, seed := range []string{"", "A=1\nB=2", "#A=1\n", "A==\n=\n", "A\x00=\n\n", "\n=\nA=\r\n", strings.Repeat("a", 2000) + "=" + strings.Repeat("b", 2000)} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got := parseConf("f", text)
		want := setEnvFile(text)
		if len(got) != len(want) {
			t.Fatalf("%d settings, want %d", len(got), len(want))
		}
		for i, s := range got {
			if [2]string{s.Name, s.Value} != want[i] {
				t.Fatalf("setting %d is %q=%q, want %q", i, s.Name, s.Value, want[i])
			}
			if i > 0 && s.Line <= got[i-1].Line {
				t.Fatalf("line %d after line %d", s.Line, got[i-1].Line)
			}
		}
	})
}

func setEnvFile(text []byte) [][2]string {
	var set [][2]string
	for len(text) > 0 {
		end := 0 // getline
		for end < len(text) && text[end] != '\n' {
			end++
		}
		line := append(slices.Clone(text[:end]), 0)
		text = text[min(end+1, len(text)):]
		if line[0] == '#' {
			continue
		}
		s := 0
		for line[s] != 0 && line[s] != '=' {
			s++
		}
		if line[s] == 0 || s == 0 { // setenv rejects an empty name
			continue
		}
		name := string(line[:min(1023, s)])
		value := ""
		for i := s + 1; line[i] != 0 && len(value) < 1023; i++ {
			value += string(line[i : i+1])
		}
		set = append(set, [2]string{name, value})
	}
	return set
}

// TestReadConf checks which files NCCL reads, in which order, and that a file that cannot be read
// is an error. The other files are still returned.
func TestReadConf(t *testing.T) {
	root := t.TempDir()
	write := func(file, text string) {
		t.Helper()
		file = filepath.Join(root, file)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	home := map[string]string{"HOME": "/home/ada"}
	check := func(env map[string]string, want []Setting, failure string) {
		t.Helper()
		got, err := ReadConf(root, lookupIn(env))
		if !slices.Equal(got, want) {
			t.Errorf("%v: got %+v, want %+v", env, got, want)
		}
		if (err != nil) != (failure != "") || err != nil && !strings.Contains(err.Error(), failure) {
			t.Errorf("%v: error %v, want %q", env, err, failure)
		}
	}
	check(home, nil, "")
	write("etc/nccl.conf", "A=etc\n")
	etc := Setting{"A", "etc", "/etc/nccl.conf", 1}
	check(home, []Setting{etc}, "")
	check(nil, []Setting{etc}, "")
	write("home/ada/.nccl.conf", "\nA=home\n")
	check(home, []Setting{{"A", "home", "/home/ada/.nccl.conf", 2}, etc}, "")
	write("job/nccl.conf", "A=job\n")
	env := map[string]string{"HOME": "/home/ada", "NCCL_CONF_FILE": "/job/nccl.conf"}
	check(env, []Setting{{"A", "job", "/job/nccl.conf", 1}, etc}, "")
	env["NCCL_CONF_FILE"] = ""
	check(env, []Setting{{"A", "home", "/home/ada/.nccl.conf", 2}, etc}, "")
	env["NCCL_CONF_FILE"] = "/job/none"
	check(env, []Setting{etc}, "read NCCL's settings: open "+root+"/job/none: no such file")
	env["NCCL_CONF_FILE"] = "/job"
	check(env, []Setting{etc}, "is a directory")
	write("job/limit", strings.Repeat("#", maxConf))
	env["NCCL_CONF_FILE"] = "/job/limit"
	check(env, []Setting{etc}, "")
	write("job/large", strings.Repeat("#", maxConf+1))
	env["NCCL_CONF_FILE"] = "/job/large"
	check(env, []Setting{etc}, "is larger than")
}

package templates

import (
	"slices"
	"strings"
	"testing"
)

// hostile are values that some reader of a script could interpret instead of using literally.
var hostile = []string{
	"a b", " lead", "trail ", "#", "lr#3", "a # b", `'`, `"`, `\`, `\\`, `\"`, `\'`, `it's`, `"quoted"`, `back\slash`, `end\`,
	"$(touch pwned)", "`touch pwned`", "$HOME", "${x}", "!!", "~", "*", "?", "[a]", "{a,b}", "a;b", "a&b", "a|b", "a>b", "<a", "(a)",
	"--uid=0", "-x", "a --partition=b", ":", "a:b", "=", "%j", "%%", "100%", "%", "hetjob", "a hetjob b", "HetJob", "packjob", "PACKJOB",
	"hethetjobjob", `het\job`, "x\\'\" touch pwned #", "#SBATCH --wrap=id", "ü", "日本", "\u00a0", "\u3000", "🙂", strings.Repeat("x", 3000),
}

// refused are values with characters that no value may contain.
var refused = []string{
	"a\nb", "\n", "a\r", "a\tb", "a\x00", "a\x1b[31m", "a\x7f", "a\u0085", "a\u2028b", "a\u2029b", "\xff", "a\xc3", "x\\'\"\ntouch pwned #",
}

// TestSbatchArgs checks the parser of this test against the behavior of the real sbatch.
func TestSbatchArgs(t *testing.T) {
	tests := []struct {
		line string
		want []string
		err  string
	}{
		{`#SBATCH --job-name=x --qos=y`, []string{"--job-name=x", "--qos=y"}, ""},
		{`#SBATCH --job-name=lr#3`, []string{"--job-name=lr"}, ""},
		{`#SBATCH --job-name="lr#3"`, []string{"--job-name=lr#3"}, ""},
		{`#SBATCH --comment='back\slash'`, []string{"--comment=backslash"}, ""},
		{`#SBATCH --job-name="a#b \\ \" ' $x %j"`, []string{`--job-name=a#b \ " ' $x %j`}, ""},
		{`#SBATCH "--job-name=whole quoted"`, []string{"--job-name=whole quoted"}, ""},
		{`#SBATCH --job-name="het\job"`, []string{"--job-name=hetjob"}, ""},
		{`#SBATCH --job-name=a"b`, nil, "unmatched"},
		{`#SBATCH : --job-name=a`, nil, "unexpected `:`"},
		{`#SBATCH hetjob`, nil, "another component"},
		{`# a comment`, nil, ""},
		{``, nil, ""},
	}
	for _, tt := range tests {
		got, err := sbatchArgs("#!/bin/sh\n" + tt.line + "\n#SBATCH --last\ntrue\n#SBATCH --never\n")
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: error %v, want %q", tt.line, err, tt.err)
		} else if want := append(tt.want, "--last"); err == nil && !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", tt.line, got, want)
		}
	}
}

// TestQuoteDirective checks that sbatch reads a quoted value unchanged.
func TestQuoteDirective(t *testing.T) {
	for _, tt := range []struct{ value, want string }{
		{"fashion-mlp", "fashion-mlp"},
		{"02:00:00", "02:00:00"},
		{"azAZ09", "azAZ09"},
		{"a,b", "a,b"},
		{"job", `"job"`},
		{"", `""`},
		{`say "hi" \o/`, `"say \"hi\" \\o/"`},
		{"my hetjob", `"my het\job"`},
	} {
		if got, err := quoteDirective(tt.value); err != nil || got != tt.want {
			t.Errorf("%q is written %s, want %s (%v)", tt.value, got, tt.want, err)
		}
	}
	for _, value := range hostile {
		quoted, err := quoteDirective(value)
		if err != nil {
			t.Errorf("%q: %v", value, err)
			continue
		}
		got, err := sbatchArgs("#!/bin/sh\n#SBATCH --comment=" + quoted + " --last\n")
		if want := []string{"--comment=" + value, "--last"}; err != nil || !slices.Equal(got, want) {
			t.Errorf("%q is written %s and read as %q (%v)", value, quoted, got, err)
		}
	}
}

// TestQuoteRefuses checks that values that cannot be quoted are rejected.
func TestQuoteRefuses(t *testing.T) {
	for _, value := range refused {
		if got, err := quoteDirective(value); err == nil {
			t.Errorf("%q is written %s on an #SBATCH line", value, got)
		}
		if got, err := quoteShell(value); err == nil {
			t.Errorf("%q is written %s in the shell", value, got)
		}
	}
}

// TestQuoteOutput checks that percent signs in a directory are not expanded by Slurm.
func TestQuoteOutput(t *testing.T) {
	for _, dir := range []string{"/runs/a", "/runs/100%", "/runs/%j", "/runs/%%x", "/runs/%"} {
		pattern, err := quoteOutput(dir)
		if got := expandOutput(pattern + "/slurm-%j.out"); err != nil || got != dir+"/slurm-42.out" {
			t.Errorf("%s is written %s and becomes %s (%v)", dir, pattern, got, err)
		}
	}
	if got, err := quoteOutput(`/runs/a\b`); err == nil {
		t.Errorf("a backslash is written %s", got)
	}
}

package jobs

import (
	"strings"
	"testing"
)

// TestPatternsAreNotCompiled checks that the check of a file does not compile its regular expressions. A file of
// 1 MiB with short expressions for long programs took minutes.
func TestPatternsAreNotCompiled(t *testing.T) {
	const pattern = `(?P<step>a){1,1000}`
	list := strings.TrimSuffix(strings.Repeat("'"+pattern+"', ", 20), ", ")
	for name, text := range map[string]string{
		"progress":  "[command.progress]\npatterns = [" + list + "]\n",
		"watch":     "[command.watch]\nsilence = \"1h\"\npause_patterns = [" + list + "]\n",
		"component": strings.Repeat("[[component]]\nname = \"NAME\"\nargv = [\"true\"]\nready = \"log\"\nready_pattern = '"+pattern+"'\n", 20),
	} {
		for i := range 20 {
			text = strings.Replace(text, "NAME", "c"+strings.Repeat("x", i), 1)
		}
		src := []byte("name = \"x\"\n[command]\nargv = [\"true\"]\n" + text)
		n := testing.AllocsPerRun(1, func() {
			if _, err := Parse("job.toml", src); err != nil {
				t.Error(err)
			}
		})
		if n > 20_000 {
			t.Errorf("%s: %g allocations", name, n)
		}
	}
}

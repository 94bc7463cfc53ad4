package screen_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs/watch/screen"
	"github.com/ddpbatch/ddpbatch/tests/terminal"
)

func lookup(term string) func(string) (string, bool) {
	return func(name string) (string, bool) { return term, name == "TERM" }
}

// TestIs checks that only terminals with cursor movement are used as a screen.
func TestIs(t *testing.T) {
	x := terminal.New(t, 80, 24)
	file, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, tt := range []struct {
		f    *os.File
		term string
		want bool
	}{{x.TTY, "xterm", true}, {x.TTY, "dumb", false}, {x.TTY, "", false}, {file, "xterm", false}} {
		if got := screen.Is(tt.f, lookup(tt.term)); got != tt.want {
			t.Errorf("%s with TERM=%q: %v", tt.f.Name(), tt.term, got)
		}
	}
}

// TestBottom checks that output above stays complete and in order while the lines below change
// and disappear.
func TestBottom(t *testing.T) {
	x := terminal.New(t, 20, 6)
	fmt.Fprint(x.TTY, "$ ddpbatch\n")
	b := screen.NewBottom(x.TTY)
	if w := b.Width(); w != 19 {
		t.Errorf("width %d", w)
	}
	b.Show([]string{"\x1b[32m####\x1b[0m 10%", "n1 training"})
	x.Await("$ ddpbatch\n#### 10%\nn1 training")
	fmt.Fprint(b, "one\ntw")
	x.Await("$ ddpbatch\none\ntw\n#### 10%\nn1 training") // incomplete lines are displayed as well
	fmt.Fprint(b, "o\n")
	b.Show([]string{"20%"}) // fewer lines than before
	x.Await("$ ddpbatch\none\ntwo\n20%")
	if got := x.Screen(); got != "$ ddpbatch\none\ntwo\n20%" {
		t.Errorf("the screen is\n%s", got)
	}
	// More lines than the screen has, including lines that wrap.
	var want []string
	for i := range 30 {
		line := fmt.Sprintf("line %d.%s", i, strings.Repeat("x", i))
		want = append(want, line)
		fmt.Fprintln(b, line)
		b.Show([]string{fmt.Sprintf("%d%%", i), "n1"})
	}
	x.Await("29%\nn1")
	fmt.Fprint(b, "no end")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(x.TTY, "$ \n$")
	x.Await("no end\n$\n$")
	all := strings.ReplaceAll(x.All(), "\n", "")
	if whole := "$ ddpbatchonetwo" + strings.Join(want, "") + "no end$$"; all != whole {
		t.Errorf("printed was\n%s\nwant\n%s", all, whole)
	}
	// Lines must not be cleared before they are drawn, because that would flicker.
	if strings.Contains(x.Raw(), "\x1b[2J") || strings.Contains(x.Raw(), "\r\x1b[K") {
		t.Error("a line was cleared and then drawn")
	}
}

// TestBottomResized checks that after a resize lines are drawn for the new width, and old
// lines disappear.
func TestBottomResized(t *testing.T) {
	x := terminal.New(t, 40, 8)
	b := screen.NewBottom(x.TTY)
	b.Show([]string{strings.Repeat("a", b.Width())})
	x.Await("aaaa")
	x.Resize(60, 8)
	b.Show([]string{strings.Repeat("b", b.Width()), "c"})
	x.Await("c")
	if want := strings.Repeat("b", 59) + "\nc"; x.Screen() != want {
		t.Errorf("the screen is\n%s", x.Screen())
	}
	b.Close()
	fmt.Fprint(x.TTY, "end")
	x.Await("end")
	if x.Screen() != "end" {
		t.Errorf("the screen is\n%s", x.Screen())
	}
}

// TestBottomNarrowed checks that a terminal that becomes narrower keeps all output above the
// lines.
func TestBottomNarrowed(t *testing.T) {
	x := terminal.New(t, 80, 8)
	b := screen.NewBottom(x.TTY)
	fmt.Fprintln(b, "printed")
	b.Show([]string{strings.Repeat("a", b.Width()), strings.Repeat("b", b.Width())})
	x.Await("bbb")
	x.Resize(20, 8)
	b.Show([]string{"c", "d"})
	x.Await("c\nd")
	if x.Screen() != "printed\nc\nd" {
		t.Errorf("the screen is\n%s", x.Screen())
	}
	b.Close()
}

// TestPage checks that a page takes over the screen and restores it, and that keys do not need
// Return.
func TestPage(t *testing.T) {
	x := terminal.New(t, 30, 5)
	fmt.Fprint(x.TTY, "before")
	x.Await("before")
	p, err := screen.OpenPage(x.TTY, x.TTY)
	if err != nil {
		t.Fatal(err)
	}
	if w, h := p.Size(); w != 29 || h != 5 {
		t.Errorf("size %d x %d", w, h)
	}
	p.Show([]string{"one", "two", "three", "four", "five", "six"})
	x.Await("five")
	p.Show([]string{"1"})
	x.Await("1")
	if got := x.Screen(); got != "1" {
		t.Errorf("the page is\n%s", got)
	}
	x.Type("q")
	if key := <-p.Keys; key != 'q' {
		t.Errorf("key %q", key)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	x.Await("before")
	if strings.Contains(x.Raw(), "q") {
		t.Error("the key is shown")
	}
}

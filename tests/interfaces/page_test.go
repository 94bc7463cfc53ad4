package interfaces

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/netif"
)

var update = flag.Bool("update", false, "rewrite golden files")

const page = "../../docs/network.md"

// A system is a column of the comparison.
type system struct {
	name string
	pick func(Pair) Pick
}

var systems = []system{
	{"NCCL to 2.27", NCCL227},
	{"NCCL from 2.28", NCCL228},
	{"Gloo", Gloo(InDNS)},
	{"UCX", UCX},
	{"Open MPI", OpenMPI},
	{"Horovod", Horovod},
	{"Ray", Ray},
	{"ddpbatch", Agreed},
}

// TestPage checks that docs/network.md shows the results of the models and of netif.
func TestPage(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	cases := load(t)
	want := string(text)
	for name, body := range map[string]string{
		"explanation": explanation(t),
		"comparison":  table(cases) + "\n" + summary(cases) + "\n" + reasons(cases),
	} {
		if want, err = replaceBlock(want, name, body); err != nil {
			t.Fatal(err)
		}
	}
	if want == string(text) {
		return
	}
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("%s is not what the models give; go test ./tests/interfaces -update rewrites it. First difference: %s",
		page, firstDifference(string(text), want))
}

// replaceBlock replaces the text between the markers of a block with body.
func replaceBlock(text, name, body string) (string, error) {
	begin, end := "<!-- generated: "+name+" -->\n", "<!-- end: "+name+" -->\n"
	before, rest, found := strings.Cut(text, begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return "", fmt.Errorf("%s has no block %q: want the lines %q and %q", page, name, begin, end)
	}
	return before + begin + body + end + after, nil
}

func firstDifference(have, want string) string {
	a, b := strings.Split(have, "\n"), strings.Split(want, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("line %d\nhave %s\nwant %s", i+1, a[i], b[i])
		}
	}
	return fmt.Sprintf("line %d", min(len(a), len(b))+1)
}

// explanation returns the output of ddpbatch netif --explain for one collected host.
func explanation(t *testing.T) string {
	c := find(t, "04-two-nics-same-subnet")
	choice, err := netif.Choose(c.pair.Here, c.Peers, netif.Request{})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := choice.Explain(&out); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("```\n$ ddpbatch netif --explain --peer %s\n%s```\n", c.Peers[0], out.String())
}

func table(cases []*collected) string {
	var out strings.Builder
	out.WriteString("| Host | Expected |")
	for _, s := range systems {
		fmt.Fprintf(&out, " %s |", s.name)
	}
	out.WriteString("\n|---|---|" + strings.Repeat("---|", len(systems)) + "\n")
	for _, c := range cases {
		right := c.right.Link
		if isLoopback(linkNamed(c.pair.Here, right)) {
			right += " " + c.right.Addr.Addr().String()
		}
		fmt.Fprintf(&out, "| %s %s | `%s` |", c.ID[:2], shapes[c.ID], right)
		for _, s := range systems {
			switch v := c.pair.Evaluate(s.pick(c.pair), c.right); v.Outcome {
			case Right:
				out.WriteString(" right |")
			case Fails:
				fmt.Fprintf(&out, " **fails:** %s |", v.Link)
			default:
				fmt.Fprintf(&out, " %s: %s |", v.Outcome, v.Link)
			}
		}
		out.WriteString("\n")
	}
	return out.String()
}

func summary(cases []*collected) string {
	var out strings.Builder
	fmt.Fprintf(&out, "Summary of the %d hosts:\n\n| System | right | works | risk | fails |\n|---|---|---|---|---|\n", len(cases))
	row := func(name string, pick func(Pair) Pick) {
		n := count(cases, pick)
		fmt.Fprintf(&out, "| %s | %d | %d | %d | %d |\n", name, n[Right], n[Works], n[Risk], n[Fails])
	}
	for _, s := range systems {
		row(s.name, s.pick)
		switch s.name {
		case "ddpbatch":
			row("ddpbatch, given the other host's address", WithPeer)
		case "Gloo":
			row("Gloo, host name at 127.0.1.1", Gloo(InHosts))
		}
	}
	return out.String()
}

func count(cases []*collected, pick func(Pair) Pick) map[Outcome]int {
	n := map[Outcome]int{}
	for _, c := range cases {
		n[c.pair.Evaluate(pick(c.pair), c.right).Outcome]++
	}
	return n
}

var reports = regexp.MustCompile(`[\w-]+/[\w.-]+#\d+`)

// reasons lists for each host why a system is not right. It groups systems with the same reason.
func reasons(cases []*collected) string {
	var out strings.Builder
	for _, c := range cases {
		var order []string
		who := map[string][]string{}
		for _, s := range systems {
			pick := s.pick(c.pair)
			v := c.pair.Evaluate(pick, c.right)
			var why string
			switch {
			case v.Outcome != Right:
				why = fmt.Sprintf("%s: %s", v.Outcome, v.Why)
			case s.name == "ddpbatch" && len(pick.Warnings) > 0:
				why = "right, with a warning: " + strings.Join(pick.Warnings, "; ")
			default:
				continue
			}
			if who[why] == nil {
				order = append(order, why)
			}
			who[why] = append(who[why], s.name)
		}
		if len(order) == 0 {
			continue
		}
		fmt.Fprintf(&out, "**%s %s**", c.ID[:2], shapes[c.ID])
		if found := reports.FindAllString(c.Source, -1); len(found) > 0 {
			fmt.Fprintf(&out, " (%s)", strings.Join(found, ", "))
		}
		out.WriteString("\n")
		for _, why := range order {
			fmt.Fprintf(&out, "- %s: %s\n", strings.Join(who[why], ", "), why)
		}
		out.WriteString("\n")
	}
	return out.String()
}

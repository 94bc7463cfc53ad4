package jobs

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

// TestComponentDefaults checks the defaults of the keys of a component, and the keys that a job sets.
func TestComponentDefaults(t *testing.T) {
	job := load(t, "testdata/good/components.toml")
	server, worker, cache := &job.Components[0], &job.Components[1], &job.Components[2]
	if server.Ready != ReadyTCP || worker.Ready != ReadyLog || cache.Ready != ReadyFile {
		t.Errorf("ready: got %q, %q, %q", server.Ready, worker.Ready, cache.Ready)
	}
	if time.Duration(server.ReadyTimeout) != 10*time.Minute || time.Duration(worker.ReadyTimeout) != 5*time.Minute {
		t.Errorf("ready_timeout: got %v, %v", server.ReadyTimeout, worker.ReadyTimeout)
	}
	if time.Duration(server.StopGrace) != 30*time.Second || time.Duration(cache.StopGrace) != 10*time.Second {
		t.Errorf("stop_grace: got %v, %v", server.StopGrace, cache.StopGrace)
	}
	if server.Restart != 3 || worker.Restart != 0 || server.Optional || !cache.Optional {
		t.Errorf("got %+v", job.Components)
	}
}

// TestManyComponents checks the limit of the number of components.
func TestManyComponents(t *testing.T) {
	src := "name = \"x\"\n[command]\nargv = [\"true\"]\n"
	for i := range maxComponents + 1 {
		if _, err := Parse("job.toml", []byte(src)); err != nil {
			t.Fatalf("%d components: %v", i, err)
		}
		src += fmt.Sprintf("[[component]]\nname = \"c%d\"\nargv = [\"true\"]\n", i)
	}
	if _, err := Parse("job.toml", []byte(src)); err == nil || !strings.Contains(err.Error(), "has 101 components") {
		t.Errorf("got %v", err)
	}
}

// TestStoppedGrace checks the time of components after a stop request.
func TestStoppedGrace(t *testing.T) {
	for before, want := range map[time.Duration]time.Duration{0: defaultStopGrace, 4 * time.Second: time.Second, 4 * time.Minute: time.Minute} {
		job := &Job{Slurm: Slurm{SignalBeforeEnd: Duration(before)}}
		if got := job.StoppedGrace(); got != want {
			t.Errorf("signal_before_end = %s: got %s, want %s", before, got, want)
		}
	}
}

// TestComponentRunsOn checks the nodes of a component, also in a run with fewer nodes than the job.
func TestComponentRunsOn(t *testing.T) {
	for _, tt := range []struct {
		name      string
		component Component
		nodes     int
		want      []int
	}{
		{"first node", Component{}, 3, []int{0}},
		{"third node", Component{Node: 2}, 4, []int{2}},
		{"fewer nodes", Component{Node: 2}, 2, []int{1}},
		{"one node", Component{Node: 2}, 1, []int{0}},
		{"every node", Component{EveryNode: true}, 3, []int{0, 1, 2}},
	} {
		var got []int
		for node := range tt.nodes {
			if tt.component.RunsOn(node, tt.nodes) {
				got = append(got, node)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestComponentExpandArgv checks the placeholders of a component. The argv of [command] has the
// addresses of components, but not the placeholders of a component itself.
func TestComponentExpandArgv(t *testing.T) {
	values := map[string]string{"port": "123", "host": "::1", "address": "[::1]:123", "ready_file": "/runs/a b/x", "component.ray-head.address": "[::2]:7"}
	for _, tt := range []struct {
		name                 string
		argv                 []string
		component, command   string // words, separated by |
		componentErr, cmdErr string
	}{
		{"words", []string{"x", "{host}", "--port={port}"}, "x|::1|--port=123", "x|{host}|--port={port}", "", ""},
		{"file and address", []string{"{ready_file}", "{address}"}, "/runs/a b/x|[::1]:123", "{ready_file}|{address}", "", ""},
		{"other component", []string{"{component.ray-head.address}", "{component.ray-head.port}"}, "[::2]:7|{component.ray-head.port}", "[::2]:7|{component.ray-head.port}", "", ""},
		{"escaped", []string{"{{port}}", "{{component.ray-head.address}}", "${port}"}, "{port}|{component.ray-head.address}|${port}", "{{port}}|{component.ray-head.address}|${port}", "", ""},
		{"code", []string{"sh", "-c", "x {port}"}, "sh|-c|x 123", "sh|-c|x {port}", "", ""},
		{"path in code", []string{"sh", "-c", "x {ready_file}"}, "", "sh|-c|x {ready_file}", `component "server": argv[2]: {ready_file} is`, ""},
		{"address in code", []string{"sh", "-c", "x {component.ray-head.address}"}, "", "", "{component.ray-head.address} is", "command.argv[2]: {component.ray-head.address} is"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := Component{Name: "server"}
			for _, word := range tt.argv {
				c.Argv = append(c.Argv, Text(word))
			}
			check := func(got []string, err error, want, wantErr string) {
				t.Helper()
				if wantErr != "" {
					if err == nil || !strings.Contains(err.Error(), wantErr) {
						t.Errorf("got error %v, want %q", err, wantErr)
					}
				} else if text := strings.Join(got, "|"); err != nil || text != want {
					t.Errorf("got %q, %v, want %q", text, err, want)
				}
			}
			got, err := c.ExpandArgv(values)
			check(got, err, tt.component, tt.componentErr)
			got, err = ExpandArgv(tt.argv, values)
			check(got, err, tt.command, tt.cmdErr)
		})
	}
}

// TestWarningsAboutStopGrace checks the warnings about a stop_grace that a component does not get.
func TestWarningsAboutStopGrace(t *testing.T) {
	for _, tt := range []struct{ name, slurm, grace, want string }{
		{"default", "signal_before_end = \"8s\"", "10s", ""},
		{"fits", "time = \"01:00:00\"\nsignal_before_end = \"4m\"", "60s", ""},
		{"longer than after a stop", "time = \"01:00:00\"\nsignal_before_end = \"4m\"", "61s", "component[0].stop_grace: after a stop request, the component has only 1m0s"},
		{"no signal", "time = \"01:00:00\"\nsignal_before_end = \"0s\"", "61s", ""},
		{"shorter than the job", "time = \"00:10:00\"", "599s", ""},
		{"as long as the job", "time = \"00:10:00\"", "10m", "component[0].stop_grace: 10m0s is not less than the time limit, 10m0s"},
		{"longer than the job", "time = \"00:10:00\"", "30m", "component[0].stop_grace: 30m0s is not less than the time limit, 10m0s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			job, err := Parse("job.toml", []byte("name = \"x\"\n[slurm]\n"+tt.slurm+"\n[command]\nargv = [\"true\"]\n[[component]]\nname = \"s\"\nargv = [\"true\"]\nstop_grace = \""+tt.grace+"\"\n"))
			if err != nil {
				t.Fatal(err)
			}
			got := job.Warnings()
			if tt.want == "" && len(got) > 0 || tt.want != "" && (len(got) != 1 || !strings.Contains(got.Error(), tt.want)) {
				t.Errorf("got %v, want %q", got, tt.want)
			}
		})
	}
}

// TestCheckComponentScript checks that a path with a placeholder is not reported as missing.
func TestCheckComponentScript(t *testing.T) {
	const missing = "no such file"
	for _, tt := range []struct {
		name, program, component string
		missing                  bool
	}{
		{"missing script", "true", `python3", "server.py`, true},
		{"placeholder of a component", "true", `python3", "{host}/server.py`, false},
		{"ready file", "true", `sh", "{ready_file}.sh`, false},
		{"other component", "true", `sh", "{component.srv.host}.sh`, false},
		{"other component as program", "true", `./{component.srv.host}.sh`, false},
		{"program", `sh", "{component.srv.port}.sh`, "true", false},
		{"placeholder of components only", `sh", "{host}.sh`, "true", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			job, err := Parse("job.toml", []byte("name = \"x\"\n[command]\nargv = [\""+tt.program+"\"]\n[[component]]\nname = \"srv\"\nargv = [\""+tt.component+"\"]\n"))
			if err != nil {
				t.Fatal(err)
			}
			program, _ := job.CheckProgram(t.TempDir())
			components, _ := job.CheckComponents(t.TempDir())
			got := program.Error() + "\n" + components.Error()
			if strings.Contains(got, missing) != tt.missing {
				t.Errorf("got %s\nwant %q: %v", got, missing, tt.missing)
			}
		})
	}
}

// TestAddressInCode checks the warning about the address of a component in code of a shell, which
// fails on networks with IPv6 only, and that the hint of the error names a fix that helps.
func TestAddressInCode(t *testing.T) {
	for _, tt := range []struct {
		name, family, component, command string
		want                             string // empty for no warning
	}{
		{"address", "auto", "true", `sh", "-c", "x {component.srv.address}`, "command.argv[2]: {component.srv.address} is not possible"},
		{"addresses", "ipv6", "true", `bash", "-ec", "x '{component.srv.addresses}'`, `write "$DDPBATCH_COMPONENT_SRV_ADDRESSES"`},
		{"own address", "auto", `sh", "-c", "x {address}`, "true", "component[0].argv[2]: {address} is not possible"},
		{"IPv4", "ipv4", "true", `sh", "-c", "x {component.srv.address}`, ""},
		{"host and port", "auto", `sh", "-c", "x {host} {port}`, `sh", "-c", "x {component.srv.host} {component.srv.port}`, ""},
		{"no code", "auto", `echo", "{address}`, `echo", "{component.srv.address}`, ""},
		{"Python", "auto", "true", `python3", "-c", "print('{component.srv.address}')`, ""},
		{"escaped", "auto", "true", `sh", "-c", "x {{component.srv.address}} ${component.srv.address}`, ""},
		{"placeholder of components only", "auto", "true", `sh", "-c", "x {address}`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			job, err := Parse("job.toml", []byte("name = \"x\"\n[network]\nfamily = \""+tt.family+"\"\n[command]\nargv = [\""+tt.command+"\"]\n[[component]]\nname = \"srv\"\nargv = [\""+tt.component+"\"]\n"))
			if err != nil {
				t.Fatal(err)
			}
			_, program := job.CheckProgram(t.TempDir())
			_, components := job.CheckComponents(t.TempDir())
			got := program.Error() + "\n" + components.Error()
			if strings.Contains(got, "with IPv6") != (tt.want != "") || !strings.Contains(got, tt.want) {
				t.Errorf("got %s\nwant %q", got, tt.want)
			}
		})
	}
	for name, other := range map[string]bool{"component.srv.address": false, PlaceholderRunDir: true} {
		_, err := ExpandArgv([]string{"sh", "-c", "x {" + name + "}"}, map[string]string{name: "[::1]:7 "})
		if got := strings.Contains(hints.Of(err), "--run-dir"); err == nil || got != other {
			t.Errorf("%s: %v: the hint names --run-dir: %v, want %v", name, err, got, other)
		}
	}
}

// TestAddressesInCodeOfManyComponents checks that the check of addresses in code does not repeat its work for
// each component: a sweep repeats it for each trial, so a job file of 1 MiB took hours.
func TestAddressesInCodeOfManyComponents(t *testing.T) {
	allocations := func(components int) float64 {
		job := &Job{Command: &Command{Argv: []Text{"sh", "-c", "x {a}"}}}
		for i := range components {
			job.Components = append(job.Components, Component{Name: ComponentName(fmt.Sprintf("c%d", i))})
		}
		c := job.newProgramCheck(t.TempDir(), "command.argv", slices.Repeat(job.Command.Argv, 1000))
		return testing.AllocsPerRun(5, c.checkAddresses)
	}
	if one, many := allocations(1), allocations(100); many > 2*one {
		t.Errorf("%g allocations with a component, %g with 100", one, many)
	}
}

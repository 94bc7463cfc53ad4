package nccl

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestRecentVariables checks the assessments of variables that this package does not set.
func TestRecentVariables(t *testing.T) {
	for _, c := range []struct {
		name    string
		version int
		env     map[string]string
		plain   bool   // a host without RDMA
		wrong   string // part of the warning, or ""
	}{
		{name: "OOB over the adapters", env: map[string]string{oobEnable: "1", oobInterface: "mlx5_"}},
		{name: "OOB over an adapter elsewhere", env: map[string]string{oobEnable: "1", oobInterface: "=hfi1"}, wrong: "it allows none of the adapters on the chosen network, such as mlx5_"},
		{name: "OOB devices without OOB", env: map[string]string{oobInterface: "mlx5_0"}, wrong: "without NCCL_OOB_NET_ENABLE=1"},
		{name: "OOB switched off", env: map[string]string{oobEnable: "0"}},
		{name: "OOB over sockets", env: map[string]string{oobEnable: "1", oobInterface: "eth", ncclNet: "Socket"}, plain: true},
		{name: "OOB over another interface", env: map[string]string{oobEnable: "1", oobInterface: "^eth0", ncclNet: "Socket"}, plain: true, wrong: "does not allow the interface eth0"},
		{name: "OOB over a plugin", env: map[string]string{oobEnable: "1", oobInterface: "any", ncclNet: "gIB"}},
		{name: "OOB with an old NCCL", version: 22105, env: map[string]string{oobEnable: "1"}, wrong: "NCCL 2.21.5 ignores it: it requires 2.23.0"},
		{name: "RAS with an old NCCL", version: 22304, env: map[string]string{rasEnable: "0"}, wrong: "it requires 2.24.0"},
		{name: "RAS with the first NCCL that has it", version: 22400, env: map[string]string{rasEnable: "0"}},
		{name: "RAS", version: 23000, env: map[string]string{rasEnable: "1", rasAddress: "[::1]:9999", rasTimeout: "2"}},
		{name: "topology", env: map[string]string{topologyFile: "/here.xml"}},
		{name: "topology elsewhere", env: map[string]string{topologyFile: "/gone.xml"}, wrong: "this host does not have the file"},
		{name: "topology next to the program", env: map[string]string{topologyFile: "gone.xml"}},
		{name: "one plugin", version: 22600, env: map[string]string{ncclNetPlugin: "/opt/libnccl-net.so"}},
		{name: "plugins", version: 23000, env: map[string]string{ncclNetPlugin: "aws-ofi,gib"}},
		{name: "plugins for the first NCCL with lists", version: pluginListNew, env: map[string]string{ncclNetPlugin: "aws-ofi,gib"}},
		{name: "plugins for an old NCCL", version: 22602, env: map[string]string{ncclNetPlugin: "aws-ofi,gib"}, wrong: "NCCL 2.26.2 takes the list for the name of one plugin: lists require 2.27.0"},
		{name: "none among plugins", env: map[string]string{ncclNetPlugin: "none,gib"}, wrong: "takes none for the name of a plugin"},
	} {
		h, name := roce("n1", 1, 80, 81), "bond0"
		if c.plain {
			h, name = plainHost("n1", 1), "eth0"
		}
		f := facts(h, name)
		f.Version, f.Lookup = c.version, lookupIn(c.env)
		f.FileExists = func(path string) bool { return path == "/here.xml" }
		e := Plan(f)
		var warnings []string
		for _, v := range e.Vars {
			_, given := c.env[v.Name]
			if given && (v.Source != User || !strings.HasPrefix(v.Reason, "unchanged: ")) {
				t.Errorf("%s: %s: got %+v", c.name, v.Name, v)
			}
			if given && v.Wrong {
				warnings = append(warnings, v.Reason)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(c.env)) {
			if !slices.ContainsFunc(e.Vars, func(v Var) bool { return v.Name == name }) {
				t.Errorf("%s: %s is not listed", c.name, name)
			}
		}
		if c.wrong == "" && len(warnings) > 0 || c.wrong != "" && (len(warnings) != 1 || !strings.Contains(warnings[0], c.wrong)) {
			t.Errorf("%s: got %q, want %q", c.name, warnings, c.wrong)
		}
	}
}

// TestRASAddress checks that an address that other hosts can reach is named.
func TestRASAddress(t *testing.T) {
	for value, local := range map[string]bool{"localhost:28028": true, "127.0.0.1:1": true, "[::1]:1": true, "10.0.0.1:28028": false, "n1:28028": false, "": false} {
		if got := strings.Contains(assessRASAddress(value).text, "on this host"); got != local {
			t.Errorf("%q: got local %v, want %v", value, got, local)
		}
	}
}

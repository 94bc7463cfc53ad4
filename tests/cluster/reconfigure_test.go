//go:build linux

package cluster

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestPlanned checks how new lines change the slurm.conf of a running cluster: added nodes become
// cloud nodes, because they have no daemons.
func TestPlanned(t *testing.T) {
	conf := []string{"KillWait=10", "NodeName=n1 CPUs=4", "PartitionName=low Nodes=ALL"}
	for _, tt := range []struct {
		name        string
		lines, want []string
	}{
		{"nothing", nil, conf},
		{"a key", []string{"KillWait=2"}, []string{"KillWait=2", "NodeName=n1 CPUs=4", "PartitionName=low Nodes=ALL"}},
		{"partitions", []string{"PartitionName=gpu Nodes=n1"}, []string{"KillWait=10", "NodeName=n1 CPUs=4", "PartitionName=gpu Nodes=n1"}},
		{"nodes", []string{"NodeName=DEFAULT CPUs=8", "NodeName=a[1-9]", "NodeName=b State=FUTURE", "NodeName=n1 CPUs=8"},
			[]string{"KillWait=10", "PartitionName=low Nodes=ALL", "SuspendProgram=/bin/true", "ResumeProgram=/bin/true",
				"NodeName=DEFAULT CPUs=8", "NodeName=a[1-9] State=CLOUD", "NodeName=b State=FUTURE", "NodeName=n1 CPUs=8"}},
	} {
		if got := planned(conf, tt.lines, []string{"n1"}); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q; want %q", tt.name, got, tt.want)
		}
	}
}

// TestReconfigure configures the nodes and partitions of large machines, one after the other. It
// checks that Slurm accepts and rejects jobs as those machines would.
func TestReconfigure(t *testing.T) {
	c := ForTest(t, Options{Nodes: -1})
	for _, tt := range []struct {
		name     string
		conf     []string
		accepted []string
		refused  map[string]string
	}{
		{
			"typed GPUs and a feature",
			[]string{"NodeName=nid[001000-002791] CPUs=128 Sockets=1 CoresPerSocket=64 ThreadsPerCore=2 RealMemory=256000 Gres=gpu:a100:4 Features=gpu,a100",
				"PartitionName=regular Nodes=ALL Default=YES MaxTime=1-00:00:00 MaxNodes=1000",
				"PartitionName=debug Nodes=nid[001000-001100] MaxTime=30 MaxNodes=8", "EnforcePartLimits=ALL"},
			[]string{"-N1000 --ntasks-per-node=4 -c32 --gpus-per-node=4 -t60 -C a100", "-pregular -A m123_g -q regular --gpus-per-node=a100:4 -N2", "-pdebug -N8 -t30"},
			map[string]string{
				"-N1001":                        "Node count specification invalid",
				"-pdebug -t31":                  "time limit",
				"-C nothing":                    "Invalid feature",
				"--gpus-per-node=5":             "node configuration is not available",
				"--gpus-per-node=h100:1":        "node configuration is not available",
				"-N1 --ntasks-per-node=4 -c33":  "node configuration is not available",
				"-p batch":                      "Invalid partition",
				"-N1 --ntasks-per-node=129 -c1": "node configuration is not available",
			},
		},
		{
			"eight GPUs and no type",
			[]string{"NodeName=frontier[00001-09408] CPUs=56 RealMemory=500000 Gres=gpu:8", "PartitionName=batch Nodes=ALL MaxTime=720"},
			[]string{"-pbatch -N9408 --ntasks-per-node=8 -c7 --gpus-per-node=8 --gpu-bind=closest", "-pbatch -N1 --ntasks=8 --gpus-per-task=1 --mem=400000"},
			map[string]string{"-pdebug": "Invalid partition", "-pbatch -N1 --gpus-per-node=9": "node configuration is not available"},
		},
		{"nodes without GPUs, in the partitions of the cluster", []string{"NodeName=cpu[1-4] CPUs=8"},
			[]string{"-N4 -plow"}, map[string]string{"-N5": "node configuration is not available", "--gres=gpu:1": "node configuration is not available"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			begin := time.Now()
			if err := c.Reconfigure(t.Context(), tt.conf...); err != nil {
				t.Fatal(err)
			}
			t.Logf("after %v", time.Since(begin).Round(time.Millisecond))
			ask := func(args string) (string, error) {
				argv := append([]string{"sbatch", "--test-only", "--wrap=true"}, strings.Fields(args)...)
				out, err := c.Command(t.Context(), argv...).CombinedOutput()
				return string(out), err
			}
			for _, args := range tt.accepted {
				if out, err := ask(args); err != nil || !strings.Contains(out, "to start at") {
					t.Errorf("%s: %v: %s", args, err, out)
				}
			}
			for args, why := range tt.refused {
				if out, err := ask(args); err == nil || !strings.Contains(out, why) {
					t.Errorf("%s: %v: %s; want %q", args, err, out, why)
				}
			}
		})
	}
	if err := c.Reconfigure(t.Context(), "no line"); err == nil {
		t.Error("a line without a key was taken")
	}
	err := c.Reconfigure(t.Context(), "SelectType=select/nonsense")
	if err == nil || !strings.Contains(err.Error(), "slurmctld ended with exit code 1") || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("a configuration that slurmctld does not take: %v", err)
	}
}

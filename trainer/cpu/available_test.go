package cpu

import (
	"runtime"
	"testing"
	"testing/fstest"
)

// TestAvailable checks the available memory, limited by each cgroup above the process, with cgroup
// versions 1 and 2.
func TestAvailable(t *testing.T) {
	const meminfo = "MemTotal:  1000 kB\nMemFree:  100 kB\nMemAvailable:   900 kB\n"
	for _, c := range []struct {
		name  string
		files map[string]string
		want  int64
		known bool
	}{
		{"nothing is known", nil, 0, false},
		{"no group", map[string]string{"proc/meminfo": meminfo}, 900 << 10, true},
		{"a group without a limit", map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/job\n",
			"sys/fs/cgroup/job/memory.max": "max\n", "sys/fs/cgroup/job/memory.current": "5\n"}, 900 << 10, true},
		{"a group with a limit", map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/job\n",
			"sys/fs/cgroup/job/memory.max": "5000\n", "sys/fs/cgroup/job/memory.current": "1200\n",
			"sys/fs/cgroup/job/memory.stat": "anon 900\ninactive_file 300\n"}, 4100, true},
		{"the group around it has less", map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/job/step/task\n",
			"sys/fs/cgroup/job/step/memory.max": "5000\n", "sys/fs/cgroup/job/step/memory.current": "0\n",
			"sys/fs/cgroup/job/memory.max": "4000\n", "sys/fs/cgroup/job/memory.current": "1000\n"}, 3000, true},
		{"a group that is over its limit", map[string]string{"proc/self/cgroup": "0::/\n",
			"sys/fs/cgroup/memory.max": "10\n", "sys/fs/cgroup/memory.current": "20\n"}, 0, true},
		{"version 1", map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "3:cpu,cpuacct:/x\n2:memory:/slurm/job\n1:name=systemd:/y\n",
			"sys/fs/cgroup/memory/slurm/job/memory.limit_in_bytes": "7000\n", "sys/fs/cgroup/memory/slurm/job/memory.usage_in_bytes": "2000\n",
			"sys/fs/cgroup/memory/slurm/memory.limit_in_bytes": "9223372036854771712\n", "sys/fs/cgroup/memory/slurm/memory.usage_in_bytes": "2000\n"}, 5000, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := fstest.MapFS{}
			for name, text := range c.files {
				root[name] = &fstest.MapFile{Data: []byte(text)}
			}
			if got, known := available(root); known != c.known || known && got != c.want {
				t.Errorf("%d, %t; want %d, %t", got, known, c.want, c.known)
			}
		})
	}
	if n, known := Available(); runtime.GOOS == "linux" && (!known || n < 1<<20) {
		t.Errorf("here: %d, %t", n, known)
	}
}

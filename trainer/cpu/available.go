package cpu

import (
	"bufio"
	"io/fs"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
)

// Available returns the number of bytes of memory that this process can still allocate: the memory
// of the machine that is free or can be reclaimed, or the remainder of the limit of its cgroup or
// of a parent cgroup, if that is less (proc(5) and cgroup-v2 of Linux; version 1 has other file
// names). If the value cannot be determined, known is false.
func Available() (bytes int64, known bool) { return available(os.DirFS("/")) }

func available(root fs.FS) (bytes int64, known bool) {
	bytes = math.MaxInt64
	if kib, ok := field(root, "proc/meminfo", "MemAvailable:"); ok {
		bytes, known = kib<<10, true
	}
	for _, g := range groups(root) {
		limit, ok := number(root, path.Join(g.dir, g.limit))
		if !ok || limit >= math.MaxInt64/2 { // "max", or the equivalent of version 1
			continue
		}
		used, ok := number(root, path.Join(g.dir, g.used))
		if !ok {
			continue
		}
		// Inactive file pages count as used, but are reclaimed first.
		cached, _ := field(root, path.Join(g.dir, "memory.stat"), g.cached)
		bytes, known = min(bytes, max(0, limit-used+cached)), true
	}
	return bytes, known
}

// group is the directory of a cgroup with the names of its files.
type group struct{ dir, limit, used, cached string }

// groups returns the cgroups of this process that limit memory, from innermost to outermost.
func groups(root fs.FS) []group {
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return nil
	}
	var out []group
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3) // hierarchy, controllers, path
		if len(parts) != 3 {
			continue
		}
		g := group{"sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"}
		switch {
		case parts[1] == "memory":
			g = group{"sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}
		case parts[1] != "":
			continue
		}
		top := g.dir
		for inner := path.Clean("/" + parts[2]); ; inner = path.Dir(inner) {
			g.dir = path.Join(top, inner)
			out = append(out, g)
			if inner == "/" {
				break
			}
		}
	}
	return out
}

// number returns the number in a file that contains nothing else.
func number(root fs.FS, file string) (int64, bool) {
	text, err := fs.ReadFile(root, file)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}

// field returns the number after a name at the beginning of a line.
func field(root fs.FS, file, name string) (int64, bool) {
	f, err := root.Open(file)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if words := strings.Fields(lines.Text()); len(words) >= 2 && words[0] == name {
			n, err := strconv.ParseInt(words[1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

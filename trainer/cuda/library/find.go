package library

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/environ"
)

// Find returns the possible locations of a library with one of the names, best first. A bare name
// means that the dynamic linker searches its directories (LD_LIBRARY_PATH, its cache, system
// directories). Existing files follow: below CUDA_HOME and CUDA_PATH, in the active conda and
// Python environments, in the environment of the python3 in PATH, in the other directories where
// pip installs the nvidia-* packages, and below /usr/local/cuda. A directory of a variable is skipped
// if every user can create files there. In one directory, the first name takes precedence; a newer
// Python precedes an older one.
func Find(lookup func(name string) (string, bool), names ...string) []string {
	locations := slices.Clone(names)
	for _, pattern := range searchPatterns(lookup) {
		for _, name := range names {
			matches, _ := filepath.Glob(filepath.Join(pattern, name)) // the pattern is valid, see escapeGlob
			slices.SortFunc(matches, func(a, b string) int { return compareVersions(b, a) })
			for _, m := range matches {
				if info, err := os.Stat(m); err == nil && info.Mode().IsRegular() && !slices.Contains(locations, m) {
					locations = append(locations, m)
				}
			}
		}
	}
	return locations
}

// searchPatterns returns glob patterns of directories.
func searchPatterns(lookup func(name string) (string, bool)) []string {
	const (
		wheels = "nvidia/*/lib" // in site-packages: nvidia/cublas/lib, nvidia/nccl/lib, nvidia/cu13/lib
		// Some distributions separate packages with compiled code, in lib64.
		python = "lib*/python3*/site-packages/" + wheels
	)
	var list []string
	below := func(variable string, tails ...string) {
		value, _ := lookup(variable)
		for _, dir := range filepath.SplitList(value) {
			if !filepath.IsAbs(dir) || isPublic(dir) {
				continue
			}
			for _, tail := range tails {
				list = append(list, filepath.Join(escapeGlob(dir), tail))
			}
		}
	}
	below("CUDA_HOME", "lib64", "lib", "targets/*-linux/lib")
	below("CUDA_PATH", "lib64", "lib", "targets/*-linux/lib")
	below("VIRTUAL_ENV", python)
	below("CONDA_PREFIX", "lib", python)
	for _, prefix := range pythonPrefixes(lookup) {
		list = append(list, filepath.Join(escapeGlob(prefix), python), filepath.Join(escapeGlob(prefix), "lib"))
	}
	below("PYTHONPATH", wheels)
	below("HOME", ".local/"+python)
	return append(list, "/usr/local/cuda/lib64", "/usr/local/cuda/targets/*-linux/lib",
		"/usr/local/lib/python3*/dist-packages/"+wheels, "/usr/local/"+python, "/usr/"+python, "/usr/lib/python3/dist-packages/"+wheels)
}

// pythonPrefixes returns the directories below which the python3 in PATH has its packages: the
// prefix of its virtual environment, and the prefix of the installation to which its file is a
// symbolic link.
func pythonPrefixes(lookup func(name string) (string, bool)) []string {
	path, _ := lookup("PATH")
	python, err := environ.LookPath([]string{"PATH=" + path}, "python3")
	if err != nil {
		return nil
	}
	prefixes := []string{filepath.Dir(filepath.Dir(python))}
	if target, err := filepath.EvalSymlinks(python); err == nil {
		if p := filepath.Dir(filepath.Dir(target)); p != prefixes[0] {
			prefixes = append(prefixes, p)
		}
	}
	return slices.DeleteFunc(prefixes, isPublic)
}

// isPublic reports whether every user can create files in a directory, such as lib. Its libraries must
// not run in this process. A directory that cannot be examined counts as public.
func isPublic(dir string) bool {
	info, err := os.Stat(dir)
	return err != nil || info.Mode().Perm()&0o002 != 0
}

// compareVersions compares two paths. It compares decimal numbers in them by value, so that
// python3.9 precedes python3.12.
func compareVersions(a, b string) int {
	for a != "" && b != "" {
		m, restA := cutNumber(a)
		n, restB := cutNumber(b)
		switch {
		case m >= 0 && n >= 0 && m != n:
			return m - n
		case m >= 0 && n >= 0:
			a, b = restA, restB
		case a[0] != b[0]:
			return int(a[0]) - int(b[0])
		default:
			a, b = a[1:], b[1:]
		}
	}
	return len(a) - len(b)
}

// cutNumber returns the decimal number at the start of s and the rest. The number is -1 if s
// does not start with one, or if it is too large.
func cutNumber(s string) (int, string) {
	end := strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(s)
	}
	n, err := strconv.Atoi(s[:end])
	if err != nil {
		return -1, s
	}
	return n, s[end:]
}

var quoter = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// escapeGlob returns a glob pattern that matches only dir.
func escapeGlob(dir string) string { return quoter.Replace(dir) }

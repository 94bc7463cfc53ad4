package library

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Find returns the possible locations of a library with one of the names, best first. A bare name
// means that the dynamic linker searches its directories (LD_LIBRARY_PATH, its cache, system
// directories). Existing files follow: below CUDA_HOME and CUDA_PATH, in the active conda and
// Python environments, in the directories where pip installs the nvidia-* packages, and below
// /usr/local/cuda. In one directory, the first name takes precedence; a newer Python precedes an
// older one.
func Find(lookup func(name string) (string, bool), names ...string) []string {
	places := slices.Clone(names)
	for _, folder := range searchPatterns(lookup) {
		for _, name := range names {
			matches, _ := filepath.Glob(filepath.Join(folder, name)) // the pattern is valid, see literal
			slices.Reverse(matches)
			for _, m := range matches {
				if info, err := os.Stat(m); err == nil && info.Mode().IsRegular() && !slices.Contains(places, m) {
					places = append(places, m)
				}
			}
		}
	}
	return places
}

// searchPatterns returns glob patterns of directories.
func searchPatterns(lookup func(name string) (string, bool)) []string {
	const (
		wheels = "nvidia/*/lib" // in site-packages: nvidia/cublas/lib, nvidia/nccl/lib, nvidia/cu13/lib
		python = "lib/python3*/site-packages/" + wheels
	)
	var list []string
	below := func(variable string, tails ...string) {
		value, _ := lookup(variable)
		for _, dir := range filepath.SplitList(value) {
			if !filepath.IsAbs(dir) {
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
	below("PYTHONPATH", wheels)
	below("HOME", ".local/"+python)
	return append(list, "/usr/local/cuda/lib64", "/usr/local/cuda/targets/*-linux/lib",
		"/usr/local/lib/python3*/dist-packages/"+wheels, "/usr/local/"+python, "/usr/"+python, "/usr/lib/python3/dist-packages/"+wheels)
}

var quoter = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// escapeGlob returns a glob pattern that matches only dir.
func escapeGlob(dir string) string { return quoter.Replace(dir) }

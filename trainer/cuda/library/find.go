package library

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Find returns where a library may be that has one of the names, best first. A name
// stands for the folders where the dynamic linker looks (LD_LIBRARY_PATH, its cache,
// the system's). Files follow, those that there are: below CUDA_HOME and CUDA_PATH, in
// the environments of conda and Python that are active, in the places where pip puts
// the packages nvidia-*, and below /usr/local/cuda. Of one place, the first name wins;
// a newer Python goes before an older one.
func Find(lookup func(name string) (string, bool), names ...string) []string {
	places := slices.Clone(names)
	for _, folder := range folders(lookup) {
		for _, name := range names {
			matches, _ := filepath.Glob(filepath.Join(folder, name)) // well-formed, see literal
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

// folders are patterns of folders.
func folders(lookup func(name string) (string, bool)) []string {
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
				list = append(list, filepath.Join(literal(dir), tail))
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

// literal is a folder as a pattern that only it matches.
func literal(dir string) string { return quoter.Replace(dir) }

package snapshot

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/hints"
)

const tooLarge = "data, checkpoints and environments do not belong in the code: move them, ignore them with .gitignore, or leave them out"

// maxNamed is the maximum number of files or directories in an error.
const maxNamed = 3

// tooManyFilesError returns the error for too many files. It names the directories that contain most.
func (l *listing) tooManyFilesError() error {
	count := map[string]int64{}
	for path := range l.entries {
		top, _, nested := strings.Cut(path, "/")
		if nested {
			count[top+"/"]++
		}
	}
	return hints.Errorf(tooLarge, "it has more than %d files%s", l.maxFiles,
		listLargest(count, ", as far as looked at in ", func(n int64) string { return fmt.Sprint(n) }))
}

// checkSize returns an error if the files are too large in total. The error names the largest
// files.
func (l *listing) checkSize() error {
	size := map[string]int64{}
	var total int64
	for path, e := range l.entries {
		if e.info.Mode().IsRegular() {
			size[path] = e.info.Size()
			total += e.info.Size()
		}
	}
	if total <= l.maxBytes {
		return nil
	}
	return hints.Errorf(tooLarge, "it has %s, and %s is the limit%s", format.Bytes(total), format.Bytes(l.maxBytes),
		listLargest(size, "; the largest files are ", format.Bytes[int64]))
}

// listLargest returns the names with the largest numbers as text.
func listLargest(numbers map[string]int64, intro string, show func(int64) string) string {
	var names []string
	for name := range numbers {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if numbers[a] != numbers[b] {
			if numbers[a] > numbers[b] {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	if len(names) == 0 {
		return ""
	}
	var parts []string
	for _, name := range names[:min(maxNamed, len(names))] {
		parts = append(parts, fmt.Sprintf("%q (%s)", name, show(numbers[name])))
	}
	return intro + strings.Join(parts, ", ")
}

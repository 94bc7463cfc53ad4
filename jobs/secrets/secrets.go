// Package secrets reads the values that a job needs and nobody else may see
// (keys of services, tokens) from a file of its user's, or from the environment.
//
// It promises that a file that others could read or change is refused, that only
// the values asked for leave the package, and that no error of it shows a value
// or any other text of the file: a name is shown only if the caller asked for it.
//
// A file has one NAME=VALUE on each line. Blank lines and lines that start with
// # are passed over; "export " may stand before the name; a value may stand in
// single or double quotes, and must where it has spaces. What stands there is
// the value: nothing is expanded, a backslash and a $ are themselves, and no
// value has more than one line. What a shell would read differently and silently
// (a blank or a comment after a bare value) is refused.
//
// It does not write or log values, does not hand them to a job, and does not
// keep them out of a core dump: Go cannot wipe a string.
package secrets

import (
	"fmt"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

// Read takes the values of the names from a file. All of them must be there and
// not be empty.
//
// A symbolic link is followed, home directories are full of them; what it leads
// to must be a regular file of this user or root, which nobody else can read or
// write, of at most 64 KiB. Such errors may have a hint.
func Read(path string, names []string) (map[string]string, error) {
	return Resolve(path, names, func(string) (string, bool) { return "", false })
}

// Resolve takes each name's value from the file or, if it is not there, from the
// environment, where lookup finds it. Without a path there is only the
// environment; the file is read, and must be right, even if no name is wanted
// from it. The error names all that are in neither place or empty.
func Resolve(path string, names []string, lookup func(string) (string, bool)) (map[string]string, error) {
	var file map[string]string
	if path != "" {
		var err error
		if file, err = load(path); err != nil {
			return nil, fmt.Errorf("read secrets from %q: %w", path, err)
		}
	}
	values := make(map[string]string, len(names))
	var missing []string
	for i, name := range names {
		if !isName(name) {
			// Not shown: it may be the secret itself, or NAME=VALUE.
			return nil, hints.Errorf("ask for secrets by name: letters, digits and _; the value stands in a file, or in the environment",
				"secret %d of %d is not the name of a variable", i+1, len(names))
		}
		value, ok := file[name]
		if !ok {
			value, ok = lookup(name)
		}
		switch {
		case !ok:
			missing = append(missing, name)
		case value == "":
			missing = append(missing, name+" (empty)")
		default:
			values[name] = value
		}
	}
	if len(missing) > 0 {
		return nil, absent(path, missing)
	}
	return values, nil
}

// absent says which names have no value.
func absent(path string, names []string) error {
	list := strings.Join(names, ", ")
	if path == "" {
		return hints.Errorf("export them, or put them into a file of mode 0600, one NAME=VALUE on each line",
			"secrets without a value: %s", list)
	}
	return hints.Errorf("add a line NAME=VALUE for each to that file", "secrets without a value in %q: %s", path, list)
}

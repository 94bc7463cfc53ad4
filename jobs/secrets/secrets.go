// Package secrets reads secrets that a job needs, such as tokens and keys of services, from a
// file of the user or from the environment.
//
// The package guarantees the following:
//   - It rejects a file that other users can read or change.
//   - It returns only the requested values.
//   - No error contains a value or other text of the file. An error contains a name only if
//     the caller requested that name.
//
// Each line of a file has the form NAME=VALUE. Blank lines and lines that start with # are
// ignored. "export " may precede the name. A value may be in single or double quotes, and must
// be quoted if it contains spaces. The value is literal: nothing is expanded, a backslash and
// a $ have no special meaning, and a value cannot span lines. The package rejects lines that a
// shell would silently read differently, such as a blank or a comment after an unquoted value.
//
// The package does not write or log values, pass them to a job, or keep them out of a core
// dump: Go cannot erase a string from memory.
package secrets

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
)

// Resolve returns the value of each name from the file or, if the file does not contain it,
// from the environment through lookup. If path is empty, it uses only the environment.
// Otherwise, it reads the file, which must be valid even if it contains none of the names. The
// error lists all names that are missing or empty. It may have a hint.
//
// Resolve follows symbolic links, because they are common in home directories. The target must
// be a regular file of at most 64 KiB that belongs to this user or root and that no other user
// can read or write.
func Resolve(path string, names []string, lookup func(string) (string, bool)) (map[string]string, error) {
	var file map[string]string
	if path != "" {
		var err error
		if file, err = loadFile(path); err != nil {
			return nil, fmt.Errorf("read secrets from %q: %w", path, err)
		}
	}
	values := make(map[string]string, len(names))
	var missing []string
	for i, name := range names {
		if !isName(name) {
			// Do not print the name: it may be the secret itself, or NAME=VALUE.
			return nil, hints.Errorf("list names only (letters, digits, and _), and put the values in a file or in the environment",
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
		return nil, missingError(path, missing)
	}
	return values, nil
}

// missingError returns the error for names without a value.
func missingError(path string, names []string) error {
	list := strings.Join(names, ", ")
	if path == "" {
		return hints.Errorf("export them, or put them in a file with mode 0600, one NAME=VALUE per line",
			"secrets without a value: %s", list)
	}
	return hints.Errorf("add a line NAME=VALUE for each of them to that file", "secrets without a value in %q: %s", path, list)
}

// maxFile is the maximum size of a secrets file in bytes. A private key has 4 KiB.
const maxFile = 64 << 10

const formatHint = "set the path of a file with one NAME=VALUE per line"

// loadFile reads a secrets file. The file must belong to this user or to root, and no other user
// may have access.
func loadFile(path string) (map[string]string, error) {
	f, err := safefile.Open(path, 0)
	if errors.Is(err, safefile.ErrNotRegular) || errors.Is(err, syscall.EISDIR) {
		return nil, hints.Errorf(formatHint, "%s", safefile.ErrNotRegular)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if owner, ok := safefile.Owner(info); !ok || !safefile.IsTrusted(owner) {
		return nil, hints.Errorf("copy the secrets to a file that you own, and run `chmod 600` on it",
			"it belongs to user %d, not to you (user %d)", owner, os.Geteuid())
	}
	// If the file has an access control list, the group bits are its mask, the maximum that
	// the list grants to named users and groups (acl(5)).
	if perm := info.Mode().Perm(); perm&0o077 != 0 {
		return nil, hints.Errorf("run `chmod 600` on it; on a shared machine, replace the secrets, because others may have read them",
			"mode is %04o: other users have access", perm)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxFile {
		return nil, hints.Errorf(formatHint, "larger than %d KiB", maxFile>>10)
	}
	return parse(string(text))
}

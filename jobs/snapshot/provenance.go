package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Provenance asks git about a folder. Environ is the environment for git, which
// is looked for in its PATH. Without git, or in no work tree, there is nothing
// to know and no error. Each question to git may take a minute. An error, like
// that of a repository which belongs to someone else, may have a hint. What is
// below one of the absolute paths to exclude, such as the runs that a program has
// made there, is no change.
func Provenance(ctx context.Context, dir string, environ []string, exclude ...string) (Git, error) {
	var inside []string
	for _, path := range exclude {
		if rel, err := filepath.Rel(dir, path); err == nil && filepath.IsLocal(rel) && rel != "." {
			inside = append(inside, rel)
		}
	}
	found, err := provenance(ctx, dir, environ, inside)
	if err != nil {
		return Git{}, fmt.Errorf("ask git about %q: %w", dir, err)
	}
	return found, nil
}

// provenance leaves what is excluded, relative to dir, out of the look at changes.
func provenance(ctx context.Context, dir string, environ, exclude []string) (Git, error) {
	if !filepath.IsAbs(dir) {
		return Git{}, errors.New("the path is not absolute")
	}
	info, err := os.Stat(dir)
	if err != nil {
		return Git{}, err
	}
	if !info.IsDir() {
		return Git{}, errors.New("it is not a directory")
	}
	g, ok := findGit(environ)
	if !ok {
		return Git{}, nil
	}
	inside, err := g.run(ctx, dir, "rev-parse", "--is-inside-work-tree")
	if f := (*gitFailure)(nil); errors.As(err, &f) && f.noWorkTree() {
		return Git{}, nil
	}
	if err != nil {
		return Git{}, err
	}
	if string(bytes.TrimSpace(inside)) != "true" { // in a bare repository, or in .git
		return Git{}, nil
	}
	prefix, err := g.run(ctx, dir, "rev-parse", "--show-prefix")
	if err != nil {
		return Git{}, err
	}
	config, err := g.run(ctx, dir, "config", "-z", "--list")
	if err != nil {
		return Git{}, err
	}
	found, err := g.status(ctx, dir, exclude, 0)
	if err != nil {
		return Git{}, err
	}
	found.WorkTree = true
	found.Folder = strings.TrimSuffix(strings.TrimSuffix(string(prefix), "\n"), "/")
	found.Remote = bare(remote(config, found.Branch))
	return found, nil
}

// parseStatus reads what git-status(1) calls porcelain format version 2, with -z
// and without renames: headers, and an entry for each change.
func parseStatus(status []byte) Git {
	var found Git
	for line := range strings.SplitSeq(string(status), "\x00") {
		header, isHeader := strings.CutPrefix(line, "# ")
		name, value, _ := strings.Cut(header, " ")
		switch {
		case line == "":
		case !isHeader:
			found.Dirty = true
		case name == "branch.oid" && value != "(initial)":
			found.Commit = value
		case name == "branch.head" && value != "(detached)":
			found.Branch = value
		}
	}
	return found
}

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

// Provenance returns git's information about a directory. environ is the environment for git,
// and its PATH must contain git. Without git, or outside a work tree, Provenance returns the
// zero Git and no error. Each git command may take up to a minute. An error, for example
// because the repository belongs to another user, may have a hint. Changes below the absolute
// paths in exclude are ignored, such as runs that a program has created there.
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

// provenance implements Provenance. It ignores changes to excluded paths, which are relative
// to dir.
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
	if f := (*gitError)(nil); errors.As(err, &f) && f.isNoRepository() {
		return Git{}, nil
	}
	if err != nil {
		return Git{}, err
	}
	if string(bytes.TrimSpace(inside)) != "true" { // bare repository, or inside .git
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
	found.Subdir = strings.TrimSuffix(strings.TrimSuffix(string(prefix), "\n"), "/")
	found.Remote = stripCredentials(findRemote(config, found.Branch))
	return found, nil
}

// parseStatus parses the porcelain format version 2 of git-status(1) with -z and without
// renames: header lines and one entry per change.
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

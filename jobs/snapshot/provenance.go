package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
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
		return Git{}, fmt.Errorf("query git for %q: %w", dir, err)
	}
	return found, nil
}

// provenance implements Provenance. It ignores changes to excluded paths, which are relative
// to dir.
func provenance(ctx context.Context, dir string, environ, exclude []string) (Git, error) {
	if !filepath.IsAbs(dir) {
		return Git{}, errors.New("path is not absolute")
	}
	info, err := os.Stat(dir)
	if err != nil {
		return Git{}, err
	}
	if !info.IsDir() {
		return Git{}, errors.New("not a directory")
	}
	g, ok := findGit(environ, dir)
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

// findRemote returns the URL of a branch's remote. config is the output of `git config -z --list`.
// It uses the first URL of each remote and the last setting of the branch's remote. It falls
// back to origin, and then to the only remote.
func findRemote(config []byte, branch string) string {
	address := map[string]string{}
	upstream := ""
	for setting := range strings.SplitSeq(string(config), "\x00") {
		key, value, _ := strings.Cut(setting, "\n")
		if key == "branch."+branch+".remote" {
			upstream = value
		}
		name, ok := strings.CutPrefix(key, "remote.")
		if name, isURL := strings.CutSuffix(name, ".url"); ok && isURL && address[name] == "" {
			address[name] = value
		}
	}
	for _, name := range []string{upstream, "origin"} {
		if address[name] != "" {
			return address[name]
		}
	}
	if len(address) == 1 {
		for _, only := range address {
			return only
		}
	}
	return ""
}

// stripCredentials removes the user, password, query, and fragment from a URL. It returns an
// empty string if it cannot parse the URL reliably, or if the URL contains a later @, which may
// end a password that contains a slash. A missing URL is better than a leaked password.
//
// In the form user@host:path, stripCredentials retains the user. This form cannot contain a
// password, and without the user, the address would be a different one. For all forms, see
// gitremote-helpers(7) and git-clone(1).
func stripCredentials(address string) string {
	if strings.ContainsFunc(address, func(c rune) bool { return c <= ' ' || c == 0x7f }) {
		return "" // ext::command or not a URL
	}
	if helper, rest, ok := strings.Cut(address, "::"); ok && !strings.ContainsAny(helper, ":/@[") {
		// Without a scheme, the rest may contain a password: user::password@host.
		if rest = stripCredentials(rest); !strings.Contains(rest, "://") {
			return ""
		}
		return helper + "::" + rest
	}
	if !strings.Contains(address, "://") {
		if at := strings.LastIndex(address, "@"); at >= 0 && strings.Contains(address[:at], ":") {
			return ""
		}
		return address
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme == "" || u.Opaque != "" || strings.Contains(u.Path+u.RawQuery+u.Fragment, "@") {
		return ""
	}
	u.User, u.RawQuery, u.ForceQuery, u.Fragment, u.RawFragment = nil, "", false, "", ""
	return u.String()
}

package snapshot

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

// maxSubmodules is the maximum nesting depth of submodules that status inspects.
const maxSubmodules = 16

// status returns the commit and the branch of a work tree, and whether the directory has
// changes. Excluded paths are relative to the directory. For each submodule, status calls git
// separately. Otherwise, git would inspect the submodule with the submodule's own settings,
// and start the programs that they name.
func (g git) status(ctx context.Context, dir string, exclude []string, depth int) (Git, error) {
	filters, err := g.withoutFilters(ctx, dir)
	if err != nil {
		return Git{}, err
	}
	paths := []string{"--", "."}
	for _, path := range exclude {
		paths = append(paths, ":(exclude,literal)"+path)
	}
	args := append(filters, "status", "--porcelain=v2", "--branch", "-z", "--untracked-files=normal", "--ignore-submodules=dirty",
		"--no-renames", "--no-ahead-behind")
	text, err := g.run(ctx, dir, append(args, paths...)...)
	if err != nil {
		return Git{}, err
	}
	found := parseStatus(text)
	if found.Dirty || depth == maxSubmodules {
		return found, nil
	}
	index, err := g.run(ctx, dir, append([]string{"ls-files", "-z", "--stage"}, paths...)...)
	if err != nil {
		return Git{}, err
	}
	for entry := range bytes.SplitSeq(index, []byte{0}) {
		about, name, _ := strings.Cut(string(entry), "\t")
		if !strings.HasPrefix(about, "160000 ") {
			continue
		}
		submodule := filepath.Join(dir, name)
		if _, err := os.Lstat(filepath.Join(submodule, ".git")); err != nil {
			continue // not checked out
		}
		inside, err := g.status(ctx, submodule, nil, depth+1)
		if err != nil {
			return Git{}, err
		}
		if found.Dirty = inside.Dirty; found.Dirty {
			break
		}
	}
	return found, nil
}

// withoutFilters returns git options that disable the filters in the settings of a repository.
// git status starts filter.NAME.clean and filter.NAME.process for files that .gitattributes
// names. Filters in the user's own settings, such as those of Git LFS, remain enabled.
//
// The option --attr-source would be simpler but requires git 2.41.
func (g git) withoutFilters(ctx context.Context, dir string) ([]string, error) {
	all, err := g.run(ctx, dir, "config", "-z", "--list")
	if err != nil {
		return nil, err
	}
	outside := g
	outside.env = append(outside.env[:len(outside.env):len(outside.env)], "GIT_DIR=/dev/null/none") // outside all repositories
	trustedText, err := outside.run(ctx, "/", "config", "-z", "--list")
	if err != nil {
		return nil, err
	}
	trusted := map[string]bool{}
	for setting := range strings.SplitSeq(string(trustedText), "\x00") {
		trusted[setting] = true
	}
	var options []string
	off := map[string]bool{}
	for setting := range strings.SplitSeq(string(all), "\x00") {
		key, _, _ := strings.Cut(setting, "\n")
		rest, isFilter := strings.CutPrefix(key, "filter.")
		dot := strings.LastIndexByte(rest, '.')
		if !isFilter || dot < 0 || trusted[setting] || off[rest[:dot]] {
			continue
		}
		name := rest[:dot]
		if strings.Contains(name, "=") { // git -c would set a different key
			return nil, hints.Errorf("remove the filter from the settings of the repository", "the name of the git filter %q has a \"=\"", name)
		}
		off[name] = true
		for _, off := range []string{".clean=", ".smudge=", ".process=", ".required=false"} {
			options = append(options, "-c", "filter."+name+off)
		}
	}
	return options, nil
}

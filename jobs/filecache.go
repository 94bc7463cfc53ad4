package jobs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/ddpbatch/ddpbatch/internal/safefile"
)

const (
	// maxScriptBytes is the total size of the scripts that the checks of a job file read.
	maxScriptBytes = 16 << 20
	// maxPatternNames is the number of names that these checks read to find a file that matches a pattern.
	maxPatternNames = 1_000_000
)

// A fileCache holds what the checks of a job file have read on this machine. The trials of a sweep share it:
// they often name the same files, and 10,000 trials would read them 10,000 times. If trials name more files
// than the limits allow, the checks skip the other ones.
type fileCache struct {
	scripts     map[string]scriptUse
	scriptBytes int
	patterns    map[string]error
	names       int // read to match patterns
}

func newFileCache() *fileCache {
	return &fileCache{scripts: map[string]scriptUse{}, patterns: map[string]error{}}
}

// fileCache returns the cache of a job's file. A job that was not parsed has an empty one.
func (j *Job) fileCache() *fileCache {
	if j.layout == nil || j.layout.files == nil {
		return newFileCache()
	}
	return j.layout.files
}

// A scriptUse describes the settings in a script that conflict with ddpbatch.
type scriptUse struct{ createsSlurm, noRequeue, setsPort bool }

// script returns the settings in the script at path. It returns none if the script cannot be read.
func (c *fileCache) script(path string) scriptUse {
	if use, ok := c.scripts[path]; ok || c.scriptBytes >= maxScriptBytes {
		return use
	}
	var use scriptUse
	if text, err := safefile.Read(path, maxScript, 0); err == nil {
		c.scriptBytes += len(text)
		use = scriptUse{createsSlurm().Match(text), noRequeue().Match(text), setsPort().Match(text)}
	}
	c.scripts[path] = use
	return use
}

// checkPattern returns an error if no file in dir matches the pattern.
func (c *fileCache) checkPattern(dir, pattern string) error {
	path := filepath.Join(dir, pattern)
	err, ok := c.patterns[path]
	if !ok && c.names < maxPatternNames {
		err = c.findMatch(dir, pattern)
		c.patterns[path] = err
	}
	return err
}

// findMatch returns an error if no file in dir matches the pattern. It does not read names after the first match.
func (c *fileCache) findMatch(dir, pattern string) error {
	f, err := os.Open(dir + "/.") // an error for a FIFO, which would wait for a writer
	if err != nil {
		return fmt.Errorf("read directory %q: %w", dir, errors.Unwrap(err))
	}
	defer f.Close()
	for c.names < maxPatternNames {
		entries, err := f.ReadDir(1024)
		c.names += len(entries)
		for _, e := range entries {
			if match, err := filepath.Match(pattern, e.Name()); match && err == nil && checkFile(filepath.Join(dir, e.Name())) == nil {
				return nil
			}
		}
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("no file in %q matches %q", dir, pattern)
		}
		if err != nil {
			return fmt.Errorf("read directory %q: %w", dir, errors.Unwrap(err))
		}
	}
	return nil
}

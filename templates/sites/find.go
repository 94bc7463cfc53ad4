package sites

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs"
)

//go:embed *.toml
var embedded embed.FS

const suffix = ".toml"

// maxProfile is the maximum size of a profile in bytes. Profiles have a few kilobytes.
const maxProfile = 256 << 10

// ErrUnknown means that a site does not have a profile.
var ErrUnknown = errors.New("there is no profile")

// A Finder searches for profiles.
type Finder struct {
	// Dirs are directories of NAME.toml files that the center maintains. The first match has
	// precedence, also over the embedded profiles. A relative path is an error: it could lead to the
	// directory of another user.
	Dirs []string
	// JobFile is the path of the job file that names the site. It may be empty.
	JobFile string
}

// Find returns the profile for the site in a job file. The site is a name or a path, which
// contains a slash or ends in .toml. Relative paths start at base, the directory of the job
// file. The error is [ErrUnknown], [jobs.Diagnostics], or a read error, which may wrap
// [ErrWritable].
func (f Finder) Find(site, base string) (*Profile, error) {
	if IsPath(site) {
		path := site
		if !filepath.IsAbs(path) {
			path = filepath.Join(base, path)
		}
		src, warning, err := readProfile(path, base, f.JobFile)
		if err != nil {
			return nil, fmt.Errorf("read site profile: %w", err)
		}
		p, err := Parse(path, path, src)
		if err == nil {
			p.warning = warning
		}
		return p, err
	}
	for _, dir := range f.Dirs {
		if !filepath.IsAbs(dir) {
			return nil, hints.Errorf("set DDPBATCH_SITES to absolute paths", "directory of site profiles: %q is a relative path", dir)
		}
		path := filepath.Join(dir, site+suffix)
		src, _, err := readProfile(path, "", "")
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read profile of site %q: %w", site, err)
		}
		return Parse(site, path, src)
	}
	src, err := embedded.ReadFile(site + suffix)
	if err != nil {
		return nil, ErrUnknown
	}
	return Parse(site, site+suffix, src)
}

// IsPath reports whether a site is the path of a profile and not a name.
func IsPath(site string) bool {
	return strings.Contains(site, "/") || strings.HasSuffix(site, suffix)
}

// Names returns the sorted names of all profiles that [Finder.Find] finds by name.
func (f Finder) Names() []string {
	// The pattern is a constant, so it cannot be malformed.
	found, _ := fs.Glob(embedded, "*"+suffix)
	for _, dir := range f.Dirs {
		entries, err := os.ReadDir(dir)
		if err != nil || !filepath.IsAbs(dir) {
			continue // most machines do not have this directory
		}
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), suffix) {
				found = append(found, e.Name())
			}
		}
	}
	for i, name := range found {
		found[i] = strings.TrimSuffix(name, suffix)
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// Parse reads a profile. name is the site in the job file, and filename is for messages. The
// error has type [jobs.Diagnostics].
func Parse(name, filename string, src []byte) (*Profile, error) {
	p := &Profile{name: name, source: src}
	doc, err := jobs.Decode(filename, src, p)
	if err != nil {
		return nil, err
	}
	p.doc = doc
	if found := p.check(filename); len(found) > 0 {
		return nil, found
	}
	p.Request.GPUs = cmp.Or(p.Request.GPUs, "gres")
	p.Step.GPUs = cmp.Or(p.Step.GPUs, StepGPUsAll)
	p.Container.Runtime = cmp.Or(p.Container.Runtime, jobs.ContainerNone)
	return p, nil
}

// check reports missing keys and conflicts between keys.
func (p *Profile) check(filename string) jobs.Diagnostics {
	var found jobs.Diagnostics
	report := func(key, format string, args ...any) {
		d := p.doc.At(key)
		d.File, d.Message = filename, fmt.Sprintf(format, args...)
		found = append(found, d)
	}
	if p.Title == "" {
		report("title", "missing key \"title\": the name of the center")
	}
	if len(p.Sources) == 0 {
		report("sources", "missing key \"sources\": the URLs of the center's documents")
	}
	if p.Read == "" {
		report("read", "missing key \"read\": the date when the documents were read")
	}
	if l := p.Login; l.MaxRanks == nil && (len(l.Hosts) > 0 || l.Hint != "") {
		report("login", "missing key \"login.max_ranks\": the maximum number of ranks on a login node; 0 allows none")
	}
	for i, r := range p.Resources {
		for j, earlier := range p.Resources[:i] {
			if earlier.takes(string(r.Partition), string(r.QOS), string(r.Constraint)) {
				report(fmt.Sprintf("resource[%d]", i), "resource[%d] never applies: resource[%d] matches the same jobs", i, j)
			}
		}
	}
	return found
}

// Suggested returns the resource for a job that sets only the keys that the profile requires:
// the first resource that is compatible with the defaults. It is empty if the profile has no
// resources.
func (p *Profile) Suggested() Resource {
	d := p.Defaults
	for _, r := range p.Resources {
		if fits(d.Partition, r.Partition) && fits(d.QOS, r.QOS) && fits(d.Constraint, r.Constraint) {
			return r
		}
	}
	return Resource{}
}

// fits reports whether a default and a resource are compatible.
func fits[T ~string](value, of T) bool { return value == "" || of == "" || value == of }

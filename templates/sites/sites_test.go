package sites

import (
	"cmp"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
	"github.com/ddpbatch/ddpbatch/jobs"
)

var update = flag.Bool("update", false, "rewrite golden files")

// TestEmbedded checks that the embedded profiles exist and are valid. Each one is used by name in
// job files, so a profile is never removed.
func TestEmbedded(t *testing.T) {
	names := Finder{}.Names()
	const published = "alps aws-efa azure-nd-h100 delta deltaai fir frontier gcp-a3-mega gcp-a3-ultra generic isambard-ai jean-zay jupiter juwels-booster " +
		"leonardo lumi marenostrum5 narval nibi oci-h100 perlmutter rorqual savio snellius trillium vista"
	for name := range strings.FieldsSeq(published) {
		if !slices.Contains(names, name) {
			t.Errorf("the profile %s is missing", name)
		}
	}
	for _, name := range names {
		p, err := Finder{}.Find(name, "")
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		if p.Name() != name || len(p.Source()) == 0 || len(p.Notes) > 5 || name != "generic" && len(p.Resources) == 0 {
			t.Errorf("%s: name %q, %d notes, %d resources", name, p.Name(), len(p.Notes), len(p.Resources))
		}
		if lines := strings.Count(string(p.Source()), "\n"); lines > 130 {
			t.Errorf("%s has %d lines: it is no small file any more", name, lines)
		}
	}
}

// TestEmbeddedSearchPaths runs the lines of the embedded profiles that set a search path. An empty entry
// of a path such as LD_LIBRARY_PATH is the working directory, where other users may create files.
func TestEmbeddedSearchPaths(t *testing.T) {
	tested := 0
	for _, name := range (Finder{}).Names() {
		p, err := Finder{}.Find(name, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range p.Setup.Lines {
			variable, _, _ := strings.Cut(strings.TrimPrefix(string(line), "export "), "=")
			if !strings.HasSuffix(variable, "PATH") {
				continue
			}
			tested++
			for _, old := range []string{"", "/a:/b"} {
				cmd := exec.CommandContext(t.Context(), "/bin/bash", "-c", string(line)+"; printf %s \"$"+variable+"\"")
				cmd.Env = []string{variable + "=" + old}
				out, err := cmd.Output()
				if dirs := strings.Split(string(out), ":"); err != nil || slices.ContainsFunc(dirs, func(dir string) bool { return !filepath.IsAbs(dir) }) {
					t.Errorf("%s: %s with %q: got %q, %v", name, line, old, out, err)
				}
			}
		}
	}
	if tested == 0 {
		t.Error("no line sets a search path")
	}
}

// TestProfilesAreLimited checks the maximum size of a profile.
func TestProfilesAreLimited(t *testing.T) {
	dir := t.TempDir()
	const profile = "title = \"here\"\nsources = [\"https://example.org/\"]\nread = \"2026-01-31\"\n#"
	for _, size := range []int{maxProfile, maxProfile + 1} {
		if err := os.WriteFile(filepath.Join(dir, "large.toml"), []byte(profile+strings.Repeat("#", size-len(profile))), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := (Finder{Dirs: []string{dir}}).Find("large", dir); errors.Is(err, safefile.ErrTooLarge) != (size > maxProfile) {
			t.Errorf("%d bytes: got %v, the limit is %d", size, err, maxProfile)
		}
	}
}

// TestFind checks the order of directories and built-in profiles, and the errors for missing and
// invalid profiles.
func TestFind(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	profile := "title = \"here\"\nsources = [\"https://example.org/\"]\nread = \"2026-01-31\"\n"
	for path, text := range map[string]string{
		filepath.Join(first, "lumi.toml"):    profile,
		filepath.Join(second, "lumi.toml"):   strings.Replace(profile, "here", "never", 1),
		filepath.Join(second, "ours.toml"):   profile,
		filepath.Join(second, "broken.toml"): "title = 1\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := Finder{Dirs: []string{filepath.Join(first, "none"), first, second}}
	for site, want := range map[string]string{
		"lumi": "here", "ours": "here", "alps": "Alps: Daint and Clariden (GH200 nodes), CSCS", "./ours.toml": "here", filepath.Join(second, "ours.toml"): "here",
	} {
		if p, err := f.Find(site, second); err != nil || string(p.Title) != want {
			t.Errorf("%s: got %+v (%v), want %q", site, p, err, want)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(first, "pipe.toml"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, site := range []string{"pipe", "./pipe.toml"} {
		if _, err := f.Find(site, first); !errors.Is(err, safefile.ErrNotRegular) {
			t.Errorf("%s: got %v, want an error without waiting for a writer", site, err)
		}
	}
	if _, err := f.Find("atlantis", second); !errors.Is(err, ErrUnknown) {
		t.Errorf("an unknown site: %v", err)
	}
	if _, err := f.Find("../"+filepath.Base(second)+"/none.toml", second); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a path that leads nowhere: %v", err)
	}
	var found jobs.Diagnostics
	if _, err := f.Find("broken", ""); !errors.As(err, &found) || found[0].Line != 1 {
		t.Errorf("a broken profile: %v", err)
	}
	if names := strings.Join(f.Names(), " "); !strings.Contains(names, " lumi marenostrum5 narval nibi oci-h100 ours ") {
		t.Errorf("names: %s", names)
	}
}

// TestFindChecksWhoCanWrite checks that a profile that others can change is rejected, unless its
// owner trusts them. A profile runs commands as the user.
func TestFindChecksWhoCanWrite(t *testing.T) {
	const shared, staff = 4242, 4343
	groups, err := syscall.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setgroups([]int{0, shared}); err != nil {
		t.Fatal(err) // the suite runs as root
	}
	t.Cleanup(func() { _ = syscall.Setgroups(groups) })
	const profile = "title = \"here\"\nsources = [\"https://example.org/\"]\nread = \"2026-01-31\"\n"
	for _, c := range []struct {
		name               string
		uid, gid           int
		dirUID             string // "root": the directories belong to root; empty: to uid
		mode, dir          os.FileMode
		above              os.FileMode // of the directory above dir; 0 is 0o755
		job                os.FileMode // of the job file in dir; 0 is 0o644
		rejected, besideOK bool        // besideOK: accepted with a warning in the directory of the job file
	}{
		{name: "only the owner", uid: 1000, gid: shared, mode: 0o644, dir: 0o755},
		{name: "private group of the user", gid: 0, mode: 0o664, dir: 0o775},
		{name: "group of the staff", uid: 1000, gid: staff, mode: 0o664, dir: 0o775 | os.ModeSetgid},
		{name: "owned by root, shared group", gid: shared, mode: 0o664, dir: 0o775 | os.ModeSetgid},
		{name: "shared group, directory of root", uid: 1000, gid: shared, dirUID: "root", mode: 0o644, dir: 0o775, rejected: true, besideOK: true},
		{name: "shared group, file", uid: 1000, gid: shared, mode: 0o664, dir: 0o755, rejected: true},
		{name: "shared group, file and job file", uid: 1000, gid: shared, mode: 0o664, dir: 0o755, job: 0o664, rejected: true, besideOK: true},
		{name: "shared group, file and directory", uid: 1000, gid: shared, mode: 0o664, dir: 0o775, rejected: true, besideOK: true},
		{name: "shared group, directory", uid: 1000, gid: shared, mode: 0o644, dir: 0o775, rejected: true, besideOK: true},
		{name: "shared group, directory with the sticky bit", uid: 1000, gid: shared, mode: 0o644, dir: 0o775 | os.ModeSticky},
		{name: "everybody, file", mode: 0o666, dir: 0o755, rejected: true},
		{name: "everybody, directory", mode: 0o644, dir: 0o777, rejected: true, besideOK: true},
		{name: "everybody, directory with the sticky bit", mode: 0o644, dir: 0o777 | os.ModeSticky},
		{name: "shared group, directory above", uid: 1000, gid: shared, mode: 0o644, dir: 0o755, above: 0o775 | os.ModeSetgid, rejected: true, besideOK: true},
		{name: "shared group, directory above with the sticky bit", uid: 1000, gid: shared, mode: 0o644, dir: 0o755, above: 0o775 | os.ModeSticky},
		{name: "everybody, directory above", mode: 0o644, dir: 0o755, above: 0o777, rejected: true, besideOK: true},
		{name: "owned by root, shared group, everybody above", gid: shared, mode: 0o664, dir: 0o775 | os.ModeSetgid, above: 0o777, rejected: true, besideOK: true},
		{name: "unmapped group of a container", uid: 1000, gid: 65534, mode: 0o664, dir: 0o775},
	} {
		t.Run(c.name, func(t *testing.T) {
			above, dirUID := t.TempDir(), c.uid
			if c.dirUID == "root" {
				dirUID = 0
			}
			dir := filepath.Join(above, "sites")
			path := filepath.Join(dir, "ours.toml")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			for _, err := range []error{os.Chown(above, dirUID, c.gid), os.Chmod(above, cmp.Or(c.above, 0o755)), os.WriteFile(path, []byte(profile), 0o600), os.Chown(path, c.uid, c.gid), os.Chmod(path, c.mode),
				os.Chown(dir, dirUID, c.gid), os.Chmod(dir, c.dir)} {
				if err != nil {
					t.Fatal(err)
				}
			}
			f := Finder{Dirs: []string{dir}, JobFile: filepath.Join(dir, "job.toml")}
			if err := errors.Join(os.WriteFile(f.JobFile, nil, 0o600), os.Chown(f.JobFile, c.uid, c.gid), os.Chmod(f.JobFile, cmp.Or(c.job, 0o644))); err != nil {
				t.Fatal(err)
			}
			for _, find := range []struct {
				site, base string
				rejected   bool
			}{{"ours", "/", c.rejected}, {path, "/", c.rejected}, {"./ours.toml", dir, c.rejected && !c.besideOK}} {
				p, err := f.Find(find.site, find.base)
				if find.rejected != errors.Is(err, ErrWritable) || !find.rejected && err != nil {
					t.Errorf("%s: got %v", find.site, err)
				}
				if find.rejected && (!strings.Contains(err.Error(), filepath.Base(path)) || !strings.Contains(hints.Of(err), "chmod")) {
					t.Errorf("%s: got %v (hint %q)", find.site, err, hints.Of(err))
				}
				if err == nil && (p.warning != nil) != (find.base == dir && c.besideOK) {
					t.Errorf("%s: warning %v", find.site, p.warning)
				}
			}
		})
	}
}

// TestFindChecksWhoCreatedAProfile checks a directory with the sticky bit in which others can create
// files. They could add a profile with the name of an included profile. A profile that the job file
// names by its path is accepted.
func TestFindChecksWhoCreatedAProfile(t *testing.T) {
	const other, shared, staff = 1000, 4242, 4343
	groups, err := syscall.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setgroups([]int{0, shared}); err != nil {
		t.Fatal(err) // the suite runs as root
	}
	t.Cleanup(func() { _ = syscall.Setgroups(groups) })
	const profile = "title = \"here\"\nsources = [\"https://example.org/\"]\nread = \"2026-01-31\"\n"
	for _, c := range []struct {
		name     string
		uid      int // owner of the profile
		link     bool
		dirUID   int
		gid      int
		dir      os.FileMode
		rejected bool
	}{
		{name: "everybody", uid: other, dir: 0o777, rejected: true},
		{name: "everybody, root's profile", dir: 0o777},
		{name: "everybody, profile of the owner of the directory", uid: other, dirUID: other, dir: 0o777},
		{name: "everybody, link", uid: other, link: true, dir: 0o777, rejected: true},
		{name: "everybody, root's link", link: true, dir: 0o777},
		{name: "shared group", uid: other, gid: shared, dir: 0o775 | os.ModeSetgid, rejected: true},
		{name: "group of the staff", uid: other, gid: staff, dir: 0o775 | os.ModeSetgid},
		{name: "nobody", uid: other, dir: 0o755},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, elsewhere := t.TempDir(), t.TempDir()
			path := filepath.Join(dir, "generic.toml")
			file := path
			if c.link {
				file = filepath.Join(elsewhere, "file.toml")
			}
			if err := os.WriteFile(file, []byte(profile), 0o644); err != nil {
				t.Fatal(err)
			}
			if c.link {
				if err := os.Symlink(file, path); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(os.Lchown(path, c.uid, c.gid), os.Chown(dir, c.dirUID, c.gid), os.Chmod(dir, c.dir|os.ModeSticky)); err != nil {
				t.Fatal(err)
			}
			p, err := Finder{Dirs: []string{dir}}.Find("generic", "/")
			if c.rejected != errors.Is(err, ErrWritable) || !c.rejected && (err != nil || p.Title != "here") {
				t.Errorf("got %v", err)
			}
			if c.rejected && !strings.Contains(hints.Of(err), "chmod") {
				t.Errorf("hint %q", hints.Of(err))
			}
			if _, err := (Finder{}).Find(path, "/"); err != nil {
				t.Errorf("by its path: %v", err)
			}
		})
	}
}

// TestHintKeepsSharedDirectories checks the hint for a directory far above a profile, which may be
// shared intentionally. The sticky bit is sufficient for it.
func TestHintKeepsSharedDirectories(t *testing.T) {
	project := t.TempDir()
	dir := filepath.Join(project, "sites")
	path := filepath.Join(dir, "ours.toml")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(path, nil, 0o644), os.Chmod(project, 0o777), os.Chmod(dir, 0o777)); err != nil {
		t.Fatal(err)
	}
	_, _, err := readProfile(path, "", "")
	if hint := hints.Of(err); !strings.Contains(hint, "`chmod +t "+project+"`") || !strings.Contains(hint, "`chmod go-w "+dir+"`") {
		t.Errorf("got %v (hint %q)", err, hint)
	}
	if hint := hints.Of(err); strings.Count(hint, "chmod") != 2 {
		t.Errorf("the hint %q changes other permissions", hint)
	}
	// Following the hint fixes the error.
	if err := errors.Join(os.Chmod(project, 0o777|os.ModeSticky), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := readProfile(path, "", ""); err != nil {
		t.Error(err)
	}
}

// TestFindChecksLinks checks a profile that is a symbolic link: other users must not be able to replace
// the link, a link that it leads to, or the target.
func TestFindChecksLinks(t *testing.T) {
	for _, tt := range []struct {
		name                  string
		link, between, target os.FileMode // of the directories
		rejected              bool
	}{
		{name: "only the owner", link: 0o755, between: 0o755, target: 0o755},
		{name: "everybody, directory of the link", link: 0o777, between: 0o755, target: 0o755, rejected: true},
		{name: "everybody, directory of the second link", link: 0o755, between: 0o777, target: 0o755, rejected: true},
		{name: "everybody, directory of the target", link: 0o755, between: 0o755, target: 0o777, rejected: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, between, elsewhere := t.TempDir(), t.TempDir(), t.TempDir()
			path, second, target := filepath.Join(dir, "ours.toml"), filepath.Join(between, "link.toml"), filepath.Join(elsewhere, "file.toml")
			if err := errors.Join(os.WriteFile(target, nil, 0o644), os.Symlink(second, path), os.Symlink(target, second),
				os.Chmod(dir, tt.link), os.Chmod(between, tt.between), os.Chmod(elsewhere, tt.target)); err != nil {
				t.Fatal(err)
			}
			_, _, err := readProfile(path, "", "")
			if errors.Is(err, ErrWritable) != tt.rejected || !tt.rejected && err != nil {
				t.Fatalf("got %v", err)
			}
			fix := "`chmod go-w " + dir + "`"
			switch os.FileMode(0o777) {
			case tt.between:
				fix = "`chmod +t " + between + "`"
			case tt.target:
				fix = "`chmod go-w " + elsewhere + "`"
			}
			if hint := hints.Of(err); tt.rejected && (strings.Count(hint, "chmod") != 1 || !strings.Contains(hint, fix)) {
				t.Errorf("hint %q", hint)
			}
		})
	}
	// A directory with two names is listed once.
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "ours.toml"), nil, 0o644), os.Symlink(dir, link), os.Chmod(dir, 0o777)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := readProfile(filepath.Join(link, "ours.toml"), "", ""); strings.Count(hints.Of(err), "chmod") != 1 {
		t.Errorf("got %v (hint %q)", err, hints.Of(err))
	}
}

// TestGolden compares the errors for invalid profiles, and for jobs that violate a valid one,
// with golden files.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.toml")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files (%v)", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var found error
			if strings.HasPrefix(filepath.Base(file), "profile-") {
				_, found = Parse("bad", "site.toml", src)
			} else {
				found = lintFile(t, src)
			}
			if found == nil {
				t.Fatal("nothing is wrong with it")
			}
			golden := strings.TrimSuffix(file, suffix) + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(found.Error()+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil || found.Error()+"\n" != string(want) {
				t.Errorf("got:\n%v\nwant:\n%s(%v)", found, want, err)
			}
		})
	}
}

// newTestFinder returns a finder for the profiles in testdata.
func newTestFinder(t *testing.T) Finder {
	t.Helper()
	dir, err := filepath.Abs("testdata/sites")
	if err != nil {
		t.Fatal(err)
	}
	return Finder{Dirs: []string{dir}}
}

// lintFile lints a job file for its site.
func lintFile(t *testing.T, src []byte) error {
	job, err := jobs.Parse("job.toml", src)
	if err != nil {
		t.Fatal(err)
	}
	p, err := newTestFinder(t).Find(job.Site, "")
	if err != nil {
		t.Fatal(err)
	}
	p.Apply(job)
	if found := p.Lint(job); len(found) > 0 {
		return found
	}
	return nil
}

// TestApply checks that a profile sets only values that the job file does not give.
func TestApply(t *testing.T) {
	p, err := newTestFinder(t).Find("atoll", "")
	if err != nil {
		t.Fatal(err)
	}
	parse := func(slurm string) *jobs.Job {
		job, err := jobs.Parse("job.toml", []byte("name = \"x\"\ncommand.argv = [\"x\"]\n[slurm]\n"+slurm))
		if err != nil {
			t.Fatal(err)
		}
		p.Apply(job)
		return job
	}
	if s := parse("").Slurm; s.Partition != "gpu" || s.QOS != "normal" || s.Time != "00:30:00" || s.CPUsPerTask != 16 || s.GPUBind != "closest" || !s.Exclusive {
		t.Errorf("defaults: %+v", s)
	}
	given := parse("partition = \"long\"\nqos = \"high\"\ntime = \"1:00:00\"\ncpus_per_task = 1\ngpu_bind = \"none\"\nexclusive = false\n").Slurm
	if given.Partition != "long" || given.QOS != "high" || given.Time != "1:00:00" || given.CPUsPerTask != 1 || given.GPUBind != "none" || given.Exclusive {
		t.Errorf("a profile changed what the file gives: %+v", given)
	}
}

// TestGPURequest checks Slurm's options for each kind of GPU request.
func TestGPURequest(t *testing.T) {
	for request, want := range map[GPURequest]string{
		"gres": "--gres=gpu:4", "gres:a100": "--gres=gpu:a100:4", "gpus-per-node": "--gpus-per-node=4", "gpus-per-node:h100": "--gpus-per-node=h100:4", "gpus": "--gpus=12", "none": "", "": "--gres=gpu:4",
	} {
		if got := strings.Join(request.Options(3, 4, ""), " "); got != want {
			t.Errorf("%q: got %q, want %q", request, got, want)
		}
		if got := request.Options(3, 0, "v100"); got != nil {
			t.Errorf("%q without GPUs: %q", request, got)
		}
	}
}

// TestTypedGPURequest checks that a type in the job file replaces the type of the site.
func TestTypedGPURequest(t *testing.T) {
	for request, want := range map[GPURequest]string{
		"gres": "--gres=gpu:3g.20gb:4", "gres:a100": "--gres=gpu:3g.20gb:4", "gpus-per-node": "--gpus-per-node=3g.20gb:4", "gpus-per-node:h100": "--gpus-per-node=3g.20gb:4", "gpus": "--gpus=3g.20gb:12", "none": "",
	} {
		if got := strings.Join(request.Options(3, 4, "3g.20gb"), " "); got != want {
			t.Errorf("%q: got %q, want %q", request, got, want)
		}
	}
}

// FuzzParse checks that no file causes a panic and that every error has a message.
func FuzzParse(f *testing.F) {
	for _, name := range (Finder{}).Names() {
		p, err := Finder{}.Find(name, "")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(p.Source())
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		if len(src) > 1<<15 {
			return
		}
		_, err := Parse("site", "site.toml", src)
		var found jobs.Diagnostics
		if err != nil && (!errors.As(err, &found) || len(found) == 0 || found[0].Message == "") {
			t.Fatalf("%T: %v", err, err)
		}
	})
}

// TestLoginLimitHoldsOnLoginNodesOnly checks which hosts count as login nodes: hosts whose names
// match or, without names, hosts with Slurm outside of jobs.
func TestLoginLimitHoldsOnLoginNodesOnly(t *testing.T) {
	const head = "title = \"x\"\nsources = [\"https://x.org\"]\nread = \"2026-11-21\"\n"
	for _, c := range []struct {
		name          string
		login         string
		host          string
		hasSlurm, job bool
		ranks         int
		limited       bool
	}{
		{"no limit", "", "login1", true, false, 0, false},
		{"login node", "[login]\nmax_ranks = 2\n", "login1", true, false, 2, true},
		{"forbidden", "[login]\nmax_ranks = 0\n", "login1", true, false, 0, true},
		{"laptop", "[login]\nmax_ranks = 2\n", "laptop", false, false, 2, false},
		{"compute node", "[login]\nmax_ranks = 2\n", "n1", true, true, 2, false},
		{"named", "[login]\nmax_ranks = 2\nhosts = [\"login[0-9]\"]\n", "login1.example.org", true, false, 2, true},
		{"named, in a job", "[login]\nmax_ranks = 2\nhosts = [\"login*\"]\n", "login1", true, true, 2, true},
		{"other name", "[login]\nmax_ranks = 2\nhosts = [\"login*\"]\n", "n1", true, false, 2, false},
	} {
		p, err := Parse("x", "x.toml", []byte(head+c.login))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if ranks, limited := p.LoginLimit(c.host, c.hasSlurm, c.job); ranks != c.ranks || limited != c.limited {
			t.Errorf("%s: got %d, %v, want %d, %v", c.name, ranks, limited, c.ranks, c.limited)
		}
	}
}

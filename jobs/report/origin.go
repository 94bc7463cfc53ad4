package report

import (
	"strconv"
)

// addOrigin adds the facts that are needed to reproduce the run.
func (p *page) addOrigin() {
	r := p.Run
	add := func(name, value string) {
		if value != "" {
			p.Origin = append(p.Origin, fact{name, value})
		}
	}
	add("run directory", r.Dir.Path)
	add("run", r.Record.Run)
	add("folder of the job file", r.Record.Base)
	add("created (UTC)", formatTime(r.Record.Created))
	add("ddpbatch that made it", r.Record.Version)
	if len(r.Checkpoints) > 0 && r.Checkpoints[0].Manifest != nil {
		m := r.Checkpoints[0].Manifest
		add("ddpbatch of the last checkpoint", m.Program)
		add("seed", strconv.FormatUint(m.Seed, 10))
		add("digest of the data", m.DataDigest)
		add("digest of the settings", m.SpecDigest)
	}
	if s := r.Record.Last(); s != nil {
		add("Slurm", s.Slurm)
		add("site", s.Site)
		add("submitted by", s.User+" on "+s.Host)
		add("job file (SHA-256)", s.SpecSHA256)
		add("program (SHA-256)", s.ProgramSHA256)
	}
	p.addCode(add)
	p.Submissions = r.Record.Submissions
}

// addCode adds the state of the user's program as submitted. Without a submission, it uses the
// state that the last attempt recorded.
func (p *page) addCode(add func(name, value string)) {
	code := p.Run.Code
	if s := p.Run.Record.Last(); s != nil && s.Code != nil {
		code = s.Code
	}
	if code == nil {
		return
	}
	add("code", code.Folder)
	commit := code.Commit
	switch {
	case commit == "":
		commit = "none: no git work tree, or no git there"
	case code.Dirty:
		commit += ", with changes that no commit has"
	}
	add("git commit", commit)
	add("git branch", code.Branch)
	add("git remote", code.Remote)
	add("snapshot (SHA-256)", code.SHA256)
}

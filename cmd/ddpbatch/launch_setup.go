package main

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/templates/sites"
)

// warnIgnoredSetup warns about keys of [setup] that launch does not apply. For submitted jobs, the
// batch script applies them before it starts the ranks. Only Slurm starts ranks in a
// container.
func (p *program) warnIgnoredSetup(job *jobs.Job, site *sites.Profile, inAllocation bool) {
	if keys := p.ignoredSetupKeys(job, site); len(keys) > 0 {
		p.note("warning: launch does not apply %s, only a submitted job does; set up this shell accordingly first", listed(keys))
	}
	if job.Setup.Container.Image != "" && !inAllocation {
		p.note("warning: launch does not use setup.container on this machine: the ranks run outside of the image")
	}
}

// ignoredSetupKeys returns the keys that a batch script would apply, except for modules and the conda
// environment that are already active in this shell.
func (p *program) ignoredSetupKeys(job *jobs.Job, site *sites.Profile) (keys []string) {
	add := func(key string, missing bool) {
		if missing {
			keys = append(keys, key)
		}
	}
	list, _ := p.lookup("LOADEDMODULES")
	loaded := strings.Split(list, ":")
	lacks := func(modules []jobs.Word) bool {
		return slices.ContainsFunc(modules, func(m jobs.Word) bool {
			return !slices.ContainsFunc(loaded, func(l string) bool { return strings.HasPrefix(l+"/", string(m)+"/") })
		})
	}
	conda := string(job.Setup.Conda)
	name, _ := p.lookup("CONDA_DEFAULT_ENV")
	prefix, _ := p.lookup("CONDA_PREFIX")
	active := conda == name || conda == prefix || conda == filepath.Base(prefix)

	add("setup.lines", len(job.Setup.Lines) > 0)
	_, applied := job.Setup.ApplySteps(nil)
	add("steps of setup.steps other than env and venv", !applied)
	add("setup.modules", lacks(job.Setup.Modules))
	add("setup.conda", conda != "" && !active)
	add("the lines of site "+site.Name(), len(site.Setup.Lines) > 0)
	add("the modules of site "+site.Name(), lacks(site.Setup.Modules))
	return keys
}

package launch

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/templates/sites"
)

// containerArgs returns the options of srun, or the command in front of a rank's command line, that
// start the rank in the job's container. Both are empty for a job without a container.
//
// The image does not need to contain any part of ddpbatch. The directories of the program, the
// run, and the job's files are mounted at the same paths as on the host. Shifter mounts the
// host's file systems automatically. For the container engine of CSCS, the file that names the
// image also lists the mounts.
func containerArgs(j *jobs.Job, site *sites.Profile, runDir, binary string) (srun, prefix []string) {
	c := j.Setup.Container
	if c.Image == "" {
		return nil, nil
	}
	options := jobs.Strings(c.Options)
	if c.Options == nil && c.Runtime == site.Container.Runtime {
		options = jobs.Strings(site.Container.Options)
	}
	jobMounts := jobs.Strings(c.Mounts)
	image := string(c.Image)
	mounts := append(requiredDirs(j, runDir, binary), jobMounts...)
	switch c.Runtime {
	case jobs.ContainerApptainer, jobs.ContainerSingularity:
		prefix = append([]string{string(c.Runtime), "exec"}, options...)
		return nil, append(prefix, "--bind", strings.Join(mounts, ","), image)
	case jobs.ContainerCharliecloud:
		prefix = append([]string{"ch-run"}, options...)
		for _, m := range mounts {
			prefix = append(prefix, "--bind="+m)
		}
		return nil, append(prefix, image, "--")
	case jobs.ContainerShifter:
		prefix = append([]string{"shifter", "--image=" + image}, options...)
		for _, m := range jobMounts {
			prefix = append(prefix, "--volume="+mountPair(m))
		}
		return nil, append(prefix, "--")
	case jobs.ContainerPyxis:
		for i, m := range mounts {
			mounts[i] = mountPair(m)
		}
		return append([]string{"--container-image=" + image, "--container-mounts=" + strings.Join(mounts, ",")}, options...), nil
	case jobs.ContainerEDF:
		return append([]string{"--environment=" + image}, options...), nil
	}
	return nil, nil
}

// mountPair returns a mount with source and target: "/data" becomes "/data:/data".
func mountPair(mount string) string {
	if strings.Contains(mount, ":") {
		return mount
	}
	return mount + ":" + mount
}

// requiredDirs returns the directories and files that a rank needs. It omits duplicates, and paths
// inside of other directories of the list.
func requiredDirs(j *jobs.Job, runDir, binary string) []string {
	all := []string{runDir, filepath.Dir(binary)}
	add := func(path jobs.Text) {
		if filepath.IsAbs(string(path)) {
			all = append(all, string(path))
		}
	}
	add(j.Setup.Venv)
	for _, step := range j.Setup.Steps {
		add(jobs.Text(step.Venv))
	}
	if f := string(j.Setup.Secrets.File); f != "" {
		add(jobs.Text(filepath.Dir(f)))
	}
	if j.Command != nil {
		add(j.Command.Workdir)
		if dir := j.Command.CheckpointDir; !strings.Contains(string(dir), "{") {
			add(dir)
		} else if before, _, _ := strings.Cut(string(dir), "{"); before != "" {
			add(jobs.Text(filepath.Dir(before)))
		}
	}
	if j.Train != nil {
		add(j.Train.Model.Weights)
		for _, path := range []jobs.Text{j.Train.Data.Path, j.Train.Data.EvalPath} {
			if j.Train.Data.Kind == jobs.DataTokens && path != "" {
				path = jobs.Text(filepath.Dir(string(path))) // the path may be a pattern
			}
			add(path)
		}
	}
	slices.Sort(all)
	var out []string
	for _, path := range all {
		inside := slices.ContainsFunc(out, func(o string) bool { return path == o || strings.HasPrefix(path, o+"/") })
		if !inside {
			out = append(out, path)
		}
	}
	return out
}

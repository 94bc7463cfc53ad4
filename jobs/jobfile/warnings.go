package jobfile

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/safefile"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/trainer"
	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/data"
)

// maxCounts is the maximum number of data sets whose samples are counted. The trials of a sweep can have thousands
// of different ones, and each takes up to a second.
const maxCounts = 16

// checkValues checks the job file together with the site and this machine. It returns errors in
// found, and warnings about values that are probably unintended in warnings.
func (f *File) checkValues() (found, warnings jobs.Diagnostics) {
	counted := map[data.Options]int{}
	errs, doubts := diagnosticSet{what: "errors"}, diagnosticSet{what: "warnings"}
	for _, job := range f.All() {
		wrong, unsure := job.CheckProgram(f.Base)
		errs.add(wrong)
		wrong, components := job.CheckComponents(f.Base)
		errs.add(wrong)
		doubts.add(job.Warnings(), f.Site.Doubts(job), mpiWarnings(job), unsure, components)
		if job.Train == nil {
			continue
		}
		has, kernels := cpu.HasBF16()
		doubts.add(precisionWarnings(job, has, kernels, hasGPU()))
		o := trainer.DataOptions(job.Train)
		o.Path, o.EvalPath = resolved(f.Base, o.Path), resolved(f.Base, o.EvalPath)
		o.Seed = 0             // the number of samples does not depend on it
		n, known := counted[o] // trials of a sweep often share their data
		if !known && len(counted) < maxCounts {
			n, _ = data.Count(context.Background(), o)
			counted[o] = n
		}
		wrong, unsure = job.CheckSamples(n)
		errs.add(wrong)
		doubts.add(unsure)
	}
	return errs.sorted(), doubts.sorted()
}

// resolved returns an absolute path, or "" for an empty path.
func resolved(base, path string) string {
	if path == "" {
		return ""
	}
	return jobs.ResolvePath(base, jobs.Text(path))
}

// A diagnosticSet holds the first different diagnostics of a file. The trials of a sweep produce duplicates.
type diagnosticSet struct {
	what string // errors or warnings
	all  jobs.Diagnostics
	seen map[jobs.Diagnostic]bool
}

// add adds diagnostics that the set does not have, up to one more than the maximum.
func (s *diagnosticSet) add(lists ...jobs.Diagnostics) {
	for _, list := range lists {
		for _, d := range list {
			key := d
			key.Source = "" // long, and determined by the line
			if s.isFull() || s.seen[key] {
				continue
			}
			if s.seen == nil {
				s.seen = map[jobs.Diagnostic]bool{}
			}
			s.seen[key] = true
			s.all = append(s.all, d)
		}
	}
}

// isFull reports whether the set has more than the maximum number of diagnostics.
func (s *diagnosticSet) isFull() bool { return len(s.all) > jobs.MaxDiagnostics }

// list returns the diagnostics in the order in which they were added. If there are more than the maximum, the
// last one reports this.
func (s *diagnosticSet) list() jobs.Diagnostics {
	if !s.isFull() {
		return s.all
	}
	return append(s.all[:jobs.MaxDiagnostics:jobs.MaxDiagnostics], jobs.Diagnostic{File: s.all[0].File, Message: "and more " + s.what})
}

// sorted returns the diagnostics like list, by line and column.
func (s *diagnosticSet) sorted() jobs.Diagnostics {
	slices.SortStableFunc(s.all[:min(len(s.all), jobs.MaxDiagnostics)], func(a, b jobs.Diagnostic) int { return cmp.Or(a.Line-b.Line, a.Column-b.Column) })
	return s.list()
}

// writerWarnings returns warnings about a job file or a program that every user can change or replace.
// Both run commands as the user who submits them. There is no warning about a file that a group can
// change, because that is often intended. what names the file in messages.
func writerWarnings(path, what string) (warnings jobs.Diagnostics) {
	file, err := os.Stat(path)
	if err != nil || !file.Mode().IsRegular() {
		return nil // a pipe, such as <(command)
	}
	warn := func(at string, mode fs.FileMode, hint string) {
		d := jobs.Diagnostic{File: path, Allowed: hint,
			Message: fmt.Sprintf("every user can change this %s and thereby run commands as you: %q has mode %s", what, at, safefile.Octal(mode))}
		if !slices.Contains(warnings, d) {
			warnings = append(warnings, d)
		}
	}
	if safefile.WritersOf(file) == safefile.Anyone {
		owner, _ := safefile.Owner(file)
		warn(path, file.Mode(), writableHint(path, what, owner, os.Geteuid()))
	}
	name, err := filepath.Abs(path)
	if err != nil {
		return warnings
	}
	for _, dir := range rundir.Exposures(name) {
		if !dir.Anyone {
			continue
		}
		hint := "move the " + what + " to a directory that only you can write to"
		if dir.Owner == os.Geteuid() {
			hint = "run `chmod o-w " + jobs.ShellQuote(dir.Path) + "`"
		}
		warn(dir.Path, dir.Mode, hint)
	}
	return warnings
}

// writableHint returns the hint for the user with the given ID about a file that every user can write to.
func writableHint(path, what string, owner, uid int) string {
	if owner != uid && uid != 0 {
		return "copy the " + what + " to a directory that only you can write to"
	}
	return "run `chmod o-w " + jobs.ShellQuote(path) + "`"
}

// mpiTypes are the srun --mpi plugins of Slurm and Cray. Names of specific PMIx versions start
// with pmix_v, such as pmix_v3.
var mpiTypes = []string{"none", "pmi2", "pmix", "cray_shasta", "openmpi"}

// mpiWarnings returns warnings about MPI settings that seem wrong on this machine, but that can
// be correct on the nodes.
func mpiWarnings(j *jobs.Job) (warnings jobs.Diagnostics) {
	report := func(key, format string, args ...any) {
		d := j.Near(key)
		d.Message = key + ": " + fmt.Sprintf(format, args...)
		warnings = append(warnings, d)
	}
	if m := string(j.Slurm.MPI); m != "" && !slices.Contains(mpiTypes, m) && !strings.HasPrefix(m, "pmix_v") {
		report("slurm.mpi", "%q is not one of %s; `srun --mpi=list` on the cluster lists the supported types", m, strings.Join(mpiTypes, ", "))
	}
	if l := string(j.Network.MPILibrary); strings.HasPrefix(l, "/") {
		if _, err := os.Stat(l); err != nil {
			report("network.mpi_library", "%q does not exist on this machine; it must exist on the nodes: %v", l, err)
		}
	}
	return warnings
}

// precisionWarnings returns a warning if a job trains in bf16 on CPUs, and the CPU of this machine
// has no instructions for it. kernels is the name of its fastest kernels. There is no warning if the
// job may train on GPUs.
func precisionWarnings(j *jobs.Job, hasBF16 bool, kernels string, hasGPU bool) jobs.Diagnostics {
	t := j.Train
	onCPU := t.Device == jobs.DeviceCPU || t.Device == jobs.DeviceAuto && j.Slurm.GPUsPerNode == 0 && !hasGPU
	if t.Precision != jobs.PrecisionBF16 || hasBF16 || !onCPU {
		return nil
	}
	d := j.Near("train.precision")
	d.Message = fmt.Sprintf("train.precision: \"bf16\" is slower than \"fp32\" on CPUs without bf16 instructions (AVX512_BF16), such as the CPU of this machine (%s)", kernels)
	d.Allowed = `use "fp32", unless the nodes have different CPUs`
	return jobs.Diagnostics{d}
}

// hasGPU reports whether this machine has an NVIDIA GPU with a driver.
func hasGPU() bool {
	_, err := os.Stat("/dev/nvidiactl")
	return err == nil
}

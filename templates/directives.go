package templates

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/ddpbatch/ddpbatch/jobs"
)

// resourceOptions returns the options that request GPUs and other generic resources. sbatch
// uses only the last --gres, so both are in one option.
func resourceOptions(in Input) []string {
	s := in.Job.Slurm
	options := in.Site.Request.GPUs.Options(in.Job.AllocatedNodes(), s.GPUsPerNode, s.GPUType)
	if s.Gres == "" {
		return options
	}
	for i, o := range options {
		if strings.HasPrefix(o, "--gres=") {
			options[i] += "," + string(s.Gres)
			return options
		}
	}
	return append(options, "--gres="+string(s.Gres))
}

// directives returns the options of sbatch for keys that the template does not know, and the
// job's own options.
func directives(s *jobs.Slurm) (options []string) {
	add := func(name, value string) {
		if value != "" {
			options = append(options, "--"+name+"="+value)
		}
	}
	number := func(n int) string {
		if n == 0 {
			return ""
		}
		return fmt.Sprint(n)
	}
	add("mem-per-cpu", string(s.MemoryPerCPU))
	add("mem-per-gpu", string(s.MemoryPerGPU))
	add("exclude", string(s.Exclude))
	add("nodelist", string(s.NodeList))
	add("hint", string(s.Hint))
	add("licenses", string(s.Licenses))
	add("switches", string(s.Switches))
	add("segment", number(s.Segment))
	add("begin", string(s.Begin))
	add("nice", number(s.Nice))
	add("wckey", string(s.WCKey))
	if m := s.Mail; m != nil {
		add("mail-user", string(m.User))
		add("mail-type", strings.ToUpper(strings.Join(jobs.Strings(m.Events), ",")))
	}
	return append(options, jobs.Strings(s.Options)...)
}

// omitDirectives removes options from the #SBATCH lines at the beginning of a script.
func omitDirectives(script []byte, omit []jobs.Directive) []byte {
	if len(omit) == 0 {
		return script
	}
	isOmitted := map[string]bool{}
	for _, name := range omit {
		isOmitted[string(name)] = true
	}
	if isOmitted["requeue"] {
		isOmitted["no-requeue"] = true
	}
	var out bytes.Buffer
	header := true
	for line := range bytes.Lines(script) {
		header = header && bytes.HasPrefix(line, []byte("#"))
		option, isDirective := bytes.CutPrefix(line, []byte("#SBATCH --"))
		name, _, _ := strings.Cut(strings.TrimSpace(string(option)), "=")
		if header && isDirective && isOmitted[name] {
			continue
		}
		out.Write(line)
	}
	return out.Bytes()
}

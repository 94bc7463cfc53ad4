package submit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/templates/sites"
)

// The fake programs store a cluster in a directory. ID.job contains a job's comment. ID.state
// or ID_ELEMENT.state contains its state in squeue ("RUNNING", "FAILED 256 reason"). sbatch.do
// and squeue.do are shell code that the programs run in addition.
var fakes = map[string]string{
	"sbatch": `#!/bin/sh
cd "$FAKE" || exit 9
[ "$1" = --version ] && { echo "slurm 22.05.8"; exit 0; }
echo "$*" >>calls
made() {
	for arg; do case $arg in --comment=*) comment=${arg#--comment=} ;; esac; done
	id=$((101 + $(ls | grep -c '\.job$')))
	echo "$comment" >$id.job
	[ -f $id.state ] || echo PENDING >$id.state
}
. ./sbatch.do
`,
	"squeue": `#!/bin/sh
cd "$FAKE" || exit 9
. ./squeue.do
line() {
	raw=${1%%_*} task=N/A
	case $1 in *_*) task=${1#*_} ;; esac
	read -r state code reason <$1.state
	echo "$raw|$raw|$task|$state|n1|0:10|N/A|N/A|0|${code:-0}|${reason:-None}"
}
for arg; do
	case $arg in
	--me) for f in *.job; do [ -f "$f" ] && echo "${f%.job}|${f%.job}|N/A|0|$(cat $f)"; done ;;
	--jobs=*)
		for id in $(echo ${arg#--jobs=} | tr , ' '); do
			for f in $id.state ${id}_*.state; do [ -f "$f" ] && line ${f%.state}; done
		done ;;
	esac
done
exit 0
`,
	"sacct": "#!/bin/sh\necho 'Slurm accounting storage is disabled' >&2\nexit 1\n",
}

// normal is an sbatch that succeeds.
const normal = `made "$@"; echo $id`

type cluster struct {
	t    *testing.T
	fake string // directory of the cluster
	bin  string
	base string // directory of the user
	said []string

	submitter Submitter
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, fake: t.TempDir(), bin: t.TempDir(), base: t.TempDir()}
	for name, text := range fakes {
		if err := os.WriteFile(filepath.Join(c.bin, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	c.sbatch(normal)
	c.squeue("")
	c.submitter = Submitter{Slurm: slurm.Client{Environ: c.environ()}, Say: func(line string) { c.said = append(c.said, line) },
		timeouts: timeouts{reply: 2 * time.Second, orphan: 300 * time.Millisecond, poll: 20 * time.Millisecond}}
	return c
}

func (c *cluster) environ() []string {
	return []string{"PATH=" + c.bin + ":" + os.Getenv("PATH"), "FAKE=" + c.fake, "HOME=" + c.base}
}

func (c *cluster) write(dir, name, text string) {
	c.t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) sbatch(does string) { c.write(c.fake, "sbatch.do", does+"\n") }
func (c *cluster) squeue(does string) { c.write(c.fake, "squeue.do", does+"\n") }

// state sets the state that squeue reports for a job. With an empty state, squeue has
// forgotten the job.
func (c *cluster) state(id, state string) {
	c.t.Helper()
	if state != "" {
		c.write(c.fake, id+".state", state+"\n")
	} else if err := os.Remove(filepath.Join(c.fake, id+".state")); err != nil && !errors.Is(err, os.ErrNotExist) {
		c.t.Fatal(err)
	}
}

// jobs returns the number of jobs.
func (c *cluster) jobs() int {
	c.t.Helper()
	found, err := filepath.Glob(filepath.Join(c.fake, "*.job"))
	if err != nil {
		c.t.Fatal(err)
	}
	return len(found)
}

// calls returns the command lines of sbatch.
func (c *cluster) calls() []string {
	c.t.Helper()
	text, err := os.ReadFile(filepath.Join(c.fake, "calls"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

const single = `name = %q
[slurm]
time = "00:10:00"
%s
[command]
argv = ["true"]
%s
`

const swept = `name = "s"
[sweep.grid]
setup.env.X = ["a", "b", "c"]
[slurm]
time = "00:10:00"
[command]
argv = ["true"]
`

func (c *cluster) dir(name string) rundir.Dir {
	return rundir.Dir{Path: filepath.Join(c.base, "runs", name)}
}

// request returns the request for a job file.
func (c *cluster) request(text string) Request {
	c.t.Helper()
	job, err := jobs.Parse("job.toml", []byte(text))
	if err != nil {
		c.t.Fatal(err)
	}
	site, err := sites.Finder{}.Find(job.Site, c.base)
	if err != nil {
		c.t.Fatal(err)
	}
	return Request{Job: job, Site: site, Base: c.base, Spec: []byte(text), Dir: c.dir(string(job.Name)).Path,
		Script: func(dir rundir.Dir, elements []int) ([]byte, error) {
			array := ""
			if job.Sweep != nil {
				array = "#SBATCH --array=" + job.Sweep.Array(elements) + "\n"
			}
			return []byte("#!/bin/sh\n" + array + "ddpbatch launch --run-dir " + dir.Path + "\n"), nil
		},
		Find: func(run string) (*rundir.Dir, error) {
			if strings.Trim(run, "0123456789") == "" {
				return nil, nil
			}
			dir, err := rundir.Open(c.dir(run).Path)
			return &dir, err
		},
		Version: "1", Program: "digest", Host: "login", User: "ada", Environ: c.environ()}
}

func (c *cluster) submit(req Request) (Result, error) {
	c.t.Helper()
	return c.submitter.Submit(c.t.Context(), req)
}

// submitted submits req and fails the test unless it creates a job.
func (c *cluster) submitted(req Request) Result {
	c.t.Helper()
	r, err := c.submit(req)
	if err != nil || r.JobID == "" {
		c.t.Fatalf("submit: %+v, %v; said %q", r, err, c.said)
	}
	return r
}

func (c *cluster) record(dir rundir.Dir) rundir.Record {
	c.t.Helper()
	r, err := dir.ReadRecord()
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

// mustFail fails the test unless err contains all words.
func mustFail(t *testing.T, err error, words ...string) {
	t.Helper()
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("error %v; want %q in it", err, w)
		}
	}
}

func job(name, slurm, command string) string { return fmt.Sprintf(single, name, slurm, command) }

package faults

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/tests/program"
)

var (
	soakFaults = flag.Int("faults", 20, "how many faults the soak test has a training suffer")
	soakSeed   = flag.Uint64("seed", 1, "of the soak test's schedule")
)

// A calamity is a fault that the training must survive, automatically or after a new start.
type calamity struct {
	name   string
	strike func(r *training, random *rand.Rand)
}

var calamities = []calamity{
	{"a rank is killed", func(r *training, random *rand.Rand) { r.kill(random.IntN(2), syscall.SIGKILL) }},
	{"a rank crashes", func(r *training, random *rand.Rand) { r.kill(random.IntN(2), syscall.SIGABRT) }},
	{"a rank is frozen", func(r *training, random *rand.Rand) { r.kill(random.IntN(2), syscall.SIGSTOP) }},
	{"both ranks are killed", func(r *training, _ *rand.Rand) {
		for _, p := range r.ranks() {
			_ = syscall.Kill(p.pid, syscall.SIGKILL) // the second rank may have exited with the first
		}
	}},
	{"both ranks are suspended for a while", func(r *training, _ *rand.Rand) {
		ranks := r.ranks()
		for _, s := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
			for _, p := range ranks {
				if err := syscall.Kill(p.pid, s); err != nil {
					r.t.Fatal(err)
				}
			}
			if s == syscall.SIGSTOP {
				time.Sleep(1500 * time.Millisecond)
			}
		}
	}},
	{"the launcher is killed, and started again", func(r *training, _ *rand.Rand) { r.killLauncher(); r.start() }},
	{"the run is stopped, and goes on", func(r *training, random *rand.Rand) {
		r.signal([]syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}[random.IntN(3)])
		if o := r.end(); o.Code != 3 {
			r.t.Fatal(o)
		}
		r.start()
	}},
	{"the newest checkpoint is damaged, and a rank is killed", func(r *training, random *rand.Rand) {
		// While both ranks are stopped, so that no newer checkpoint is saved meanwhile.
		r.kill(0, syscall.SIGSTOP)
		r.kill(1, syscall.SIGSTOP)
		r.damageNewest(random)
		r.kill(random.IntN(2), syscall.SIGKILL)
		for _, p := range r.ranks() {
			_ = syscall.Kill(p.pid, syscall.SIGCONT) // the killed rank may be gone
		}
	}},
	{"the newest checkpoint is cut off while nothing runs", func(r *training, random *rand.Rand) {
		r.killLauncher()
		r.damageNewest(random)
		r.start()
	}},
	{"a rank is killed, and strangers come while the ranks join again", func(r *training, random *rand.Rand) {
		r.kill(random.IntN(2), syscall.SIGKILL)
		step := r.newest()
		for end := time.Now().Add(time.Minute); r.newest() == step && time.Now().Before(end); {
			for _, addr := range r.listenAddresses() {
				connectMany(addr, 64, sendGarbage)
			}
		}
	}},
}

// killLauncher kills the launcher and waits until no process of the run is left.
func (r *training) killLauncher() {
	r.t.Helper()
	r.signal(syscall.SIGKILL)
	_ = r.launcher.Wait()
	r.waitForExit()
}

// damageNewest flips a bit in a file of the newest checkpoint, or truncates the file.
func (r *training) damageNewest(random *rand.Rand) {
	r.t.Helper()
	files, err := filepath.Glob(filepath.Join(r.dir, "checkpoints", fmt.Sprintf("step-%08d", r.newest()), "*"))
	if err != nil || len(files) == 0 {
		r.t.Fatal(files, err)
	}
	file := files[random.IntN(len(files))]
	b, err := os.ReadFile(file)
	if err != nil {
		r.t.Fatal(err)
	}
	at := random.IntN(len(b))
	if random.IntN(2) == 0 {
		b = b[:at]
	} else {
		b[at] ^= 1 << random.IntN(8)
	}
	if err := os.WriteFile(file, b, 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// TestSoak injects faults into a run in a random order from the seed. Each fault occurs once before
// any fault repeats. The test checks that the weights are equal to those of an undisturbed run, and
// that each step has metrics exactly once.
func TestSoak(t *testing.T) {
	random := rand.New(rand.NewPCG(*soakSeed, 0))
	r := startEndless(t, "[network]\nheartbeat_timeout = \"2s\"\n[restart]\nmax_without_progress = 3\n")
	var order []int
	for i := range *soakFaults {
		if len(order) == 0 {
			order = random.Perm(len(calamities))
		}
		c := calamities[order[0]]
		order = order[1:]
		step := r.newest()
		c.strike(r, random)
		// Wait for two more checkpoints, so that a valid one is left after any next fault.
		r.waitForCheckpoint(r.newest() + 100)
		t.Logf("fault %d after step %d: %s", i+1, step, c.name)
		time.Sleep(time.Duration(random.IntN(100)) * time.Millisecond) // at any time between two checkpoints
	}
	r.signal(syscall.SIGINT)
	if o := r.end(); o.Code != 3 {
		t.Fatal(o)
	}
	r.checkFinish()
	var steps []int
	for _, f := range program.Figures(t, r.dir) {
		if f.Kind == "train" {
			steps = append(steps, f.Step)
		}
	}
	var want []int
	for s := 1; s <= r.newest(); s++ {
		if s%10 == 0 || s%stepsPerEpoch == 0 {
			want = append(want, s)
		}
	}
	if !slices.Equal(steps, want) {
		t.Errorf("figures of steps %v, want %v", steps, want)
	}
}

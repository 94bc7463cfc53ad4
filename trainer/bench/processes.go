package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/wire"
)

// rankVariable makes a process a rank of a benchmark. tests/peers also sets it.
const rankVariable = "DDPBATCH_BENCH_RANK"

// MaxRanks is the maximum number of ranks of a benchmark. The callers of [RunRanks] check it.
const MaxRanks = 256

// A Rank is a rank of a benchmark in a separate process, as JSON in the environment of the process.
// The rank's listener is file descriptor 3.
type Rank struct {
	Rank   int      `json:"rank"`
	Addrs  []string `json:"addrs"`
	Secret string   `json:"secret"`
}

// RankFromEnv reports whether [RunRanks] started this process, and returns its rank.
func RankFromEnv(lookup func(name string) (string, bool)) (r Rank, ok bool, err error) {
	text, ok := lookup(rankVariable)
	if ok {
		if err = json.Unmarshal([]byte(text), &r); err != nil {
			err = fmt.Errorf("variable %s: %w", rankVariable, err)
		}
	}
	return r, ok, err
}

// RunRanks runs n ranks of this program on this machine, with the given arguments and environment. It
// waits for their end and returns the output of rank 0. If a rank fails, RunRanks kills ranks that do
// not end soon. The error names all ranks that failed.
func RunRanks(ctx context.Context, n int, arguments, env []string) ([]byte, error) {
	executable, err := os.Executable()
	if err != nil {
		return nil, err
	}
	secret, err := wire.NewSecret()
	if err != nil {
		return nil, err
	}
	all := Rank{Secret: secret.Encode()}
	var listeners []*os.File
	defer func() {
		for _, f := range listeners {
			f.Close()
		}
	}()
	for range n {
		l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			return nil, err
		}
		f, err := l.File()
		l.Close()
		if err != nil {
			return nil, err
		}
		all.Addrs, listeners = append(all.Addrs, l.Addr().String()), append(listeners, f)
	}
	var commands []*exec.Cmd
	parent := ctx
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	for r, listener := range listeners {
		all.Rank = r
		text, err := json.Marshal(all)
		if err != nil {
			return nil, err
		}
		cmd := exec.CommandContext(ctx, executable, arguments...)
		cmd.Env = append(slices.Clone(env), rankVariable+"="+string(text))
		cmd.ExtraFiles = []*os.File{listener}
		commands = append(commands, cmd)
	}
	ended := make(chan error, n)
	var out []byte
	for r, cmd := range commands {
		go func() {
			printed, err := cmd.Output()
			var failed *exec.ExitError
			if errors.As(err, &failed) {
				err = fmt.Errorf("rank %d: %w: %s", r, err, failed.Stderr)
			}
			if r == 0 {
				out = printed
			}
			ended <- err
		}()
	}
	// The rank with the cause may end after a rank that has lost its connection to it.
	var errs []error
	for range n {
		if err := <-ended; err != nil && ctx.Err() == nil {
			errs = append(errs, err)
			time.AfterFunc(rankEndTimeout, cancel)
		}
	}
	if err := context.Cause(parent); err != nil {
		return nil, err
	}
	return out, errors.Join(errs...)
}

// rankEndTimeout is how long the other ranks may take to end after one has failed.
const rankEndTimeout = 2 * time.Second

// Connect connects to the other ranks, through shared memory if memory is set, and through TCP
// otherwise. If authenticate is set, messages carry a MAC.
func (r Rank) Connect(ctx context.Context, memory, authenticate bool) (collective.Communicator, error) {
	const timeout = time.Minute
	secret, err := wire.ParseSecret(r.Secret)
	if err != nil {
		return nil, err
	}
	listener, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return nil, err
	}
	return collective.Connect(ctx, listener, collective.Options{Rank: r.Rank, Addrs: r.Addrs, Nodes: make([]int, len(r.Addrs)),
		Memory: memory, Authenticate: authenticate, Secret: secret, ConnectTimeout: timeout, Timeout: timeout})
}

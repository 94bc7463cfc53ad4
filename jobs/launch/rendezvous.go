package launch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/netif"
	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
	"github.com/ddpbatch/ddpbatch/trainer/wire"
)

// rendezvousFile is the rendezvous file. With it, ranks of `srun ddpbatch run`, or of a launcher
// other than ddpbatch, find rank 0. The file is in the run directory, and only its owner can
// read it. Its name is unique to the step and the restart.
type rendezvousFile struct {
	Addresses []string `json:"addresses"`
	Secret    string   `json:"secret"`
}

// joinWithoutLauncher makes rank 0 serve the rendezvous. All other ranks wait for its file. If
// a launcher does not name its starts, the file of an earlier start may still exist. The ranks
// then try that address without success until rank 0 writes the new file.
func (r *Rank) joinWithoutLauncher(ctx context.Context, o JoinOptions, id rendezvous.Identity) error {
	job, step := o.Info.rendezvousID()
	path := o.Dir.Rendezvous(job, step, o.Info.RestartCount)
	read := func() ([]byte, error) { return o.Dir.ReadRendezvous(job, step, o.Info.RestartCount) }
	if o.Info.Rank == 0 {
		addresses, secret, err := r.serveRendezvous(ctx, o)
		if err != nil {
			return err
		}
		r.secret = secret
		r.Session, err = rendezvous.Join(ctx, addresses, secret, id)
		return err
	}
	for {
		text, err := waitForRendezvous(ctx, read)
		if err != nil {
			return err
		}
		var file rendezvousFile
		if err := json.Unmarshal(text, &file); err != nil {
			return fmt.Errorf("read %q: %w", path, err)
		}
		if r.secret, err = wire.ParseSecret(file.Secret); err != nil {
			return fmt.Errorf("read %q: %w", path, err)
		}
		joining, stop := context.WithCancelCause(ctx)
		go watchRendezvous(joining, read, text, func() { stop(errRendezvousReplaced) })
		r.Session, err = rendezvous.Join(joining, file.Addresses, r.secret, id)
		replaced := errors.Is(context.Cause(joining), errRendezvousReplaced)
		stop(nil)
		if err == nil || !replaced {
			return err
		}
	}
}

var errRendezvousReplaced = errors.New("rank 0 has written a different address")

// watchRendezvous calls changed when the content of rank 0's file differs from text.
func watchRendezvous(ctx context.Context, read func() ([]byte, error), text []byte, changed func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(200 * time.Millisecond):
		}
		if current, err := read(); err == nil && !bytes.Equal(current, text) {
			changed()
			return
		}
	}
}

// serveRendezvous serves the rendezvous and writes its addresses and secret to the rendezvous
// file.
func (r *Rank) serveRendezvous(ctx context.Context, o JoinOptions) ([]string, wire.Secret, error) {
	p := o.Info
	secret, err := wire.NewSecret()
	if err != nil {
		return nil, secret, err
	}
	inventory, err := netif.Collect(ctx)
	if err != nil {
		return nil, secret, fmt.Errorf("collect network interfaces: %w", err)
	}
	listener, err := net.Listen("tcp", ":0")
	if err != nil {
		return nil, secret, fmt.Errorf("open rendezvous: %w", err)
	}
	r.server = rendezvous.Serve(listener, rendezvous.ServerOptions{
		WorldSize: p.WorldSize, Secret: secret, JoinTimeout: time.Duration(o.Job.Network.JoinTimeout),
		Silence: time.Duration(o.Job.Network.HeartbeatTimeout), Stall: time.Duration(o.Job.Network.ProgressTimeout),
		Program: o.Program, Spec: o.Spec, Rounds: newNegotiation(o.Job, o.Site, o.Dir.WriteNetwork, o.Say).rounds(),
		Warn: func(m string) { o.Say("warning: " + m) },
	})
	port := strconv.Itoa(r.server.Port())
	m := rendezvousFile{Secret: secret.Encode()}
	for _, a := range append(reachableAddresses(inventory), "127.0.0.1") {
		m.Addresses = append(m.Addresses, net.JoinHostPort(a, port))
	}
	job, step := p.rendezvousID()
	text, err := json.Marshal(m)
	if err == nil {
		err = o.Dir.WriteRendezvous(job, step, p.RestartCount, text)
	}
	if err != nil {
		r.server.Close()
		return nil, secret, fmt.Errorf("write rendezvous file: %w", err)
	}
	go func() {
		// All ranks have read the file once they have joined. No other process needs it.
		<-r.server.Joined()
		_ = o.Dir.RemoveRendezvous(job, step, p.RestartCount)
	}()
	return m.Addresses, secret, nil
}

// waitForRendezvous waits for rank 0's file and returns its content.
func waitForRendezvous(ctx context.Context, read func() ([]byte, error)) ([]byte, error) {
	for {
		text, err := read()
		if err == nil {
			return text, nil
		}
		// NFS returns ESTALE if rank 0 has replaced the file of an earlier start meanwhile.
		if !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ESTALE) {
			return nil, fmt.Errorf("read rendezvous file: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for rendezvous file of rank 0: %w: %w", err, context.Cause(ctx))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// maxSecretDelay is how long a rank waits for the file with the secret. With NFS, changes from
// other nodes may become visible only after 60 s (acdirmax in nfs(5)). Names that a node has
// never looked up become visible immediately.
const maxSecretDelay = 90 * time.Second

// secretPollInterval is the time between two attempts to read the file.
const secretPollInterval = 200 * time.Millisecond

// loadSecret returns the secret of the attempt. Ranks on the launcher's machine have it in
// their environment. Ranks of a step have the name of a file in the run directory, and
// loadSecret waits for that file.
func loadSecret(ctx context.Context, o JoinOptions) (wire.Secret, error) {
	name, inFile := o.Lookup(envSecretIn)
	if !inFile {
		text, _ := o.Lookup(envSecret)
		secret, err := wire.ParseSecret(text)
		if err != nil {
			return secret, fmt.Errorf("variable %s: %w", envSecret, err)
		}
		return secret, nil
	}
	// The launcher must receive the error before it stops waiting for this rank.
	delay := min(maxSecretDelay, time.Duration(o.Job.Network.JoinTimeout)/2)
	ctx, cancel := context.WithTimeoutCause(ctx, delay, fmt.Errorf("waited for %s", delay))
	defer cancel()
	for {
		secret, complete, err := readSecret(o, name)
		if err == nil {
			return secret, nil
		}
		err = hints.Errorf(fmt.Sprintf("check that %s and the node of the launcher see the same run directory, with the same owner and modes", o.Info.Host),
			"read secret on %s from %q: %w", o.Info.Host, filepath.Join(o.Dir.Path, name), err)
		if complete {
			return secret, err
		}
		select {
		case <-ctx.Done():
			return secret, fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		case <-time.After(secretPollInterval):
		}
	}
}

// readSecret reads the file with the secret. If it returns an error, complete reports whether
// the error is final. An error is not final if this node may see the file or its content later
// than other nodes.
func readSecret(o JoinOptions, name string) (secret wire.Secret, complete bool, err error) {
	text, err := o.Dir.ReadSecret(name)
	if err != nil {
		return secret, !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ESTALE), err
	}
	secret, err = wire.ParseSecret(string(text))
	return secret, false, err
}

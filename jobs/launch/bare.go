package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/ddpbatch/ddpbatch/netif"
	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
	"github.com/ddpbatch/ddpbatch/trainer/wire"
)

// meeting is the file by which the ranks of `srun ddpbatch run`, which no
// launcher started, find rank 0. It stands in the run directory, readable by its
// owner only, under a name that no other step or restart has.
type meeting struct {
	Addresses []string `json:"addresses"`
	Secret    string   `json:"secret"`
}

// meetWithoutLauncher makes rank 0 the meeting point and has the others look
// for its file.
func (r *Rank) meetWithoutLauncher(ctx context.Context, o JoinOptions) ([]string, wire.Secret, error) {
	p := o.Place
	path := o.Dir.Rendezvous(p.JobID, p.StepID, p.RestartCount)
	if p.Rank != 0 {
		return findMeeting(ctx, path)
	}
	secret, err := wire.NewSecret()
	if err != nil {
		return nil, secret, err
	}
	inventory, err := netif.Collect(ctx, netif.CollectOptions{})
	if err != nil {
		return nil, secret, fmt.Errorf("look for this node's addresses: %w", err)
	}
	listener, err := net.Listen("tcp", ":0")
	if err != nil {
		return nil, secret, fmt.Errorf("open the rendezvous: %w", err)
	}
	r.server = rendezvous.Serve(listener, rendezvous.ServerOptions{
		WorldSize: p.WorldSize, Secret: secret, JoinTimeout: time.Duration(o.Job.Network.JoinTimeout),
		Silence: time.Duration(o.Job.Network.HeartbeatTimeout), Stall: time.Duration(o.Job.Network.ProgressTimeout),
		Program: o.Program, Spec: o.Spec, Rounds: newAgreement(o.Job, o.Site, o.Dir.WriteNetwork, o.Say).rounds(),
		Warn: func(m string) { o.Say("WARNING: " + m) },
	})
	port := strconv.Itoa(r.server.Port())
	m := meeting{Secret: secret.Encode()}
	for _, a := range append(reachableAddresses(inventory), "127.0.0.1") {
		m.Addresses = append(m.Addresses, net.JoinHostPort(a, port))
	}
	text, err := json.Marshal(m)
	if err == nil {
		err = o.Dir.WriteRendezvous(p.JobID, p.StepID, p.RestartCount, text)
	}
	if err != nil {
		r.server.Close()
		return nil, secret, fmt.Errorf("publish the rendezvous: %w", err)
	}
	go func() {
		// All ranks have read it once they have joined; nobody else should.
		<-r.server.Joined()
		os.Remove(path)
	}()
	return m.Addresses, secret, nil
}

// findMeeting waits for rank 0's file.
func findMeeting(ctx context.Context, path string) ([]string, wire.Secret, error) {
	for {
		text, err := os.ReadFile(path)
		if err == nil {
			var m meeting
			if err := json.Unmarshal(text, &m); err != nil {
				return nil, wire.Secret{}, fmt.Errorf("read %q: %w", path, err)
			}
			secret, err := wire.ParseSecret(m.Secret)
			return m.Addresses, secret, err
		}
		if !errors.Is(err, os.ErrNotExist) {
			return nil, wire.Secret{}, fmt.Errorf("look for rank 0: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil, wire.Secret{}, fmt.Errorf("rank 0 did not publish %q: %w", path, context.Cause(ctx))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

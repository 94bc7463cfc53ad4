package launch

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/netif"
	"github.com/ddpbatch/ddpbatch/netif/probe"
	"github.com/ddpbatch/ddpbatch/netif/watch"
	"github.com/ddpbatch/ddpbatch/trainer/wire"
)

// maxNetworkTries is the maximum number of networks that an attempt tries before it fails.
const maxNetworkTries = 3

func endpointsRound(try int) string    { return fmt.Sprintf("endpoints-%d", try) }
func connectivityRound(try int) string { return fmt.Sprintf("proof-%d", try) }

// connectivityResult is the result of the connectivity check that each node receives.
type connectivityResult struct {
	// Instead is the network to check next if this one failed the check, or else nil.
	Instead *networkDecision `json:"instead,omitempty"`
}

// checkConnectivity checks the connectivity of the agreed network before anything depends on it:
// each node probes its neighbors. If the check fails, and no user has selected the network by
// name, the ranks check the next best network.
func (r *Rank) checkConnectivity(ctx context.Context) error {
	if r.Info.Nodes == 1 {
		return nil
	}
	for try := 1; ; try++ {
		var result connectivityResult
		if err := r.probeNetwork(ctx, try, &result); err != nil || result.Instead == nil {
			return err
		}
		r.setNetwork(*result.Instead)
	}
}

// probeNetwork checks one network. One rank of each node probes, and the others only wait for the
// result.
func (r *Rank) probeNetwork(ctx context.Context, try int, result *connectivityResult) error {
	if r.Info.LocalRank != 0 {
		if _, err := r.Session.Exchange(ctx, endpointsRound(try), nil); err != nil {
			return err
		}
		return r.exchange(ctx, connectivityRound(try), nil, result)
	}
	listener, err := probe.Listen(ctx, r.Info.Host, r.Choice, probeSecret(r.secret))
	endpoint := probe.Endpoint{}
	if err != nil {
		endpoint = probe.Unable(r.Info.Host, r.Choice, err)
	} else {
		defer listener.Close()
		endpoint = listener.Endpoint()
	}
	var peers []probe.Endpoint
	if err := r.exchange(ctx, endpointsRound(try), endpoint, &peers); err != nil {
		return err
	}
	report := probe.Report{Endpoint: endpoint}
	if listener != nil {
		results := make([]probe.Result, len(peers))
		var all sync.WaitGroup
		for i, peer := range peers {
			all.Go(func() { results[i] = listener.Probe(ctx, peer, probe.DefaultTimeout) })
		}
		all.Wait()
		report = listener.Report(results)
	}
	return r.exchange(ctx, connectivityRound(try), report, result)
}

// probeSecret derives the secret of the connectivity check from the secret of the attempt.
// Messages of the check are therefore not valid in other protocols of the attempt.
func probeSecret(s wire.Secret) (out [32]byte) {
	mac := hmac.New(sha256.New, s[:])
	mac.Write([]byte("network probe"))
	copy(out[:], mac.Sum(nil))
	return out
}

// decideEndpoints sends each node the endpoints of its neighbors.
func (a *networkNegotiation) decideEndpoints(payloads [][]byte) ([][]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	ring := make([]probe.Endpoint, len(a.hosts))
	if err := a.eachNode(payloads, func(node int, p []byte) error { return json.Unmarshal(p, &ring[node]) }); err != nil {
		return nil, fmt.Errorf("decode probe endpoints: %w", err)
	}
	return a.replies(func(node int) any { return probe.Neighbors(ring, node) })
}

// eachNode calls f with each non-empty payload. One rank of each node sends one.
func (a *networkNegotiation) eachNode(payloads [][]byte, f func(node int, payload []byte) error) error {
	for rank, p := range payloads {
		if len(p) == 0 {
			continue
		}
		if err := f(a.nodes[rank], p); err != nil {
			return fmt.Errorf("rank %d: %w", rank, err)
		}
	}
	return nil
}

// decideConnectivity evaluates a network based on the reports of all nodes. If the network is
// unusable, it makes the nodes agree on a different one.
func (a *networkNegotiation) decideConnectivity(payloads [][]byte, try int) ([][]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	reports := make([]probe.Report, len(a.hosts))
	if err := a.eachNode(payloads, func(node int, p []byte) error { return json.Unmarshal(p, &reports[node]) }); err != nil {
		return nil, fmt.Errorf("decode probe reports: %w", err)
	}
	findings := probe.Diagnose(reports)
	broken := probe.Error(findings, a.rejectLevel)
	if broken == nil {
		for _, f := range findings {
			a.say(fmt.Sprintf("warning: network: %v; %s", f, f.Hint()))
		}
		return a.replies(func(int) any { return connectivityResult{} })
	}
	named := a.choices[0].Source == netif.SourceSpec
	if named || try == maxNetworkTries {
		return nil, broken
	}
	for node, c := range a.choices {
		a.hosts[node] = removeAddress(a.hosts[node], c.Addr)
	}
	was := a.choices[0]
	next, err := a.chooseNetwork()
	if err != nil {
		return nil, broken // the user must fix this error, not the lack of alternatives
	}
	a.say(fmt.Sprintf("warning: network %s (%s on %s) failed the connectivity check, using %s (%s): %v; %s",
		was.Prefix, was.Interface, a.hosts[0].Host, next[0].Choice.Prefix, next[0].Choice.Interface, broken, hints.Of(broken)))
	return a.replies(func(node int) any { return connectivityResult{Instead: &next[node]} })
}

// removeAddress returns a copy of an inventory without the given address.
func removeAddress(host netif.Inventory, addr netip.Addr) netif.Inventory {
	host.Links = slices.Clone(host.Links)
	for i := range host.Links {
		host.Links[i].Addrs = slices.DeleteFunc(slices.Clone(host.Links[i].Addrs), func(p netip.Prefix) bool { return p.Addr() == addr.WithZone("") })
	}
	return host
}

// watchNetwork reports changes of this node's interface to the launcher from now on. If a rank
// is lost, the launcher can name the change.
func (r *Rank) watchNetwork(say func(string)) {
	if r.Info.Nodes == 1 || r.Info.LocalRank != 0 {
		return
	}
	ctx, cancel := context.WithCancel(r.Session.Context())
	r.unwatch = cancel
	w, err := watch.Watch(ctx, r.Choice.Interface, func(e watch.Event) {
		// The attempt can continue without this report. If the session has ended, the rank
		// detects this elsewhere.
		_ = r.Session.Notify(e.String())
	})
	if err != nil {
		if ctx.Err() == nil { // otherwise the attempt has already ended
			say(fmt.Sprintf("warning: %s: %v", r.Info.Host, err))
		}
		return
	}
	go func() {
		if err := w.Wait(); err != nil {
			say(fmt.Sprintf("warning: %s: %v", r.Info.Host, err))
		}
	}()
}

package probe

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// DefaultTimeout is the timeout of the probes of a job.
const DefaultTimeout = 1900 * time.Millisecond

// Probe checks the network between this host and a peer, for at most timeout. It always returns a
// result, because failures are results. Concurrent probes of several peers are allowed.
func (l *Listener) Probe(ctx context.Context, peer Endpoint, timeout time.Duration) Result {
	start := time.Now()
	payload := min(max(64<<10, 8*max(l.endpoint.MTU, peer.MTU)), maxPayload) // bytes per direction over TCP
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r := Result{From: l.endpoint, To: peer}
	if peer.Trouble != "" {
		none := Trial{Stage: StageConnect, Outcome: NotTried, Detail: peer.Trouble}
		r.Bound, r.Bare, r.Device = none, none, none
		return r
	}
	addr := peer.Addr
	if addr.IsLinkLocalUnicast() && addr.Is6() {
		addr = addr.WithZone(l.choice.Interface) // a peer's zone is not valid on this host
	}
	to := netip.AddrPortFrom(addr, peer.TCP)
	var all sync.WaitGroup
	all.Go(func() { r.Bound = l.try(ctx, to, peer.ID, socketOptions{source: true, size: payload}) })
	all.Go(func() { r.Bare = l.try(ctx, to, peer.ID, socketOptions{}) })
	if l.endpoint.Routed {
		r.Device = Trial{Stage: StageConnect, Outcome: NotTried, Detail: "packets leave by a different link from the link with the address"}
	} else {
		all.Go(func() { r.Device = l.try(ctx, to, peer.ID, socketOptions{source: true, device: l.choice.Interface}) })
	}
	if peer.UDP != 0 {
		all.Go(func() { r.Path, r.ICMP = l.measure(ctx, peer, addr) })
	}
	all.Wait()
	// The time for the probe may be over. These queries are local and need little time.
	ask, done := context.WithTimeout(context.WithoutCancel(ctx), 100*time.Millisecond)
	defer done()
	r.Kernel = queryKernel(ask, l.choice.Addr, addr)
	if !r.OK() { // otherwise the problem is over
		r.ICMP = appendNew(r.ICMP, l.icmpErrorsAbout(addr))
	}
	// Routers send about one ICMP error per second, and any socket may have received it.
	r.ICMP = appendNew(r.ICMP, r.Bound.ICMP)
	if r.Kernel.BareLeaves == r.Kernel.Leaves {
		r.ICMP = appendNew(r.ICMP, r.Bare.ICMP)
	}
	if r.Kernel.Leaves == r.From.Interface {
		r.ICMP = appendNew(r.ICMP, r.Device.ICMP)
	}
	r.Local = l.interfaceProblem()
	r.Took = time.Since(start)
	return r
}

// interfaceProblem describes what happened to the interface since it was chosen, or returns "".
func (l *Listener) interfaceProblem() string {
	link, err := net.InterfaceByIndex(l.choice.Index)
	name := l.choice.Interface
	switch {
	case err != nil:
		return fmt.Sprintf("%s is gone", name)
	case link.Flags&net.FlagUp == 0:
		return fmt.Sprintf("%s is down", name)
	case link.Flags&net.FlagRunning == 0:
		return fmt.Sprintf("%s lost its carrier", name)
	}
	addrs, err := link.Addrs()
	if err != nil || l.choice.Addr.IsLoopback() { // every address in 127.0.0.0/8 is present
		return ""
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Unmap() == l.choice.Addr.WithZone("") {
			if l.mtu != 0 && link.MTU < l.mtu {
				return fmt.Sprintf("the mtu of %s is now %d, before %d", name, link.MTU, l.mtu)
			}
			return ""
		}
	}
	return fmt.Sprintf("%s no longer has %s", name, l.choice.Addr)
}

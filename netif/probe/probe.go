package probe

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// DefaultTimeout is how long a probe of one peer takes at most, unless the caller
// says otherwise.
const DefaultTimeout = 1900 * time.Millisecond

// Options change how a peer is probed. The zero value is what a job should use.
type Options struct {
	Timeout time.Duration // for all of it; 0 is DefaultTimeout
	Payload int           // bytes sent each way over TCP, at most 1 MiB; 0 is eight packets of the larger MTU and at least 64 KiB
}

func (o Options) filled(a, b Endpoint) Options {
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Payload <= 0 {
		o.Payload = max(64<<10, 8*max(a.MTU, b.MTU))
	}
	o.Payload = min(o.Payload, maxPayload)
	return o
}

// Probe tries the network between this host and a peer. It always has a result:
// that something does not work is what it is for. Peers may be probed at the same
// time.
func (l *Listener) Probe(ctx context.Context, peer Endpoint, o Options) Result {
	start := time.Now()
	o = o.filled(l.endpoint, peer)
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	r := Result{From: l.endpoint, To: peer}
	if peer.Trouble != "" {
		none := Trial{Stage: StageConnect, Outcome: NotTried, Detail: peer.Trouble}
		r.Bound, r.Bare, r.Device = none, none, none
		return r
	}
	addr := peer.Addr
	if addr.IsLinkLocalUnicast() && addr.Is6() {
		addr = addr.WithZone(l.choice.Interface) // a peer's zone means nothing here
	}
	to := netip.AddrPortFrom(addr, peer.TCP)
	var all sync.WaitGroup
	all.Go(func() { r.Bound = l.try(ctx, to, peer.ID, how{source: true, size: o.Payload}) })
	all.Go(func() { r.Bare = l.try(ctx, to, peer.ID, how{}) })
	if l.endpoint.Routed {
		r.Device = Trial{Stage: StageConnect, Outcome: NotTried, Detail: "packets leave by another link than the one that has the address"}
	} else {
		all.Go(func() { r.Device = l.try(ctx, to, peer.ID, how{source: true, device: l.choice.Interface}) })
	}
	if peer.UDP != 0 {
		all.Go(func() { r.Path, r.ICMP = l.measure(ctx, peer, addr) })
	}
	all.Wait()
	// The time for the probe may be over, and these are questions to this host.
	ask, done := context.WithTimeout(context.WithoutCancel(ctx), 100*time.Millisecond)
	defer done()
	r.Kernel = askKernel(ask, l.choice.Addr, addr)
	if !r.OK() { // else it is over, whatever it was
		r.ICMP = each(r.ICMP, l.complaintsAbout(addr))
	}
	// Routers answer one packet a second or so: any socket may have got that word.
	r.ICMP = each(r.ICMP, r.Bound.ICMP)
	if r.Kernel.BareLeaves == r.Kernel.Leaves {
		r.ICMP = each(r.ICMP, r.Bare.ICMP)
	}
	if r.Kernel.Leaves == r.From.Interface {
		r.ICMP = each(r.ICMP, r.Device.ICMP)
	}
	r.Local = l.trouble()
	r.Took = time.Since(start)
	return r
}

// trouble says what has happened to the interface since it was chosen.
func (l *Listener) trouble() string {
	link, err := net.InterfaceByIndex(l.choice.Index)
	name := l.choice.Interface
	switch {
	case err != nil:
		return fmt.Sprintf("%s is gone", name)
	case link.Flags&net.FlagUp == 0:
		return fmt.Sprintf("%s is down", name)
	case link.Flags&net.FlagRunning == 0:
		return fmt.Sprintf("%s has lost its carrier", name)
	}
	addrs, err := link.Addrs()
	if err != nil || l.choice.Addr.IsLoopback() { // all of 127.0.0.0/8 is there
		return ""
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Unmap() == l.choice.Addr.WithZone("") {
			if l.mtu != 0 && link.MTU < l.mtu {
				return fmt.Sprintf("the mtu of %s has become %d, and was %d", name, link.MTU, l.mtu)
			}
			return ""
		}
	}
	return fmt.Sprintf("%s no longer has %s", name, l.choice.Addr)
}

package watch

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const (
	// bufferBytes is room for the announcements of some thousand changes: a node
	// that starts many containers at once makes that many.
	bufferBytes = 1 << 20
	// dumpTries bounds how often a dump is asked for again that the kernel could
	// not make in one piece, because something changed meanwhile.
	dumpTries = 10
	// A queue is empty when nothing has come for so long, and changes that go on
	// and on must not keep the state from being read.
	quietMicroseconds = 10_000
	drainLimit        = 4096
)

// Watcher watches one interface.
type Watcher struct {
	done chan struct{}
	err  error
}

// Watch subscribes to changes of the interface called name, in the network
// namespace of the calling thread, and gives each to report, one at a time and in
// order. It returns once it is subscribed: no later change is missed. It goes on
// until ctx ends. Where the interface is gone, another one that gets its name
// takes its place; where it is renamed, it is followed.
//
// It is an error if there is no such interface.
func Watch(ctx context.Context, name string, report func(Event)) (*Watcher, error) {
	w, err := start(ctx, name, bufferBytes, report)
	if err != nil {
		return nil, fmt.Errorf("watching interface %q: %w", name, err)
	}
	return w, nil
}

// Wait waits until the watch has ended. Its error is nil where the context ended
// it, and else says why changes are no longer seen.
func (w *Watcher) Wait() error {
	<-w.done
	return w.err
}

func start(ctx context.Context, name string, buffer int, report func(Event)) (*Watcher, error) {
	// Announcements come on one socket, so that links and addresses keep their
	// order; questions are asked on another one.
	news, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR)
	if err != nil {
		return nil, fmt.Errorf("subscribing to the kernel's announcements: %w", err)
	}
	// A smaller buffer only means that the state is read anew more often.
	_ = news.SetReceiveBufferSize(buffer, false)
	kernel, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		news.Close()
		return nil, fmt.Errorf("opening a netlink socket: %w", err)
	}
	f := &follower{kernel: kernel, news: news, report: report}
	// An address that is being checked for a twin counts from the start: the end of
	// the check is no news, unless it finds one.
	if f.now, err = f.read(ctx, name, 0, func(netip.Prefix) bool { return true }); err == nil && f.now.index == 0 {
		err = errors.New("there is no interface of that name")
	}
	if err != nil {
		news.Close()
		kernel.Close()
		return nil, err
	}
	w := &Watcher{done: make(chan struct{})}
	// A closed socket ends the receiving.
	stop := context.AfterFunc(ctx, news.Close)
	go func() {
		defer close(w.done)
		defer kernel.Close()
		w.err = f.run(ctx)
		if stop() {
			news.Close()
		}
	}()
	return w, nil
}

// follower keeps the state of the interface.
type follower struct {
	kernel *netlink.Handle
	news   *nl.NetlinkSocket
	report func(Event)
	now    state
}

func (f *follower) run(ctx context.Context) error {
	for {
		msgs, from, err := f.news.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			continue
		case errors.Is(err, unix.ENOBUFS): // announcements were dropped
			f.drain()
			if err := f.resync(ctx); err != nil {
				return f.lost(ctx, err)
			}
			continue
		case err != nil:
			return f.lost(ctx, err)
		case from.Pid != 0: // not the kernel
			continue
		}
		for _, m := range msgs {
			next, again, err := f.apply(unix.NlMsghdr(m.Header), m.Data)
			if err != nil {
				return f.lost(ctx, err)
			}
			if again {
				if err := f.resync(ctx); err != nil {
					return f.lost(ctx, err)
				}
				continue
			}
			f.tell(next)
		}
	}
}

func (f *follower) lost(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("watching interface %q: changes are no longer seen: %w", f.now.name, err)
}

// drain forgets the announcements that have come so far: they are older than
// what is read next, and would be told as changes back.
func (f *follower) drain() {
	// Setting a time only stores it, and cannot fail.
	_ = f.news.SetReceiveTimeout(&unix.Timeval{Usec: quietMicroseconds})
	defer func() { _ = f.news.SetReceiveTimeout(&unix.Timeval{}) }()
	for range drainLimit {
		if _, _, err := f.news.Receive(); err != nil && !errors.Is(err, unix.ENOBUFS) {
			return
		}
	}
}

// resync reads the state anew and tells what differs.
func (f *follower) resync(ctx context.Context) error {
	next, err := f.read(ctx, f.now.name, f.now.index, f.has)
	if err != nil {
		return err
	}
	f.tell(next)
	return nil
}

func (f *follower) tell(next state) {
	before := f.now
	f.now = next
	for _, what := range changes(before, next) {
		f.report(Event{Time: time.Now(), Interface: next.name, What: what})
	}
}

// has says whether an address is known: it stays so while it is checked anew,
// which the kernel does whenever the carrier comes back.
func (f *follower) has(addr netip.Prefix) bool { return f.now.addrs[addr] }

// apply is the state after an announcement. Where another interface appears
// under the name, its state has to be read anew.
func (f *follower) apply(header unix.NlMsghdr, data []byte) (next state, again bool, err error) {
	next = f.now
	switch header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		if len(data) < unix.SizeofIfInfomsg {
			return next, false, errors.New("the kernel sent a link message that is too short")
		}
		// A bridge announces its ports in messages of a family of its own, of
		// which a deletion only means that the port left the bridge.
		if nl.DeserializeIfInfomsg(data).Family != unix.AF_UNSPEC {
			return next, false, nil
		}
		link, err := netlink.LinkDeserialize(&header, data)
		if err != nil {
			return next, false, fmt.Errorf("a link message that cannot be read: %w", err)
		}
		mine := link.Attrs().Index == f.now.index
		switch {
		case mine && header.Type == unix.RTM_DELLINK:
			return state{name: f.now.name}, false, nil
		case mine:
			next = stateOf(link)
			next.addrs = f.now.addrs
			if next.mtu == 0 { // the announcement of a wireless event says little else
				next.mtu, next.master, next.oper = f.now.mtu, f.now.master, f.now.oper
			}
		case f.now.index == 0 && header.Type == unix.RTM_NEWLINK && link.Attrs().Name == f.now.name:
			return next, true, nil
		}
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		index, addr, flags, err := readAddr(data)
		if err != nil {
			return next, false, err
		}
		if f.now.index == 0 || index != f.now.index || !addr.IsValid() || !isOfInterest(addr) {
			return next, false, nil
		}
		next = f.now.clone()
		if delete(next.addrs, addr); header.Type == unix.RTM_NEWADDR && counts(flags, addr, f.has) {
			next.addrs[addr] = true
		}
	}
	return next, false, nil
}

// read asks for the whole state of the interface with the index or, if that is 0
// or gone, with the name. An address that is being checked counts if known says so.
func (f *follower) read(ctx context.Context, name string, index int, known func(netip.Prefix) bool) (state, error) {
	links, err := dump(ctx, "links", f.kernel.LinkList)
	if err != nil {
		return state{}, err
	}
	found := state{name: name}
	for _, l := range links {
		at := l.Attrs()
		if index != 0 && at.Index == index {
			found = stateOf(l)
			break
		}
		if at.Name == name {
			found = stateOf(l)
		}
	}
	if found.index == 0 {
		return found, nil
	}
	found.addrs = map[netip.Prefix]bool{}
	addrs, err := dump(ctx, "addresses", func() ([]netlink.Addr, error) { return f.kernel.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return state{}, err
	}
	for _, a := range addrs {
		if a.LinkIndex != found.index {
			continue
		}
		ip, _ := netip.AddrFromSlice(a.IP)
		bits, _ := a.Mask.Size()
		addr := netip.PrefixFrom(ip.Unmap(), bits)
		if isOfInterest(addr) && counts(uint32(a.Flags), addr, known) {
			found.addrs[addr] = true
		}
	}
	return found, nil
}

// dump asks the kernel for a list until it comes in one piece.
func dump[T any](ctx context.Context, what string, list func() (T, error)) (T, error) {
	for range dumpTries {
		if err := ctx.Err(); err != nil {
			return *new(T), fmt.Errorf("reading %s: %w", what, err)
		}
		found, err := list()
		if err == nil {
			return found, nil
		}
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return *new(T), fmt.Errorf("reading %s: %w", what, err)
		}
	}
	return *new(T), fmt.Errorf("reading %s: they kept changing while they were read", what)
}

func stateOf(l netlink.Link) state {
	at := l.Attrs()
	return state{
		name:    at.Name,
		index:   at.Index,
		up:      at.RawFlags&unix.IFF_UP != 0,
		carrier: at.RawFlags&unix.IFF_LOWER_UP != 0,
		oper:    at.OperState.String(),
		mtu:     at.MTU,
		master:  at.MasterIndex,
	}
}

// isOfInterest says whether jobs use such addresses. The kernel makes and removes
// link-local ones by itself.
func isOfInterest(addr netip.Prefix) bool { return !addr.Addr().IsLinkLocalUnicast() }

// counts says whether the interface has an address: not if it was found to have a
// twin, and while it is being checked for one, only if it was known before.
func counts(flags uint32, addr netip.Prefix, known func(netip.Prefix) bool) bool {
	switch {
	case flags&unix.IFA_F_DADFAILED != 0:
		return false
	case flags&unix.IFA_F_TENTATIVE != 0:
		return known(addr)
	}
	return true
}

// readAddr reads an address message (struct ifaddrmsg of rtnetlink(7)).
func readAddr(data []byte) (index int, addr netip.Prefix, flags uint32, err error) {
	if len(data) < unix.SizeofIfAddrmsg {
		return 0, addr, 0, errors.New("the kernel sent an address message that is too short")
	}
	msg := nl.DeserializeIfAddrmsg(data)
	attrs, err := nl.ParseRouteAttr(data[msg.Len():])
	if err != nil {
		return 0, addr, 0, fmt.Errorf("an address message that cannot be read: %w", err)
	}
	flags = uint32(msg.Flags)
	var ip netip.Addr
	local := false // IFA_ADDRESS is the other end's where there is an IFA_LOCAL
	for _, a := range attrs {
		switch a.Attr.Type {
		case unix.IFA_LOCAL:
			ip, _ = netip.AddrFromSlice(a.Value)
			local = true
		case unix.IFA_ADDRESS:
			if !local {
				ip, _ = netip.AddrFromSlice(a.Value)
			}
		case unix.IFA_FLAGS: // more bits than the message's own field has room for
			if len(a.Value) >= 4 {
				flags = nl.NativeEndian().Uint32(a.Value)
			}
		}
	}
	return int(msg.Index), netip.PrefixFrom(ip.Unmap(), int(msg.Prefixlen)), flags, nil
}

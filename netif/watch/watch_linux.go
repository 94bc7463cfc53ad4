package watch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/netif/internal/rtnetlink"
)

const (
	// bufferBytes holds the notifications of a few thousand changes. A node that starts many
	// containers at the same time causes that many.
	bufferBytes = 1 << 20
	// The queue is empty if nothing arrives for quietMicroseconds. drainLimit, in messages,
	// ensures that continuous changes do not prevent reading the state.
	quietMicroseconds = 10_000
	drainLimit        = 4096
)

// A Watcher watches one interface.
type Watcher struct {
	done chan struct{}
	err  error
}

// Watch subscribes to changes of the interface called name, in the network namespace of the
// calling thread. It calls report for each change, one at a time and in order, until ctx ends.
// Watch returns after it has subscribed, so it misses no later change. It follows the
// interface if it is renamed. If the interface disappears, Watch follows the next one with its
// name.
//
// Watch returns an error if the interface does not exist.
func Watch(ctx context.Context, name string, report func(Event)) (*Watcher, error) {
	w, err := start(ctx, name, bufferBytes, report)
	if err != nil {
		return nil, fmt.Errorf("watch interface %q: %w", name, err)
	}
	return w, nil
}

// Wait waits until the watch has ended. It returns nil if the context ended it, and otherwise
// the reason why changes are no longer reported.
func (w *Watcher) Wait() error {
	<-w.done
	return w.err
}

func start(ctx context.Context, name string, buffer int, report func(Event)) (*Watcher, error) {
	// All notifications arrive on one socket, so that changes of links and addresses stay in
	// order. Queries use a second socket.
	events, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR)
	if err != nil {
		return nil, fmt.Errorf("subscribe to netlink events: %w", err)
	}
	// A smaller buffer only means that the state is read more often.
	_ = events.SetReceiveBufferSize(buffer, false)
	kernel, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		events.Close()
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	f := &follower{kernel: kernel, events: events, report: report}
	// An address that is still in duplicate address detection counts from the start. The end
	// of detection is only reported if it finds a duplicate.
	if f.state, err = f.read(ctx, name, 0, func(netip.Prefix) bool { return true }); err == nil && f.state.index == 0 {
		err = errors.New("no such interface")
	}
	if err != nil {
		events.Close()
		kernel.Close()
		return nil, err
	}
	w := &Watcher{done: make(chan struct{})}
	// Closing the socket ends Receive.
	stop := context.AfterFunc(ctx, events.Close)
	go func() {
		defer close(w.done)
		defer kernel.Close()
		w.err = f.run(ctx)
		if stop() {
			events.Close()
		}
	}()
	return w, nil
}

// A follower tracks the state of the interface.
type follower struct {
	kernel *netlink.Handle
	events *nl.NetlinkSocket
	report func(Event)
	state  state
}

func (f *follower) run(ctx context.Context) error {
	for {
		msgs, from, err := f.events.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			continue
		case errors.Is(err, unix.ENOBUFS): // the kernel dropped notifications
			f.drain()
			if err := f.resync(ctx); err != nil {
				return f.wrapError(ctx, err)
			}
			continue
		case err != nil:
			return f.wrapError(ctx, err)
		case from.Pid != 0: // not from the kernel
			continue
		}
		for _, m := range msgs {
			next, again, err := f.apply(unix.NlMsghdr(m.Header), m.Data)
			if err != nil {
				return f.wrapError(ctx, err)
			}
			if again {
				if err := f.resync(ctx); err != nil {
					return f.wrapError(ctx, err)
				}
				continue
			}
			f.publish(next)
		}
	}
}

func (f *follower) wrapError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("watch interface %q: changes are no longer reported: %w", f.state.name, err)
}

// drain discards the queued notifications. They are older than the state that is read next,
// and would be reported as changes back to an older state.
func (f *follower) drain() {
	// Setting the timeout only stores it and cannot fail.
	_ = f.events.SetReceiveTimeout(&unix.Timeval{Usec: quietMicroseconds})
	defer func() { _ = f.events.SetReceiveTimeout(&unix.Timeval{}) }()
	for range drainLimit {
		if _, _, err := f.events.Receive(); err != nil && !errors.Is(err, unix.ENOBUFS) {
			return
		}
	}
}

// resync reads the state again and reports the differences.
func (f *follower) resync(ctx context.Context) error {
	next, err := f.read(ctx, f.state.name, f.state.index, f.has)
	if err != nil {
		return err
	}
	f.publish(next)
	return nil
}

func (f *follower) publish(next state) {
	before := f.state
	f.state = next
	for _, what := range changes(before, next) {
		f.report(Event{Time: time.Now(), Interface: next.name, What: what})
	}
}

// has reports whether the interface has an address. The address stays during another duplicate
// address detection, which the kernel starts whenever the carrier comes back.
func (f *follower) has(addr netip.Prefix) bool { return f.state.addrs[addr] }

// apply returns the state after a notification. again is true if a different interface has
// appeared under the name, so that the caller must read its state.
func (f *follower) apply(header unix.NlMsghdr, data []byte) (next state, again bool, err error) {
	next = f.state
	switch header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		if len(data) < unix.SizeofIfInfomsg {
			return next, false, errors.New("parse link message: too short")
		}
		// A bridge sends notifications about its ports in its own address family. A deletion
		// there only means that the port left the bridge.
		if nl.DeserializeIfInfomsg(data).Family != unix.AF_UNSPEC {
			return next, false, nil
		}
		link, err := netlink.LinkDeserialize(&header, data)
		if err != nil {
			return next, false, fmt.Errorf("parse link message: %w", err)
		}
		mine := link.Attrs().Index == f.state.index
		switch {
		case mine && header.Type == unix.RTM_DELLINK:
			return state{name: f.state.name}, false, nil
		case mine:
			next = stateOf(link)
			next.addrs = f.state.addrs
			if next.mtu == 0 { // notifications of wireless events contain little else
				next.mtu, next.master, next.oper = f.state.mtu, f.state.master, f.state.oper
			}
		case f.state.index == 0 && header.Type == unix.RTM_NEWLINK && link.Attrs().Name == f.state.name:
			return next, true, nil
		}
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		index, addr, flags, err := readAddr(data)
		if err != nil {
			return next, false, err
		}
		if f.state.index == 0 || index != f.state.index || !addr.IsValid() || !isReported(addr) {
			return next, false, nil
		}
		next.addrs = maps.Clone(next.addrs)
		if delete(next.addrs, addr); header.Type == unix.RTM_NEWADDR && isAssigned(flags, addr, f.has) {
			next.addrs[addr] = true
		}
	}
	return next, false, nil
}

// read queries the state of the interface with the given index. If the index is 0 or no longer
// exists, read uses the name. An address in duplicate address detection counts if known
// returns true.
func (f *follower) read(ctx context.Context, name string, index int, known func(netip.Prefix) bool) (state, error) {
	links, err := rtnetlink.Dump(ctx, "links", f.kernel.LinkList)
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
	addrs, err := rtnetlink.Dump(ctx, "addresses", func() ([]netlink.Addr, error) { return f.kernel.AddrList(nil, netlink.FAMILY_ALL) })
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
		if isReported(addr) && isAssigned(uint32(a.Flags), addr, known) {
			found.addrs[addr] = true
		}
	}
	return found, nil
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

// isReported reports whether jobs use the address. The kernel adds and removes link-local
// addresses automatically.
func isReported(addr netip.Prefix) bool { return !addr.Addr().IsLinkLocalUnicast() }

// isAssigned reports whether the interface has an address. A duplicate address does not count.
// During duplicate address detection, an address counts only if it was known before.
func isAssigned(flags uint32, addr netip.Prefix, known func(netip.Prefix) bool) bool {
	switch {
	case flags&unix.IFA_F_DADFAILED != 0:
		return false
	case flags&unix.IFA_F_TENTATIVE != 0:
		return known(addr)
	}
	return true
}

// readAddr parses an address message (struct ifaddrmsg of rtnetlink(7)).
func readAddr(data []byte) (index int, addr netip.Prefix, flags uint32, err error) {
	if len(data) < unix.SizeofIfAddrmsg {
		return 0, addr, 0, errors.New("parse address message: too short")
	}
	msg := nl.DeserializeIfAddrmsg(data)
	attrs, err := nl.ParseRouteAttr(data[msg.Len():])
	if err != nil {
		return 0, addr, 0, fmt.Errorf("parse address message: %w", err)
	}
	flags = uint32(msg.Flags)
	var ip netip.Addr
	local := false // with IFA_LOCAL, IFA_ADDRESS is the address of the other end
	for _, a := range attrs {
		switch a.Attr.Type {
		case unix.IFA_LOCAL:
			ip, _ = netip.AddrFromSlice(a.Value)
			local = true
		case unix.IFA_ADDRESS:
			if !local {
				ip, _ = netip.AddrFromSlice(a.Value)
			}
		case unix.IFA_FLAGS: // more bits than the field of the message
			if len(a.Value) >= 4 {
				flags = nl.NativeEndian().Uint32(a.Value)
			}
		}
	}
	return int(msg.Index), netip.PrefixFrom(ip.Unmap(), int(msg.Prefixlen)), flags, nil
}

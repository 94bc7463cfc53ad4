//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/internal/listeners"
)

// fill finds listeners of a user and holds silent connections to each. A listener on loopback or on
// all addresses is the rendezvous and not a probe; see flood.
func fill(uid, count int) error {
	ctx, stop := context.WithCancel(context.Background())
	var filling sync.WaitGroup
	var mu sync.Mutex
	filled := 0
	filling.Go(func() {
		seen := map[netip.AddrPort]bool{}
		for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
			for _, address := range listenAddresses(uid) {
				if seen[address] || address.Addr().IsUnspecified() || address.Addr().IsLoopback() {
					continue
				}
				seen[address] = true
				conns := dialMany(address.String(), count)
				filling.Go(func() {
					<-ctx.Done()
					for _, c := range conns {
						c.Close()
					}
				})
				if len(conns) == count {
					mu.Lock()
					filled++
					mu.Unlock()
				}
			}
		}
	})
	fmt.Println("looks for listeners of user", uid)
	err := waitForEnd()
	stop()
	filling.Wait()
	fmt.Println("filled", filled, "listeners")
	return err
}

// dialMany opens connections at the same time and returns those that succeed.
func dialMany(address string, count int) (conns []net.Conn) {
	var mu sync.Mutex
	var dialing sync.WaitGroup
	for range count {
		dialing.Go(func() {
			c, err := net.DialTimeout("tcp", address, 5*time.Second)
			if err == nil {
				mu.Lock()
				conns = append(conns, c)
				mu.Unlock()
			}
		})
	}
	dialing.Wait()
	return conns
}

// listenAddresses returns the IPv4 addresses on which a user listens.
func listenAddresses(uid int) (found []netip.AddrPort) {
	all, _ := listeners.All()
	for _, l := range all {
		if l.UID == uid && l.Addr.Addr().Is4() {
			found = append(found, l.Addr)
		}
	}
	return found
}

// flood holds silent connections to an address. It replaces connections that the other side closes,
// until no process listens there.
func flood(address string, count int) error {
	ctx, stop := context.WithCancel(context.Background())
	var open, done sync.WaitGroup
	var opened atomic.Int64
	for range count {
		open.Add(1)
		first := sync.OnceFunc(open.Done)
		done.Go(func() {
			defer first()
			for ctx.Err() == nil {
				c, err := net.DialTimeout("tcp", address, 5*time.Second)
				switch {
				case errors.Is(err, syscall.ECONNREFUSED):
					return
				case err != nil:
					time.Sleep(10 * time.Millisecond)
					continue
				}
				opened.Add(1)
				first()
				closed := context.AfterFunc(ctx, func() { c.Close() })
				_, _ = c.Read(make([]byte, 1)) // until the other side closes it
				closed()
				_ = c.(*net.TCPConn).SetLinger(0)
				c.Close()
			}
		})
	}
	open.Wait()
	fmt.Println("opened", opened.Load(), "connections")
	err := waitForEnd()
	stop()
	done.Wait()
	fmt.Println("opened", opened.Load(), "connections in all")
	return err
}

// listen accepts connections on an address and answers none of them.
func listen(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	var accepted atomic.Int64
	go func() {
		for {
			if _, err := l.Accept(); err != nil {
				return
			}
			accepted.Add(1)
		}
	}()
	fmt.Println("listens on", l.Addr())
	if err := waitForEnd(); err != nil {
		return err
	}
	fmt.Println("accepted", accepted.Load(), "connections")
	return l.Close()
}

// ports binds all free ports of 127.0.0.1 in ranges.
func ports(ranges []string) error {
	var all unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &all); err != nil {
		return err
	}
	all.Cur = all.Max
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &all); err != nil {
		return err
	}
	held := 0
	for pair := range slices.Chunk(ranges, 2) {
		first, err := strconv.Atoi(pair[0])
		if err != nil {
			return err
		}
		last, err := strconv.Atoi(pair[1])
		if err != nil {
			return err
		}
		for port := first; port <= last; port++ {
			s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
			if err != nil {
				return err
			}
			err = unix.Bind(s, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
			if errors.Is(err, unix.EADDRINUSE) {
				unix.Close(s)
				continue
			}
			if err != nil {
				return fmt.Errorf("bind port %d: %w", port, err)
			}
			held++
		}
	}
	fmt.Println("holds", held, "ports")
	return waitForEnd()
}

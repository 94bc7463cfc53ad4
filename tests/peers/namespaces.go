package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// cable is two network namespaces with a veth link between them. For TCP, they are two machines
// whose network is this CPU. They end with this process.
type cable struct{ ends [2]netns.NsHandle }

// device returns the name of the link's end in each namespace.
const device = "eth0"

// address returns the address of an end.
func address(end int) string { return fmt.Sprintf("10.231.77.%d", end+1) }

// newCable creates the namespaces and the link. It needs root.
func newCable(l link) (c *cable, err error) {
	c = &cable{[2]netns.NsHandle{netns.None(), netns.None()}}
	defer func() {
		if err != nil {
			err = fmt.Errorf("make two network namespaces: %w", errors.Join(err, c.close()))
		}
	}()
	for end := range c.ends {
		if c.ends[end], err = newSpace(); err != nil {
			return c, err
		}
	}
	return c, errors.Join(
		c.in(0, func() error {
			veth := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: device, PeerNamespace: netlink.NsFd(c.ends[1])}
			veth.Name = device
			return netlink.LinkAdd(veth)
		}),
		c.in(0, func() error { return ready(0, l) }),
		c.in(1, func() error { return ready(1, l) }))
}

// newSpace creates a namespace, on a thread that ends with it.
func newSpace() (made netns.NsHandle, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		made, err = netns.New()
	}()
	<-done
	return made, err
}

// congestionFile holds the congestion control of the namespace that reads or writes it.
const congestionFile = "/proc/sys/net/ipv4/tcp_congestion_control"

// ready assigns an address to an end, and sets its links up.
func ready(end int, l link) error {
	if err := os.WriteFile(congestionFile, []byte(l.Congestion), 0); err != nil {
		return err
	}
	for _, name := range []string{"lo", device} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if name == device {
			addr, err := netlink.ParseAddr(address(end) + "/24")
			if err != nil {
				return err
			}
			if err := errors.Join(netlink.LinkSetMTU(link, l.MTU), netlink.AddrAdd(link, addr)); err != nil {
				return err
			}
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
	}
	return nil
}

// in runs a function in the namespace of an end, on a thread that then ends.
func (c *cable) in(end int, do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := netns.Set(c.ends[end])
		if err == nil {
			err = do()
		}
		done <- err
	}()
	return <-done
}

// outputs runs a program at both ends and returns both outputs.
func (c *cable) outputs(programs [2]*exec.Cmd) (out [2][]byte, err error) {
	var printed [2]bytes.Buffer
	var failed [2]bytes.Buffer
	for end, cmd := range programs {
		cmd.Stdout, cmd.Stderr = &printed[end], &failed[end]
		// A process inherits the namespace of the thread that starts it.
		if err := c.in(end, cmd.Start); err != nil {
			return out, err
		}
		defer cmd.Process.Kill() // if the other process did not start
	}
	var errs []error
	for end, cmd := range programs {
		if err := cmd.Wait(); err != nil {
			errs = append(errs, fmt.Errorf("run %q: %w: %s", cmd.Args, err, bytes.TrimSpace(failed[end].Bytes())))
		}
		out[end] = printed[end].Bytes()
	}
	return out, errors.Join(errs...)
}

// listen opens a port at an end.
func (c *cable) listen(end int) (addr string, f *os.File, err error) {
	err = c.in(end, func() error {
		l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.ParseIP(address(end))})
		if err != nil {
			return err
		}
		defer l.Close()
		addr = l.Addr().String()
		f, err = l.File()
		return err
	})
	return addr, f, err
}

func (c *cable) close() error {
	var errs []error
	for _, end := range c.ends {
		if end.IsOpen() {
			errs = append(errs, end.Close())
		}
	}
	return errors.Join(errs...)
}

package watch

import (
	"context"
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/netif/internal/netspace"
)

// announcement returns an address message of interface 7, as the kernel sends it.
func announcement(addr netip.Prefix, flags uint32) []byte {
	family := byte(unix.AF_INET6)
	if addr.Addr().Is4() {
		family = unix.AF_INET
	}
	b := []byte{family, byte(addr.Bits()), byte(flags), 0}
	b = binary.NativeEndian.AppendUint32(b, 7)
	attr := func(kind uint16, value []byte) {
		b = binary.NativeEndian.AppendUint16(b, uint16(unix.SizeofRtAttr+len(value)))
		b = binary.NativeEndian.AppendUint16(b, kind)
		b = append(b, value...)
	}
	attr(unix.IFA_ADDRESS, addr.Addr().AsSlice())
	attr(unix.IFA_FLAGS, binary.NativeEndian.AppendUint32(nil, flags))
	return b
}

// TestAddresses checks which netlink messages about addresses count as changes.
func TestAddresses(t *testing.T) {
	const (
		set, unset = unix.RTM_NEWADDR, unix.RTM_DELADDR
		checking   = unix.IFA_F_TENTATIVE
		twin       = unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED
		fine       = unix.IFA_F_PERMANENT
	)
	type message struct {
		kind  uint16
		addr  string
		flags uint32
	}
	tests := []struct {
		name     string
		messages []message
		want     []string
	}{
		{"a new one counts after its check", []message{{set, "fd00::2/64", checking}, {set, "fd00::2/64", fine}}, []string{"address fd00::2/64 added"}},
		{"a new one with a twin does not", []message{{set, "fd00::2/64", checking}, {set, "fd00::2/64", twin}}, nil},
		{"the end of a check is no news", []message{{set, "fd00::1/64", fine}}, nil},
		{"nor is a check anew", []message{{set, "fd00::1/64", checking}, {set, "fd00::1/64", fine}}, nil},
		{"a twin is", []message{{set, "fd00::1/64", twin}}, []string{"address fd00::1/64 removed"}},
		{"removed and added again", []message{{unset, "fd00::1/64", fine}, {set, "fd00::1/64", checking}, {set, "fd00::1/64", fine}},
			[]string{"address fd00::1/64 removed", "address fd00::1/64 added"}},
		{"the same of IPv4", []message{{unset, "10.2.0.1/24", fine}, {set, "10.2.0.1/24", fine}},
			[]string{"address 10.2.0.1/24 removed", "address 10.2.0.1/24 added"}},
		{"link-local", []message{{set, "fe80::1/64", fine}, {unset, "fe80::1/64", fine}, {set, "169.254.3.4/16", fine}, {unset, "169.254.3.4/16", fine}}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var told []string
			f := &follower{
				report: func(e Event) { told = append(told, e.What) },
				state: state{name: "hsn0", index: 7, up: true, addrs: map[netip.Prefix]bool{
					netip.MustParsePrefix("10.2.0.1/24"): true, netip.MustParsePrefix("fd00::1/64"): true,
				}},
			}
			for _, m := range tt.messages {
				next, again, err := f.apply(unix.NlMsghdr{Type: m.kind}, announcement(netip.MustParsePrefix(m.addr), m.flags))
				if err != nil || again {
					t.Fatalf("%v: again %t, %v", m, again, err)
				}
				f.publish(next)
			}
			if !slices.Equal(told, tt.want) {
				t.Errorf("told %q, want %q", told, tt.want)
			}
		})
	}
}

// TestWatchIPv6Checked checks an address that is in duplicate address detection when the watch
// starts, and again when the carrier comes back. Its removal is still reported.
func TestWatchIPv6Checked(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	b := &bench{Space: netspace.New(t), events: make(chan Event, 4096)}
	b.veth("hsn0", 9000)
	b.addr("hsn0", "fd00::1/64")
	b.Do(func() (err error) {
		b.w, err = start(ctx, "hsn0", bufferBytes, func(e Event) { b.events <- e })
		return err
	})
	t.Cleanup(func() { cancel(); must(t, b.w.Wait()) })
	settled := func() {
		t.Helper()
		for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
			addrs, err := b.NL.AddrList(b.Link("hsn0"), netlink.FAMILY_V6)
			must(t, err)
			if len(addrs) > 0 && !slices.ContainsFunc(addrs, func(a netlink.Addr) bool { return a.Flags&unix.IFA_F_TENTATIVE != 0 }) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatal("the check does not end")
			}
		}
	}
	settled()
	must(t, b.NL.LinkSetDown(b.Link("sw0")))
	b.expect("carrier lost")
	must(t, b.NL.LinkSetUp(b.Link("sw0")))
	b.expect("carrier is back")
	settled()
	must(t, b.NL.LinkSetDown(b.Link("hsn0")))
	b.expect("link down", "address fd00::1/64 removed")
}

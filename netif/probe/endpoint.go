package probe

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"

	"github.com/ddpbatch/ddpbatch/netif"
)

// ID tells listeners apart, even those that have one address. It is drawn at
// random for each.
type ID [16]byte

func newID() (id ID) {
	rand.Read(id[:]) // never fails
	return id
}

// IsZero says whether this is nobody's ID.
func (id ID) IsZero() bool { return id == ID{} }

// MarshalText writes 32 hexadecimal digits, and nothing for nobody.
func (id ID) MarshalText() ([]byte, error) {
	if id.IsZero() {
		return nil, nil
	}
	return hex.AppendEncode(nil, id[:]), nil
}

// UnmarshalText reads what MarshalText writes.
func (id *ID) UnmarshalText(text []byte) error {
	*id = ID{}
	if len(text) == 0 {
		return nil
	}
	if len(text) != 2*len(id) {
		return fmt.Errorf("id %q has not %d digits", text, 2*len(id))
	}
	_, err := hex.Decode(id[:], text)
	return err
}

// Endpoint is where and as what a host listens. It goes to the other hosts.
type Endpoint struct {
	Host      string       `json:"host"`
	Interface string       `json:"interface"`
	Addr      netip.Addr   `json:"addr"` // without zone: it means nothing elsewhere
	Prefix    netip.Prefix `json:"prefix"`
	MTU       int          `json:"mtu"`              // bytes
	MAC       string       `json:"mac,omitempty"`    // link-layer address; empty where there is none
	Routed    bool         `json:"routed,omitempty"` // the address is on a loopback or dummy link: packets come and go by others
	ID        ID           `json:"id"`
	TCP       uint16       `json:"tcp"`               // port
	UDP       uint16       `json:"udp,omitempty"`     // port; 0 for none
	Trouble   string       `json:"trouble,omitempty"` // why the host does not listen
}

// Unable is the endpoint of a host where [Listen] failed: the others do not probe
// it, and [Diagnose] names it.
func Unable(host string, choice netif.Choice, err error) Endpoint {
	e := endpointOf(host, choice)
	e.Trouble = err.Error()
	return e
}

func endpointOf(host string, choice netif.Choice) Endpoint {
	e := Endpoint{
		Host: host, Interface: choice.Interface, Addr: choice.Addr.WithZone(""),
		Prefix: choice.Prefix, MTU: choice.MTU, ID: newID(),
	}
	if link, err := net.InterfaceByIndex(choice.Index); err == nil {
		e.MAC = link.HardwareAddr.String()
		e.Routed = link.Flags&net.FlagLoopback != 0 || carriesNothing(choice.Index)
	}
	return e
}

// Neighbours are the endpoints that the one at a place in the ring probes: the
// next one and the one before, so that each pair is probed from both sides.
func Neighbours(ring []Endpoint, at int) []Endpoint {
	n := len(ring)
	switch {
	case at < 0 || at >= n || n == 1:
		return nil
	case n == 2:
		return []Endpoint{ring[1-at]}
	}
	return []Endpoint{ring[(at+1)%n], ring[(at+n-1)%n]}
}

// place says where a host is, for messages.
func (e Endpoint) place() string {
	return fmt.Sprintf("%s (%s, %s)", e.Host, e.Interface, e.Addr)
}

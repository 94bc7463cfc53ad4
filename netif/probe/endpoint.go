package probe

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"

	"github.com/ddpbatch/ddpbatch/netif"
)

// An ID identifies a listener, even if several have one address. It is random.
type ID [16]byte

func newID() (id ID) {
	rand.Read(id[:]) // never fails
	return id
}

// IsZero reports whether the ID is unset.
func (id ID) IsZero() bool { return id == ID{} }

// MarshalText returns 32 hexadecimal digits, or nothing for the zero ID.
func (id ID) MarshalText() ([]byte, error) {
	if id.IsZero() {
		return nil, nil
	}
	return hex.AppendEncode(nil, id[:]), nil
}

// UnmarshalText reads the format of MarshalText.
func (id *ID) UnmarshalText(text []byte) error {
	*id = ID{}
	if len(text) == 0 {
		return nil
	}
	if len(text) != 2*len(id) {
		return fmt.Errorf("invalid id %q: want %d hexadecimal digits", text, 2*len(id))
	}
	_, err := hex.Decode(id[:], text)
	return err
}

// An Endpoint describes a listener. Hosts exchange their endpoints.
type Endpoint struct {
	Host      string       `json:"host"`
	Interface string       `json:"interface"`
	Addr      netip.Addr   `json:"addr"` // without zone, which is valid only on its own host
	Prefix    netip.Prefix `json:"prefix"`
	MTU       int          `json:"mtu"`              // bytes
	MAC       string       `json:"mac,omitempty"`    // link-layer address; may be empty
	Routed    bool         `json:"routed,omitempty"` // the address is on a loopback or dummy link; packets use other links
	ID        ID           `json:"id"`
	TCP       uint16       `json:"tcp"`               // port
	UDP       uint16       `json:"udp,omitempty"`     // port; 0 without UDP
	Trouble   string       `json:"trouble,omitempty"` // why the host does not listen
}

// Unable returns the endpoint of a host where [Listen] failed. Other hosts do not probe it,
// and [Diagnose] reports it.
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
		e.Routed = link.Flags&net.FlagLoopback != 0 || isDummy(choice.Index)
	}
	return e
}

// Neighbors returns the endpoints that the endpoint at index at of the ring probes: the next
// one and the previous one. Each pair is probed from both sides.
func Neighbors(ring []Endpoint, at int) []Endpoint {
	n := len(ring)
	switch {
	case at < 0 || at >= n || n == 1:
		return nil
	case n == 2:
		return []Endpoint{ring[1-at]}
	}
	return []Endpoint{ring[(at+1)%n], ring[(at+n-1)%n]}
}

// label formats host, interface, and address, for messages.
func (e Endpoint) label() string {
	return fmt.Sprintf("%s (%s, %s)", e.Host, e.Interface, e.Addr)
}

package probe

import (
	"net/netip"
	"time"
)

// A Stage is a stage of a connection.
type Stage string

// The stages, in order. Each stage requires the one before it.
const (
	StageConnect Stage = "connect" // the TCP handshake
	StageGreet   Stage = "greet"   // a small message to the peer and its answer
	StageSend    Stage = "send"    // a large message to the peer
	StageReceive Stage = "receive" // the same message from the peer
	StageDone    Stage = "done"
)

// An Outcome is the result of a stage.
type Outcome string

// The outcomes. This host's kernel detects NoRoute, Prohibited, Blackhole, NoAddress, and
// LinkDown without sending a packet. An ICMP error from a router can also cause NoRoute.
const (
	OK              Outcome = "ok"
	Refused         Outcome = "refused"     // a RST
	Reset           Outcome = "reset"       // a RST on an open connection, or an early close
	TimedOut        Outcome = "timed out"   // silence
	Unreachable     Outcome = "unreachable" // EHOSTUNREACH: an ICMP error, or the neighbor does not answer
	NoRoute         Outcome = "no route"    // ENETUNREACH
	Prohibited      Outcome = "prohibited"  // EACCES or EPERM: a route or filter of this host prohibits it
	Blackhole       Outcome = "blackhole"   // EINVAL: a route of this host drops packets
	NoAddress       Outcome = "no address"  // EADDRNOTAVAIL: this host no longer has the address
	LinkDown        Outcome = "link down"   // ENETDOWN or ENODEV
	OtherHost       Outcome = "other host"  // another host of the job answers
	Unauthenticated Outcome = "stranger"    // the answering program does not have the secret
	Corrupt         Outcome = "corrupt"     // the received bytes differ from the sent bytes
	NotAllowed      Outcome = "not allowed" // this process may not bind to a device
	NotTried        Outcome = "not tried"   // the peer does not listen, or the system does not support it
	Failed          Outcome = "failed"      // anything else; see Detail
)

// A Trial is one connection to a peer.
type Trial struct {
	Stage   Stage         `json:"stage"`            // last stage
	Outcome Outcome       `json:"outcome"`          // result of the last stage
	Detail  string        `json:"detail,omitempty"` // error text of the system
	Source  netip.Addr    `json:"source"`           // this host's address, as the peer sees it
	By      ID            `json:"by"`               // the listener that answered, if not the peer
	ByHost  string        `json:"by_host,omitempty"`
	ICMP    []ICMP        `json:"icmp,omitempty"`
	Took    time.Duration `json:"took"`
}

func (t Trial) works() bool { return t.Outcome == OK }

// A Size is the packet size that passes in one direction.
type Size struct {
	Sent   int `json:"sent"`   // bytes of the largest IP packet that was tried; 0 if none was
	Passed int `json:"passed"` // bytes of the largest that arrived; 0 if none did
}

// short reports whether packets are lost because of their size.
func (s Size) short() bool { return s.Passed > 0 && s.Passed < s.Sent }

// A Path is the result of the datagrams, which must not be fragmented.
type Path struct {
	Tried bool `json:"tried"`
	Small bool `json:"small"` // a small datagram and its small answer passed
	Up    Size `json:"up"`    // to the peer
	Down  Size `json:"down"`  // from the peer
}

// An ICMP is an error message that arrived instead of an answer.
type ICMP struct {
	From netip.Addr `json:"from"` // sender
	V6   bool       `json:"v6,omitempty"`
	Type uint8      `json:"type"`
	Code uint8      `json:"code"`
}

// Neighbor table states that mean that the neighbor does not answer.
const (
	neighborIncomplete = "incomplete"
	neighborFailed     = "failed"
)

// A Kernel is this host's routing and neighbor data for the peer.
type Kernel struct {
	Leaves     string     `json:"leaves,omitempty"`      // egress interface for the chosen source address
	Refuses    string     `json:"refuses,omitempty"`     // why there is no route
	Via        netip.Addr `json:"via"`                   // gateway; invalid if the peer is on the link
	BareLeaves string     `json:"bare_leaves,omitempty"` // egress interface for an unbound socket
	BareSource netip.Addr `json:"bare_source"`           // source address of an unbound socket
	Neighbor   string     `json:"neighbour,omitempty"`   // state of the neighbor entry of the peer or gateway, as in "ip neighbour": "reachable", "failed", ...
	MAC        string     `json:"mac,omitempty"`         // link-layer address in the neighbor entry
}

// A Result is the evidence of one host about another.
type Result struct {
	From   Endpoint      `json:"from"`
	To     Endpoint      `json:"to"`
	Bound  Trial         `json:"bound"`  // from the chosen address, like the ranks' own sockets
	Bare   Trial         `json:"bare"`   // not bound, like NCCL's sockets; ends after StageGreet
	Device Trial         `json:"device"` // also bound to the chosen device; ends after StageGreet
	Path   Path          `json:"path"`
	ICMP   []ICMP        `json:"icmp,omitempty"` // received by any socket whose packets used the same path as Bound
	Kernel Kernel        `json:"kernel"`
	Local  string        `json:"local,omitempty"` // what happened to the interface of From since the choice
	Took   time.Duration `json:"took"`
}

// OK reports whether the ranks' own sockets work.
func (r Result) OK() bool { return r.Bound.works() && r.Bound.Stage == StageDone }

// A Sighting is a host from which a listener received a datagram.
type Sighting struct {
	ID        ID         `json:"id"`
	Source    netip.Addr `json:"source"`              // source address
	Interface string     `json:"interface,omitempty"` // interface on which the datagram arrived, if the system reports it
}

// A Report is a host's input to the diagnosis.
type Report struct {
	Endpoint Endpoint   `json:"endpoint"`
	Results  []Result   `json:"results"`
	Heard    []Sighting `json:"heard"`
}

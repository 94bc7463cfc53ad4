package probe

import (
	"net/netip"
	"time"
)

// Stage is how far a connection came.
type Stage string

// The stages, in order. Each needs the one before.
const (
	StageConnect Stage = "connect" // the TCP handshake
	StageGreet   Stage = "greet"   // a small message to the peer and its answer
	StageSend    Stage = "send"    // a large message to the peer
	StageReceive Stage = "receive" // the same message from the peer
	StageDone    Stage = "done"
)

// Outcome is how a stage ended.
type Outcome string

// The outcomes. Those that this host's kernel finds by itself, without a packet,
// are NoRoute, Prohibited, Blackhole, NoAddress and LinkDown; a router's word can
// also give NoRoute.
const (
	OK          Outcome = "ok"
	Refused     Outcome = "refused"     // a RST
	Reset       Outcome = "reset"       // a RST to an open connection, or its end
	TimedOut    Outcome = "timed out"   // silence
	Unreachable Outcome = "unreachable" // EHOSTUNREACH: an ICMP message, or no neighbour answers
	NoRoute     Outcome = "no route"    // ENETUNREACH
	Prohibited  Outcome = "prohibited"  // EACCES or EPERM: a route or filter of this host forbids it
	Blackhole   Outcome = "blackhole"   // EINVAL: a route of this host drops it
	NoAddress   Outcome = "no address"  // EADDRNOTAVAIL: this host no longer has its address
	LinkDown    Outcome = "link down"   // ENETDOWN or ENODEV
	OtherHost   Outcome = "other host"  // another host of the job answers
	Stranger    Outcome = "stranger"    // the answer does not prove knowledge of the secret
	Corrupt     Outcome = "corrupt"     // other bytes came than were sent
	NotAllowed  Outcome = "not allowed" // this process may not bind to a device
	NotTried    Outcome = "not tried"   // the peer does not listen, or the system cannot do it
	Failed      Outcome = "failed"      // anything else; see Detail
)

// Trial is one connection to a peer.
type Trial struct {
	Stage   Stage         `json:"stage"`            // where it ended
	Outcome Outcome       `json:"outcome"`          // how it ended
	Detail  string        `json:"detail,omitempty"` // the system's words
	Source  netip.Addr    `json:"source"`           // this host's address, as the peer saw it
	By      ID            `json:"by"`               // who answered, if not the peer
	ByHost  string        `json:"by_host,omitempty"`
	ICMP    []ICMP        `json:"icmp,omitempty"`
	Took    time.Duration `json:"took"`
}

func (t Trial) works() bool { return t.Outcome == OK }

// Size is what is known of the packets that pass one way.
type Size struct {
	Sent   int `json:"sent"`   // bytes of the largest IP packet that was tried; 0 if none was
	Passed int `json:"passed"` // bytes of the largest that arrived; 0 if none did
}

// short says whether packets are lost for their size.
func (s Size) short() bool { return s.Passed > 0 && s.Passed < s.Sent }

// Path is what datagrams that must not be fragmented tell.
type Path struct {
	Tried bool `json:"tried"`
	Small bool `json:"small"` // a small datagram and its small answer passed
	Up    Size `json:"up"`    // to the peer
	Down  Size `json:"down"`  // from the peer
}

// ICMP is an error message that came instead of an answer.
type ICMP struct {
	From netip.Addr `json:"from"` // who sent it
	V6   bool       `json:"v6,omitempty"`
	Type uint8      `json:"type"`
	Code uint8      `json:"code"`
}

// The states of the neighbour table that say that nobody answers.
const (
	neighbourIncomplete = "incomplete"
	neighbourFailed     = "failed"
)

// Kernel is what this host's kernel knows about the way to the peer.
type Kernel struct {
	Leaves     string     `json:"leaves,omitempty"`      // the interface that packets from the chosen address leave by
	Refuses    string     `json:"refuses,omitempty"`     // why there is no way
	Via        netip.Addr `json:"via"`                   // the gateway; not valid for a peer on the link itself
	BareLeaves string     `json:"bare_leaves,omitempty"` // the same for a socket that is bound to nothing
	BareSource netip.Addr `json:"bare_source"`           // and the address that it gets
	Neighbour  string     `json:"neighbour,omitempty"`   // state of the neighbour table (ip neighbour) for the peer or gateway: "reachable", "failed" ...
	MAC        string     `json:"mac,omitempty"`         // who the table says has the address
}

// Result is what one host saw of another.
type Result struct {
	From   Endpoint      `json:"from"`
	To     Endpoint      `json:"to"`
	Bound  Trial         `json:"bound"`  // from the chosen address, as the ranks' own sockets
	Bare   Trial         `json:"bare"`   // bound to nothing, as NCCL's; ends after StageGreet
	Device Trial         `json:"device"` // bound to the chosen device too; ends after StageGreet
	Path   Path          `json:"path"`
	ICMP   []ICMP        `json:"icmp,omitempty"` // to any socket whose packets took the way of the bound one
	Kernel Kernel        `json:"kernel"`
	Local  string        `json:"local,omitempty"` // what has happened to the interface of From meanwhile
	Took   time.Duration `json:"took"`
}

// OK says whether the ranks' own sockets work.
func (r Result) OK() bool { return r.Bound.works() && r.Bound.Stage == StageDone }

// Sighting is a host that a listener heard.
type Sighting struct {
	ID        ID         `json:"id"`
	Source    netip.Addr `json:"source"`              // the address that it sent from
	Interface string     `json:"interface,omitempty"` // the one that its datagram came in by, where the system says
}

// Report is what a host contributes to the diagnosis.
type Report struct {
	Endpoint Endpoint   `json:"endpoint"`
	Results  []Result   `json:"results"`
	Heard    []Sighting `json:"heard"`
}

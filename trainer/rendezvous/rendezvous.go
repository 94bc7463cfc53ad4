// Package rendezvous connects the ranks of one attempt. The launcher, or rank 0, runs a
// [Server]. Each rank holds a [Session] for its lifetime.
//
// Guarantees:
//
//   - Only processes with the attempt's secret count as ranks.
//   - If a rank does not join in time, the error names the rank and its host.
//   - The server rejects two processes with the same rank, and ranks with a different world
//     size, job file, or program. Both sides get the reason.
//   - An exchange between ranks is complete or returns an error.
//   - The server records the first failure and sends it to all other ranks. A silent rank, or
//     training without progress, also counts as a failure.
//   - A rank detects the loss of its server.
//
// The package does not transfer tensors (package collective does) and does not start or stop
// processes. It does not interpret the exchanged payloads, except in [Session.Peers].
//
// Network cost for the server: a rank that joins sends and receives about 500 bytes. The
// tables of peers grow with the square of the number of ranks. An entry takes 3 bytes with
// eight ranks per node and IPv4, or 10 bytes if consecutive ranks are never on one node. Of
// 4,096 ranks, each receives 12 KiB, in total 48 MiB. Of 16,384 ranks, each receives 48 KiB,
// in total 768 MiB, which takes 0.6 s at 10 Gb/s.
package rendezvous

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/wire"
)

// Labels of wire connections: of ranks that join, and of ranks that only report that they
// cannot start.
const (
	label       = "rendezvous"
	reportLabel = "rendezvous report"
)

// Frame kinds, in both directions.
const (
	kindJoin byte = iota + 1
	kindExchange
	kindBeat
	kindLeave
	kindWelcome
	kindRefused
	kindReply
	kindStop
	kindAbort
	kindNotice
	kindFailed
	kindWorkerFailed
)

// An Identity identifies a rank. The rank sends it when it joins.
type Identity struct {
	Rank      int    `json:"rank"`
	WorldSize int    `json:"world_size"`
	Host      string `json:"host"`
	PID       int    `json:"pid"`
	// Program and Spec are digests. They must be equal on all ranks.
	Program string `json:"program"`
	Spec    string `json:"spec"`
	// Problem is the reason why the rank cannot start, see [ReportProblem]. Hint is the fix.
	Problem string `json:"problem,omitempty"`
	Hint    string `json:"hint,omitempty"`
}

// A failedMessage is the reply to a failed round.
type failedMessage struct {
	Round string `json:"round"`
	Error string `json:"error"`
	Hint  string `json:"hint,omitempty"`
}

type noticeMessage struct {
	Text string `json:"text"`
}

// A workerFailedMessage is about a process that a rank's program started.
type workerFailedMessage struct {
	Restarts int    `json:"restarts"` // restarts of all workers before the failure
	Text     string `json:"text"`
}

type leaveMessage struct {
	Exit  int    `json:"exit"`
	Error string `json:"error,omitempty"`
	Hint  string `json:"hint,omitempty"`
	Ended bool   `json:"ended,omitempty"` // it left because the attempt ended, not because of its own failure
	// Blames is the rank that it waited for without success.
	Blames *int `json:"blames,omitempty"`
	// Unhandled means that no process of the user's program handled the stop signal.
	Unhandled bool `json:"unhandled,omitempty"`
	// Suspects are the ranks of which at least one is faulty; see [Session.Leave].
	Suspects []int `json:"suspects,omitempty"`
	// PortTaken means that another process has taken the port of the program; see [Session.Leave].
	PortTaken bool `json:"port_taken,omitempty"`
}

type reasonMessage struct {
	Reason string `json:"reason"`
	Stacks bool   `json:"stacks,omitempty"` // write stack traces to the log before the rank ends
}

func send(c *wire.Conn, kind byte, message any) error {
	b, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	return sendBytes(c, kind, b)
}

func sendBytes(c *wire.Conn, kind byte, parts ...[]byte) error {
	// A peer that does not read must not block the sender indefinitely.
	if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	return c.WriteFrame(kind, parts...)
}

const writeTimeout = 30 * time.Second

// roundEnd follows the name of a round in exchange and reply frames. The payload follows
// unchanged.
var roundEnd = []byte{0}

// sendRound sends the payload of a round.
func sendRound(c *wire.Conn, kind byte, round string, payload []byte) error {
	return sendBytes(c, kind, []byte(round), roundEnd, payload)
}

// cutRound parses a frame of sendRound. The payload is not nil.
func cutRound(frame []byte) (round string, payload []byte, err error) {
	name, payload, ok := bytes.Cut(frame, roundEnd)
	if !ok {
		return "", nil, errors.New("message that names no round")
	}
	return string(name), payload, nil
}

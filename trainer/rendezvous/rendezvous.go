// Package rendezvous brings the ranks of one attempt together: a [Server] that
// the launcher (or rank 0) keeps, and a [Session] that each rank holds for as
// long as it lives.
//
// It promises: only processes that know the attempt's secret are ever counted
// as ranks; a rank that does not come is named, with its host, within the join
// timeout; two processes that claim one rank, or ranks of different jobs, specs
// or programs, are refused on both sides with a reason; what ranks exchange
// here is complete or an error; the first failure of a rank is known to the
// server and told to every other rank, and so is a rank that falls silent or a
// training that stands still; a rank whose server is gone notices.
//
// It does not move tensors (package collective does), does not decide what the
// exchanged payloads mean but for where ranks listen ([Peers]), and starts and stops
// no process.
//
// What it costs the server's network: a rank that joins sends and receives some 500
// bytes. That each rank is told of each other grows with the square of their number,
// at 3 bytes with 8 ranks on a node and IPv4, 10 where neighbours in rank are never on
// one node: of 4,096 ranks each gets 12 KiB and all together 48 MiB, of 16,384 ranks
// each 48 KiB and all together 768 MiB, which is 0.6 s at 10 Gb/s.
package rendezvous

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/wire"
)

// The labels of wire connections: of ranks that join, and of ranks that only report that they
// cannot start.
const (
	label       = "rendezvous"
	reportLabel = "rendezvous report"
)

// Frame kinds, from ranks to the server and back.
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

// Identity is what a rank says of itself when it joins.
type Identity struct {
	Rank      int    `json:"rank"`
	WorldSize int    `json:"world_size"`
	Host      string `json:"host"`
	PID       int    `json:"pid"`
	// Program and Spec are digests; every rank must bring the same.
	Program string `json:"program"`
	Spec    string `json:"spec"`
	// Problem is why the rank cannot start, see [Report], and Hint is what to do about it.
	Problem string `json:"problem,omitempty"`
	Hint    string `json:"hint,omitempty"`
}

// failedMessage is the reply to a round that came to nothing.
type failedMessage struct {
	Round string `json:"round"`
	Error string `json:"error"`
	Hint  string `json:"hint,omitempty"`
}

type noticeMessage struct {
	Text string `json:"text"`
}

// workerFailedMessage is about a process that a rank's program has started.
type workerFailedMessage struct {
	Restarts int    `json:"restarts"` // how often all workers had been started again before
	Text     string `json:"text"`
}

type leaveMessage struct {
	Exit  int    `json:"exit"`
	Error string `json:"error,omitempty"`
	Hint  string `json:"hint,omitempty"`
	Ended bool   `json:"ended,omitempty"` // since it was told to, not by a fault of its own
	// Blames is the rank that it has waited for in vain.
	Blames *int `json:"blames,omitempty"`
	// Unhandled says that no process of a user's program handled the stop signal.
	Unhandled bool `json:"unhandled,omitempty"`
	// Suspects are the ranks of which at least one is faulty; see [Session.Leave].
	Suspects []int `json:"suspects,omitempty"`
}

type reasonMessage struct {
	Reason string `json:"reason"`
	Stacks bool   `json:"stacks,omitempty"` // to be kept before the rank ends
}

func send(c *wire.Conn, kind byte, message any) error {
	b, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	return sendBytes(c, kind, b)
}

func sendBytes(c *wire.Conn, kind byte, parts ...[]byte) error {
	// A peer that does not read must not hold the sender for ever.
	if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	return c.WriteFrame(kind, parts...)
}

const writeTimeout = 30 * time.Second

// roundEnd is behind the name of a round in the frames of an exchange and its reply;
// the payload follows as it is.
var roundEnd = []byte{0}

// sendRound sends a payload of a round.
func sendRound(c *wire.Conn, kind byte, round string, payload []byte) error {
	return sendBytes(c, kind, []byte(round), roundEnd, payload)
}

// cutRound is the opposite of sendRound. The payload is not nil.
func cutRound(frame []byte) (round string, payload []byte, err error) {
	name, payload, ok := bytes.Cut(frame, roundEnd)
	if !ok {
		return "", nil, errors.New("message that names no round")
	}
	return string(name), payload, nil
}

// hinted carries a hint beside an error that crossed the connection.
type hinted struct {
	error
	hint string
}

func (h hinted) Unwrap() error { return h.error }

// Hint says what to do about the error.
func (h hinted) Hint() string { return h.hint }

func withHint(err error, hint string) error {
	if hint == "" {
		return err
	}
	return hinted{err, hint}
}

func hintOf(err error) string {
	var h interface{ Hint() string }
	if errors.As(err, &h) {
		return h.Hint()
	}
	return ""
}

// FormatRanks writes ranks as people do: "rank 3", "ranks 0-3, 7".
func FormatRanks(ranks []int) string {
	slices.Sort(ranks)
	var parts []string
	for i := 0; i < len(ranks); {
		j := i
		for j+1 < len(ranks) && ranks[j+1] == ranks[j]+1 {
			j++
		}
		switch {
		case j == i:
			parts = append(parts, strconv.Itoa(ranks[i]))
		case j == i+1:
			parts = append(parts, strconv.Itoa(ranks[i]), strconv.Itoa(ranks[j]))
		default:
			parts = append(parts, fmt.Sprintf("%d-%d", ranks[i], ranks[j]))
		}
		i = j + 1
	}
	word := "ranks"
	if len(ranks) == 1 {
		word = "rank"
	}
	return word + " " + strings.Join(parts, ", ")
}

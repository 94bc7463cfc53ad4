package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/wire"
)

// transfers holds all-reduces over TCP between two network namespaces, by ddpbatch and Gloo.
type transfers struct {
	Date   string      `json:"date"`
	Rounds int         `json:"rounds"`
	Rows   []*transfer `json:"rows"`
}

// transfer holds the results for one size over one kind of link.
type transfer struct {
	link
	Bytes  int  `json:"bytes"`
	Ours   sums `json:"ddpbatch"`
	Theirs sums `json:"gloo"`
}

// link describes the link between the namespaces, and TCP's default behavior on it.
type link struct {
	MTU        int    `json:"mtu"`
	Congestion string `json:"congestion"` // default congestion control
}

// sums holds the times of each round in milliseconds.
type sums struct {
	Median []float64 `json:"median_ms"`
	Best   []float64 `json:"best_ms"`
}

// timedSum is a line of output of both sides.
type timedSum struct {
	Bytes  int     `json:"bytes"`
	Median float64 `json:"median_ms"`
	Best   float64 `json:"best_ms"`
}

// sumSizes are the buffer sizes in bytes.
var sumSizes = []string{"4096", "65536", "1048576", "26214400", "104857600"}

// links returns a fast network and an ordinary one with the system's congestion control, and one
// with a congestion control that does not delay packets. They are the same for both sides.
func links() ([]link, error) {
	name, err := os.ReadFile(congestionFile)
	if err != nil {
		return nil, err
	}
	system := strings.TrimSpace(string(name))
	list := []link{{9000, system}, {1500, system}}
	if system != "reno" {
		list = append(list, link{9000, "reno"})
	}
	return list, nil
}

// transfers measures both sides in turns.
func (r *runner) transfers(ctx context.Context) (*transfers, error) {
	found := &transfers{Date: time.Now().UTC().Format(time.DateOnly), Rounds: r.rounds}
	links, err := links()
	if err != nil {
		return nil, err
	}
	for round := range r.rounds {
		for _, l := range links {
			fmt.Fprintf(os.Stderr, "peers: round %d of %d: sums over TCP, MTU %d, %s\n", round+1, r.rounds, l.MTU, l.Congestion)
			if err := r.transfer(ctx, l, found); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

func (r *runner) transfer(ctx context.Context, l link, found *transfers) (err error) {
	c, err := newCable(l)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	ours, err := r.sumsOfOurs(ctx, c)
	if err != nil {
		return err
	}
	theirs, err := r.sumsOfGloo(ctx, c)
	if err != nil {
		return err
	}
	if len(ours) != len(theirs) {
		return fmt.Errorf("%d sizes of ddpbatch, %d of Gloo", len(ours), len(theirs))
	}
	for i := range ours {
		if err := found.add(l, ours[i], theirs[i]); err != nil {
			return err
		}
	}
	return nil
}

func (t *transfers) add(l link, ours, theirs timedSum) error {
	if ours.Bytes != theirs.Bytes || ours.Median <= 0 || theirs.Median <= 0 {
		return fmt.Errorf("not the same sums: %+v and %+v", ours, theirs)
	}
	var row *transfer
	for _, of := range t.Rows {
		if of.link == l && of.Bytes == ours.Bytes {
			row = of
		}
	}
	if row == nil {
		row = &transfer{link: l, Bytes: ours.Bytes}
		t.Rows = append(t.Rows, row)
	}
	row.Ours.add(ours)
	row.Theirs.add(theirs)
	return nil
}

func (s *sums) add(of timedSum) {
	s.Median, s.Best = append(s.Median, of.Median), append(s.Best, of.Best)
}

// sumsOfOurs runs a rank of "ddpbatch bench allreduce" at each end. The rank reads its index from a
// variable and receives its listener as a file.
func (r *runner) sumsOfOurs(ctx context.Context, c *cable) ([]timedSum, error) {
	secret, err := wire.NewSecret()
	if err != nil {
		return nil, err
	}
	var addrs []string
	var listeners [2]*os.File
	for end := range listeners {
		addr, f, err := c.listen(end)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		addrs, listeners[end] = append(addrs, addr), f
	}
	program, err := filepath.Abs(r.program)
	if err != nil {
		return nil, err
	}
	var ranks [2]*exec.Cmd
	for end := range ranks {
		place, err := json.Marshal(map[string]any{"rank": end, "addrs": addrs, "secret": secret.Encode()})
		if err != nil {
			return nil, err
		}
		cmd := exec.CommandContext(ctx, program, "bench", "allreduce", "--ranks=2", "--tcp", "--bytes="+strings.Join(sumSizes, ","))
		cmd.Env = append(environment(os.Environ()), "DDPBATCH_BENCH_RANK="+string(place))
		cmd.ExtraFiles = []*os.File{listeners[end]}
		ranks[end] = cmd
	}
	out, err := c.outputs(ranks)
	if err != nil {
		return nil, err
	}
	var found []timedSum
	if err := json.Unmarshal(out[0], &found); err != nil {
		return nil, fmt.Errorf("read %q: %w", out[0], err)
	}
	return found, nil
}

// sumsOfGloo runs a rank of PyTorch at each end.
func (r *runner) sumsOfGloo(ctx context.Context, c *cable) ([]timedSum, error) {
	var ranks [2]*exec.Cmd
	for end := range ranks {
		args := []string{"-B", filepath.Join(r.scripts, "allreduce.py"), fmt.Sprint(end), address(0), "29500"}
		cmd := exec.CommandContext(ctx, r.python, append(args, sumSizes...)...)
		cmd.Env = append(environment(os.Environ()), "GLOO_SOCKET_IFNAME="+device)
		ranks[end] = cmd
	}
	out, err := c.outputs(ranks)
	if err != nil {
		return nil, err
	}
	return timedSums(out[0], nil)
}

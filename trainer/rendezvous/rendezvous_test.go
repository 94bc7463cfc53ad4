package rendezvous

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/trainer/wire"
)

// An attempt is a server with its secret and its address.
type attempt struct {
	*Server
	secret wire.Secret
	addr   string
}

func start(t *testing.T, world int, change func(*ServerOptions)) attempt {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, l, world, change)
}

// serve starts an attempt on a given listener.
func serve(t testing.TB, l net.Listener, world int, change func(*ServerOptions)) attempt {
	t.Helper()
	secret, err := wire.NewSecret()
	if err != nil {
		t.Fatal(err)
	}
	o := ServerOptions{WorldSize: world, Secret: secret, JoinTimeout: 20 * time.Second,
		Rounds: map[string]Decide{"count": count, "zero": FromRankZero, "peers": FromPeers}}
	if change != nil {
		change(&o)
	}
	s := Serve(l, o)
	t.Cleanup(func() { s.Close() })
	return attempt{s, secret, l.Addr().String()}
}

// unready is the reason why a rank cannot start, with a hint.
type unready struct{ error }

func (unready) Hint() string { return "share it" }

// TestReportOfARankThatCannotStart checks that a rank that cannot start fails the attempt
// immediately, with its reason and hint. Its digests may differ from the other ranks' digests. The
// report key does not permit anything else.
func TestReportOfARankThatCannotStart(t *testing.T) {
	key := wire.Secret{9}
	a := start(t, 3, func(o *ServerOptions) { o.Program, o.Spec, o.JoinTimeout, o.ReportKey = "p", "s", time.Hour, key })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	joined, err := Join(ctx, []string{a.addr}, a.secret, Identity{Rank: 0, WorldSize: 3, Host: "n1", PID: 1, Program: "p", Spec: "s"})
	if err != nil {
		t.Fatal(err)
	}
	id := Identity{Rank: 1, WorldSize: 3, Host: "n2", PID: 2}
	// A peer with only the report key cannot join, and cannot report for a rank that has
	// joined.
	for _, other := range []Identity{
		{Rank: 1, WorldSize: 3, Host: "n2", PID: 2, Program: "p", Spec: "s"},
		{Rank: 0, WorldSize: 3, Host: "n1", PID: 2, Problem: "invented"},
		{Rank: 1, WorldSize: 2, Host: "n2", PID: 2, Problem: "invented"},
	} {
		raw, err := net.Dial("tcp", a.addr)
		if err != nil {
			t.Fatal(err)
		}
		c, err := wire.Client(raw, key, reportLabel)
		if err != nil {
			t.Fatal(err)
		}
		if err := send(c, kindJoin, other); err != nil {
			t.Fatal(err)
		}
		if kind, _, err := c.ReadFrame(); err == nil {
			t.Errorf("%+v was answered with a message of kind %d", other, kind)
		}
	}
	if _, err := connectOnce(ctx, []string{a.addr}, wire.Key{Secret: key, Label: label}); !errors.Is(err, wire.ErrNotAuthentic) {
		t.Errorf("join with the report key: %v", err)
	}
	if err := ReportProblem(ctx, []string{a.addr}, key, id, unready{errors.New("the directory is missing")}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-joined.Context().Done():
	case <-ctx.Done():
		t.Fatal("the rank that has joined was not notified")
	}
	_ = joined.Leave(1, context.Cause(joined.Context()))
	o, err := a.Wait(ctx)
	if err != nil || o.First == nil {
		t.Fatal(o, err)
	}
	if f := o.First; f.Rank != 1 || f.Host != "n2" || f.State != Failed || f.Exit != 1 || f.Reason != "rank 1 on n2: the directory is missing" || f.Advice != "share it" {
		t.Errorf("got %+v", f)
	}
	if r := o.Ranks[1]; r.State != Failed || r.Host != "n2" {
		t.Errorf("rank 1 is %+v", r)
	}
}

func timeoutContext(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// count returns to every rank how many bytes it and the others have sent.
func count(payloads [][]byte) ([][]byte, error) {
	replies := make([][]byte, len(payloads))
	for r := range replies {
		replies[r] = fmt.Appendf(nil, "%d of %d", len(payloads[r]), len(bytes.Join(payloads, nil)))
	}
	return replies, nil
}

func (a attempt) join(t *testing.T, rank, world int) (*Session, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	return Join(ctx, []string{a.addr}, a.secret, Identity{Rank: rank, WorldSize: world, Host: fmt.Sprintf("n%d", rank+1), PID: 100 + rank})
}

func (a attempt) joinAll(t *testing.T, world int) []*Session {
	t.Helper()
	sessions := make([]*Session, world)
	for r := range sessions {
		s, err := a.join(t, r, world)
		if err != nil {
			t.Fatalf("rank %d: %v", r, err)
		}
		sessions[r] = s
	}
	return sessions
}

func wait(t *testing.T, a attempt) Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	o, err := a.Wait(ctx)
	if err != nil {
		t.Fatalf("the attempt did not end: %v (%+v)", err, o)
	}
	return o
}

// TestRoundsAndLeave checks the usual sequence: ranks join, exchange data in rounds, and leave.
func TestRoundsAndLeave(t *testing.T) {
	const world = 5
	a := start(t, world, nil)
	var wg sync.WaitGroup
	for r, s := range a.joinAll(t, world) {
		wg.Go(func() {
			for _, tt := range []struct{ round, want string }{{"count", fmt.Sprintf("%d of 10", r)}, {"zero", ""}} {
				got, err := s.Exchange(t.Context(), tt.round, bytes.Repeat([]byte{0}, r))
				if err != nil || string(got) != tt.want {
					t.Errorf("rank %d, round %s: %q, %v; want %q", r, tt.round, got, err, tt.want)
				}
			}
			if err := s.Leave(0, nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	o := wait(t, a)
	if o.First != nil || o.Exit != 0 {
		t.Fatalf("outcome %+v", o)
	}
	for _, r := range o.Ranks {
		if r.State != Done {
			t.Errorf("rank %d is %s", r.Rank, r.State)
		}
	}
}

// TestMissingRanksAreNamedWithTheirHosts checks that the failure names the ranks that did not join
// in time, with their hosts.
func TestMissingRanksAreNamedWithTheirHosts(t *testing.T) {
	a := start(t, 6, func(o *ServerOptions) {
		o.JoinTimeout = time.Hour
		o.Host = func(rank int) string { return fmt.Sprintf("n%d", rank/2+1) }
	})
	s, err := a.join(t, 0, 6)
	if err != nil {
		t.Fatal(err)
	}
	a.joinTick.Reset(0)
	<-s.Context().Done()
	if err := context.Cause(s.Context()); !errors.Is(err, ErrAborted) || !strings.Contains(err.Error(), "n3") {
		t.Errorf("the rank that joined got %v", err)
	}
	s.Leave(4, nil)
	o := wait(t, a)
	want := "5 of 6 ranks did not join within 1h0m0s: rank 1 on n1; ranks 2, 3 on n2; ranks 4, 5 on n3"
	if o.First == nil || o.First.Error() != want || o.First.State != Missing {
		t.Fatalf("first failure %+v\nwant %s", o.First, want)
	}
}

// TestFirstFailureReachesAllRanks checks that all ranks receive the first failure of an attempt,
// with rank, host, and step.
func TestFirstFailureReachesAllRanks(t *testing.T) {
	for _, tt := range []struct {
		name  string
		end   func(*Session)
		state State
		want  string
		exit  int
	}{
		{"killed", func(s *Session) { s.conn.Close() }, Lost, "rank 1 on n2 was lost at step 7 (training): its process was killed or crashed", 0},
		{"failed", func(s *Session) { s.Leave(1, errors.New("loss is not finite")) }, Failed, "rank 1 on n2: loss is not finite", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := start(t, 3, nil)
			sessions := a.joinAll(t, 3)
			sessions[1].Report(func() Progress { return Progress{Step: 7, Phase: "training"} })
			tt.end(sessions[1])
			for _, r := range []int{0, 2} {
				select {
				case <-sessions[r].Context().Done():
				case <-time.After(time.Minute):
					t.Fatalf("rank %d was not notified", r)
				}
				if err := context.Cause(sessions[r].Context()); !strings.Contains(err.Error(), tt.want) {
					t.Errorf("rank %d got %v", r, err)
				}
				sessions[r].Leave(4, nil)
			}
			o := wait(t, a)
			if o.First == nil || o.First.Error() != tt.want || o.First.State != tt.state || o.First.Step != 7 || o.Exit != tt.exit {
				t.Fatalf("first %+v, exit %d", o.First, o.Exit)
			}
		})
	}
}

// TestFailureDecidesTheExitCode checks that the exit code of the rank that fails counts, even if a rank
// that was asked to stop has left with a larger code.
func TestFailureDecidesTheExitCode(t *testing.T) {
	a := start(t, 2, nil)
	sessions := a.joinAll(t, 2)
	a.Stop("the time limit is near")
	sessions[0].Leave(128+15, nil)
	for a.Outcome().Ranks[0].State != Done {
		time.Sleep(time.Millisecond)
	}
	sessions[1].Leave(4, errors.New("the program did not end in time"))
	if o := wait(t, a); o.First == nil || o.First.Rank != 1 || o.Exit != 4 {
		t.Errorf("first %+v, exit code %d, want 4", o.First, o.Exit)
	}
}

// inVain is a failure that another rank caused.
type inVain int

func (inVain) Error() string                     { return "no answer within 5s" }
func (r inVain) FailedRank() (rank int, ok bool) { return int(r), true }

// TestBlamedRankIsTheCause checks that a rank that another rank waited for is the cause if it is
// still joined. A rank that does not exist, has left, or is the reporter is not the cause.
func TestBlamedRankIsTheCause(t *testing.T) {
	for blamed, want := range map[int]Failure{
		2: {Rank: 2, Host: "n3", State: Lost, Step: 7, Phase: "training", Reason: "rank 2 on n3 hangs or is cut off at step 7 (training): rank 1 on n2: no answer within 5s"},
		0: {Rank: 1, Host: "n2", State: Failed, Exit: 1, Reason: "rank 1 on n2: no answer within 5s"},
		1: {Rank: 1, Host: "n2", State: Failed, Exit: 1, Reason: "rank 1 on n2: no answer within 5s"},
		9: {Rank: 1, Host: "n2", State: Failed, Exit: 1, Reason: "rank 1 on n2: no answer within 5s"},
	} {
		a := start(t, 3, nil)
		sessions := a.joinAll(t, 3)
		sessions[0].Leave(0, nil)
		sessions[2].Report(func() Progress { return Progress{Step: 7, Phase: "training"} })
		for a.Outcome().Ranks[2].Step != 7 || a.Outcome().Ranks[0].State != Done {
			time.Sleep(time.Millisecond)
		}
		sessions[1].Leave(1, inVain(blamed))
		<-a.Failing()
		if f := a.Outcome().First; *f != want {
			t.Errorf("rank %d is blamed: %+v, want %+v", blamed, *f, want)
		}
		sessions[2].conn.Close()
		if o := wait(t, a); o.Ranks[2].State != Lost {
			t.Errorf("rank 2: %+v", o.Ranks[2])
		}
	}
}

// portTaken is a failure because another process has the port of the program.
type portTaken struct{}

func (portTaken) Error() string   { return "another process uses the port" }
func (portTaken) PortTaken() bool { return true }

// TestTakenPortIsTheCause checks that a taken port is the cause of the attempt's failure, even if
// another rank has failed before. A failure that is not about a rank stays the cause.
func TestTakenPortIsTheCause(t *testing.T) {
	for _, tt := range []struct {
		name   string
		before func(a attempt, sessions []*Session)
		want   Failure
	}{
		{"first", func(attempt, []*Session) {}, Failure{Rank: 0, Host: "n1", State: Failed, Exit: 4, PortTaken: true, Reason: "rank 0 on n1: another process uses the port"}},
		{"after a rank", func(_ attempt, sessions []*Session) { sessions[1].Leave(7, errors.New("no answer")) },
			Failure{Rank: 0, Host: "n1", State: Failed, Exit: 4, PortTaken: true, Reason: "rank 0 on n1: another process uses the port; before that: rank 1 on n2: no answer"}},
		{"after the launcher", func(a attempt, _ []*Session) { a.Abort(Failure{Rank: -1, Reason: "canceled"}) }, Failure{Rank: -1, Reason: "canceled"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := start(t, 2, nil)
			sessions := a.joinAll(t, 2)
			tt.before(a, sessions)
			if tt.name != "first" {
				<-a.Failing()
			}
			sessions[0].Leave(4, fmt.Errorf("run: %w", portTaken{}))
			<-a.Failing()
			if tt.name != "after a rank" {
				sessions[1].Leave(4, ErrAborted)
			}
			want := tt.want
			want.Reason = strings.Replace(want.Reason, "another process", "run: another process", 1)
			if o := wait(t, a); *o.First != want {
				t.Errorf("got %+v, want %+v", *o.First, want)
			}
		})
	}
}

// among is a failure of at least one of several ranks.
type among []int

func (among) Error() string     { return "the weights differ" }
func (among) Hint() string      { return "test the memory" }
func (a among) Suspects() []int { return a }

// TestSuspectsAreNamed checks that the failure names all suspects that a rank reports, not the
// reporter. It blames a rank or a host only if there is no other suspect.
func TestSuspectsAreNamed(t *testing.T) {
	for _, tt := range []struct {
		name     string
		suspects among
		want     Failure
	}{
		{"a tie", among{0, 1}, Failure{Rank: -1, State: Failed, Exit: 1,
			Reason: "the weights differ (rank 0 on n1, rank 1 on n2)", Advice: "suspected nodes: n1, n2; test the memory"}},
		{"another rank", among{2}, Failure{Rank: 2, Host: "n3", State: Failed, Exit: 1,
			Reason: "the weights differ (rank 2 on n3)", Advice: "suspected nodes: n3; test the memory"}},
		{"an impossible rank", among{3}, Failure{Rank: 1, Host: "n2", State: Failed, Exit: 1,
			Reason: "rank 1 on n2: the weights differ", Advice: "test the memory"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := start(t, 3, nil)
			sessions := a.joinAll(t, 3)
			sessions[1].Leave(1, fmt.Errorf("train: %w", tt.suspects))
			<-a.Failing()
			want := tt.want
			want.Reason = strings.Replace(want.Reason, "the weights", "train: the weights", 1)
			if f := a.Outcome().First; *f != want {
				t.Errorf("got %+v, want %+v", *f, want)
			}
			for _, s := range []*Session{sessions[0], sessions[2]} {
				s.Leave(4, nil)
			}
			wait(t, a)
		})
	}
}

// TestLostRankTime checks that the reported time of a lost rank is the time of its last message,
// not of the detection.
func TestLostRankTime(t *testing.T) {
	seen := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	s := &Server{o: ServerOptions{WorldSize: 1}, ranks: []RankStatus{{State: Joined, Seen: seen}}, members: make([]*wire.Conn, 1),
		failing: make(chan struct{}), finished: make(chan struct{})}
	s.recordLoss(0, io.EOF)
	if r := s.Outcome().Ranks[0]; r.State != Lost || !r.Seen.Equal(seen) {
		t.Errorf("%+v", r)
	}
}

// TestInvalidRanksAreRejected checks that a rank with a wrong number, program, or job file is
// rejected, and that the attempt fails with the reason.
func TestInvalidRanksAreRejected(t *testing.T) {
	id := func(change func(*Identity)) Identity {
		i := Identity{Rank: 1, WorldSize: 2, Host: "n2", PID: 7, Program: "aaaa", Spec: "bbbb"}
		change(&i)
		return i
	}
	for name, tt := range map[string]struct {
		id   Identity
		want string
	}{
		"world size":  {id(func(i *Identity) { i.WorldSize = 3 }), "rank 1 on n2 was started for 3 ranks, but this attempt has 2"},
		"rank":        {id(func(i *Identity) { i.Rank = 2 }), "rank 2 on n2 is outside 0..1"},
		"negative":    {id(func(i *Identity) { i.Rank = -1 }), "rank -1 on n2 is outside 0..1"},
		"twice":       {id(func(i *Identity) { i.Rank = 0 }), "rank 0 on n2 (process 7) joined, but rank 0 is already process 1 on n1"},
		"other build": {id(func(i *Identity) { i.Program = "cccc" }), "rank 1 on n2 runs another build of ddpbatch (cccc, not aaaa)"},
		"other spec":  {id(func(i *Identity) { i.Spec = "dddd" }), "rank 1 on n2 reads another job file (digest dddd, not bbbb)"},
	} {
		t.Run(name, func(t *testing.T) {
			a := start(t, 2, nil)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			s0, err := Join(ctx, []string{a.addr}, a.secret, Identity{Rank: 0, WorldSize: 2, Host: "n1", PID: 1, Program: "aaaa", Spec: "bbbb"})
			if err != nil {
				t.Fatal(err)
			}
			_, err = Join(ctx, []string{a.addr}, a.secret, tt.id)
			if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("refused with %v, want %s", err, tt.want)
			}
			<-s0.Context().Done()
			s0.Leave(4, nil)
			if o := wait(t, a); o.First == nil || o.First.Reason != tt.want {
				t.Errorf("first failure %+v", o.First)
			}
		})
	}
}

// TestLauncherLossIsDetected checks that a rank detects the loss of its launcher.
func TestLauncherLossIsDetected(t *testing.T) {
	for range 50 { // the launcher may not have admitted the rank yet
		a := start(t, 1, nil)
		s, err := a.join(t, 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		a.Close()
		<-s.Context().Done()
		if err := context.Cause(s.Context()); !errors.Is(err, ErrLauncherLost) {
			t.Fatalf("cause %v", err)
		}
	}
}

// TestStopReachesAllAndLateRanks checks that a stop request reaches ranks that have joined and
// ranks that join later.
func TestStopReachesAllAndLateRanks(t *testing.T) {
	a := start(t, 2, nil)
	early, err := a.join(t, 0, 2)
	if err != nil {
		t.Fatal(err)
	}
	a.Stop("the time limit is near")
	late, err := a.join(t, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range []*Session{early, late} {
		select {
		case <-s.Stopping():
		case <-time.After(time.Minute):
			t.Fatalf("rank %d was not asked to stop", i)
		}
		s.Leave(3, nil)
	}
	if o := wait(t, a); o.First != nil || o.Exit != 3 {
		t.Errorf("outcome %+v", o)
	}
}

// TestDecisionErrorReachesEveryRank checks that an error in a round reaches each rank with its
// hint and is the failure of the attempt.
func TestDecisionErrorReachesEveryRank(t *testing.T) {
	a := start(t, 2, func(o *ServerOptions) {
		o.Rounds["network"] = func([][]byte) ([][]byte, error) {
			return nil, hints.Add(errors.New("no network reaches n2"), "ask the administrator")
		}
	})
	var wg sync.WaitGroup
	for _, s := range a.joinAll(t, 2) {
		wg.Go(func() {
			_, err := s.Exchange(t.Context(), "network", nil)
			if err == nil || err.Error() != "no network reaches n2" || hints.Of(err) != "ask the administrator" {
				t.Errorf("got %v, hint %q", err, hints.Of(err))
			}
			s.Leave(1, err)
		})
	}
	wg.Wait()
	if o := wait(t, a); o.First == nil || o.First.Reason != "no network reaches n2" || o.First.Advice != "ask the administrator" {
		t.Errorf("first %+v", o.First)
	}
}

// TestDeathBetweenContributions checks that the server names a rank that dies after it has
// contributed to a round, and notifies the others.
func TestDeathBetweenContributions(t *testing.T) {
	a := start(t, 2, nil)
	sessions := a.joinAll(t, 2)
	go sessions[0].Exchange(t.Context(), "zero", []byte("early"))
	for {
		a.mu.Lock()
		contributed := a.rounds["zero"] != nil
		a.mu.Unlock()
		if contributed {
			break
		}
		time.Sleep(time.Millisecond)
	}
	sessions[0].conn.Close()
	<-a.Failing()
	if _, err := sessions[1].Exchange(t.Context(), "zero", []byte("late")); !errors.Is(err, ErrAborted) {
		t.Errorf("rank 1 got %v", err)
	}
	sessions[1].Leave(4, nil)
	if o := wait(t, a); o.First == nil || o.First.Rank != 0 || o.First.State != Lost {
		t.Errorf("first failure %+v", o.First)
	}
}

// TestNotifiedRanksHaveNotFailed checks that a rank that ends because the attempt ended counts as
// ended, and a rank with a separate error as failed.
func TestNotifiedRanksHaveNotFailed(t *testing.T) {
	a := start(t, 3, nil)
	sessions := a.joinAll(t, 3)
	sessions[1].Leave(7, errors.New("no disk"))
	<-sessions[0].Context().Done()
	sessions[0].Leave(4, fmt.Errorf("train: %w", context.Cause(sessions[0].Context())))
	<-sessions[2].Context().Done()
	sessions[2].Leave(9, errors.New("no disk either"))
	o := wait(t, a)
	for rank, want := range []State{Ended, Failed, Failed} {
		if got := o.Ranks[rank]; got.State != want || (got.Error == "") != (want == Ended) {
			t.Errorf("%+v, want %s", got, want)
		}
	}
	if o.First == nil || o.First.Rank != 1 || o.Exit != 7 {
		t.Errorf("first failure %+v, exit code %d", o.First, o.Exit)
	}
}

// TestReasonIncludesNotices checks that the reason of a failure includes the most recent notices
// of the ranks.
func TestReasonIncludesNotices(t *testing.T) {
	warned := make(chan string, 10)
	a := start(t, 2, func(o *ServerOptions) { o.Warn = func(m string) { warned <- m } })
	sessions := a.joinAll(t, 2)
	for i := range maxNotices + 2 {
		if err := sessions[0].Notify(fmt.Sprintf("hsn0: event %d", i)); err != nil {
			t.Fatal(err)
		}
		if got, want := <-warned, fmt.Sprintf("n1: hsn0: event %d", i); got != want {
			t.Errorf("warned of %q, want %q", got, want)
		}
	}
	sessions[1].conn.Close()
	<-sessions[0].Context().Done()
	sessions[0].Leave(4, nil)
	want := "its process was killed or crashed; noticed before: n1: hsn0: event 2; n1: hsn0: event 3; n1: hsn0: event 4; n1: hsn0: event 5"
	if o := wait(t, a); o.First == nil || !strings.HasSuffix(o.First.Error(), want) {
		t.Errorf("first failure %+v, want %q at its end", o.First, want)
	}
}

// TestFirstFailedWorkerIsTheCause checks that the first failed worker is the cause, even if the
// launcher on another node ends first.
func TestFirstFailedWorkerIsTheCause(t *testing.T) {
	for _, tt := range []struct {
		name  string
		tell  []workerFailedMessage // of rank 1, then of rank 0
		cause int
		text  string
	}{
		{"on another node", []workerFailedMessage{{0, "worker b"}, {0, "worker a"}}, 1, "worker b"},
		{"after a restart", []workerFailedMessage{{0, "worker b"}, {1, "worker a"}}, 0, "worker a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := start(t, 2, nil)
			sessions := a.joinAll(t, 2)
			for i, m := range tt.tell {
				if err := sessions[1-i].ReportWorkerFailure(m.Restarts, m.Text); err != nil {
					t.Fatal(err)
				}
				for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
					a.Server.mu.Lock()
					w := a.Server.worker
					known := w != nil && (w.text == m.Text || i == 1 && m.Restarts == 0)
					a.Server.mu.Unlock()
					if known {
						break
					}
					if time.Now().After(end) {
						t.Fatal("the server does not know")
					}
				}
			}
			if err := sessions[0].Leave(1, errors.New("torchrun ended with exit code 1")); err != nil {
				t.Fatal(err)
			}
			<-sessions[1].Context().Done()
			_ = sessions[1].Leave(4, context.Cause(sessions[1].Context()))
			o := wait(t, a)
			if o.First == nil || o.First.Rank != tt.cause || !strings.Contains(o.First.Reason, tt.text) || o.First.Exit != 1 || o.Ranks[tt.cause].State != Failed {
				t.Errorf("got %+v, ranks %+v, want rank %d and %q", o.First, o.Ranks, tt.cause, tt.text)
			}
		})
	}
}

// TestReportedWorkerIsNotTheCause checks which failed workers do not cause a later failure: a
// worker that failed long ago, because torchrun has restarted it, and a worker that ended
// because it was asked to stop.
func TestReportedWorkerIsNotTheCause(t *testing.T) {
	for _, tt := range []struct {
		name   string
		before func(*Server) // runs before the worker's report
		after  func(*Server)
	}{
		{"restarted since", nil, func(s *Server) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.worker.at = s.worker.at.Add(-2 * maxWorkerAge)
		}},
		{"asked to stop", func(s *Server) { s.Stop("SIGTERM") }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := start(t, 2, nil)
			sessions := a.joinAll(t, 2)
			if tt.before != nil {
				tt.before(a.Server)
			}
			a.Server.workerFailed(1, workerFailedMessage{0, "worker b"})
			if tt.after != nil {
				tt.after(a.Server)
			}
			if err := sessions[0].Leave(137, errors.New("torchrun was killed")); err != nil {
				t.Fatal(err)
			}
			<-sessions[1].Context().Done()
			_ = sessions[1].Leave(4, context.Cause(sessions[1].Context()))
			o := wait(t, a)
			if o.First == nil || o.First.Rank != 0 || strings.Contains(o.First.Reason, "worker b") || o.Ranks[1].State == Failed {
				t.Errorf("got %+v, ranks %+v, want rank 0 and no worker", o.First, o.Ranks)
			}
		})
	}
}

// TestLaterWorkerReplacesStaleReport checks that a worker that failed long ago does not hide a
// worker that fails after the same number of restarts.
func TestLaterWorkerReplacesStaleReport(t *testing.T) {
	s := start(t, 2, nil).Server
	s.workerFailed(1, workerFailedMessage{0, "worker b"})
	s.mu.Lock()
	s.worker.at = s.worker.at.Add(-2 * maxWorkerAge)
	s.mu.Unlock()
	s.workerFailed(0, workerFailedMessage{0, "worker a"})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.worker.rank != 0 || s.worker.text != "worker a" {
		t.Errorf("got %+v, want rank 0's worker", s.worker)
	}
}

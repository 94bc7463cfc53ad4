package submit

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

// TestElements checks which trials are submitted.
func TestElements(t *testing.T) {
	const failed, running, done = "FAILED 256 NonZeroExitCode", "RUNNING", "COMPLETED"
	for _, tt := range []struct {
		name   string
		first  []int     // submitted as job 101; nil for all
		states [3]string // of its trials
		asked  []int
		failed bool
		want   []int // submitted as job 102, or nil
		fails  string
	}{
		{name: "all failed", states: [3]string{failed, failed, failed}, want: []int{0, 1, 2}},
		{name: "the rest", states: [3]string{done, failed, done}, want: []int{1}},
		{name: "nothing is left", states: [3]string{done, done, done}},
		{name: "one is running", states: [3]string{done, failed, running}, fails: "1 trial of the sweep still queued or running, such as trial 2 (job 101_2, running"},
		{name: "one is running, only the failed", states: [3]string{done, failed, running}, failed: true, want: []int{1}},
		{name: "none has failed", states: [3]string{done, running, running}, failed: true},
		{name: "failed and never submitted", first: []int{0}, states: [3]string{failed, "", ""}, failed: true, want: []int{0}},
		{name: "all that is not done and never submitted", first: []int{0}, states: [3]string{failed, "", ""}, want: []int{0, 1, 2}},
		{name: "never submitted", first: []int{0}, states: [3]string{done, "", ""}, want: []int{1, 2}},
		{name: "forgotten without a trace", states: [3]string{done, "", done}, failed: true, want: []int{1}},
		{name: "by number", states: [3]string{failed, failed, running}, asked: []int{0}, want: []int{0}},
		{name: "by number, running", states: [3]string{failed, failed, running}, asked: []int{1, 2}, fails: "1 trial of the sweep still queued or running"},
		{name: "by number, done", states: [3]string{done, failed, running}, asked: []int{0}},
		{name: "by a number that there is none of", states: [3]string{done, failed, done}, asked: []int{3}, fails: "no trial 3: the sweep has trials 0 to 2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			req := c.request(swept)
			req.Elements = tt.first
			if r := c.submitted(req); tt.first == nil && !slices.Equal(r.Elements, []int{0, 1, 2}) {
				t.Errorf("%+v", r)
			}
			for i, s := range tt.states {
				c.state(fmt.Sprint("101_", i), s)
			}
			req.Elements, req.Failed = tt.asked, tt.failed
			r, err := c.submit(req)
			if tt.fails != "" {
				mustFail(t, err, tt.fails)
				if len(c.calls()) != 1 {
					t.Errorf("%q", c.calls())
				}
				return
			}
			if err != nil || !slices.Equal(r.Elements, tt.want) || (r.JobID != "") != (tt.want != nil) {
				t.Fatalf("%+v, %v; want %v", r, err, tt.want)
			}
			for i := range 3 {
				record, err := c.dir("s").Element(i).ReadRecord()
				if got := err == nil && record.LastJob() == fmt.Sprint("102_", i); got != slices.Contains(tt.want, i) {
					t.Errorf("element %d: %+v, %v", i, record.Submissions, err)
				}
			}
		})
	}
}

// TestElementsThatAreDone checks that a trial is done if it completed its training or ended
// successfully, even if Slurm has a different state.
func TestElementsThatAreDone(t *testing.T) {
	c := newCluster(t)
	req := c.request(swept)
	c.submitted(req)
	c.saved(c.dir("s").Element(0), true)
	c.saved(c.dir("s").Element(1), false)
	c.ended(c.dir("s").Element(2), "101_2", 0)
	if r := c.submitted(req); !slices.Equal(r.Elements, []int{1}) {
		t.Errorf("%+v", r)
	}
}

// TestElementsOfALostAnswer checks that trials of a submission with a lost reply are not submitted
// again. The others are.
func TestElementsOfALostAnswer(t *testing.T) {
	c := newCluster(t)
	req := c.request(swept)
	sub := c.cut(req, 0, 1)
	c.write(c.fake, "101.job", sub.Comment()+"\n")
	c.state("101_1", "RUNNING")

	req.Elements = []int{1}
	if r, err := c.submit(req); err != nil || !r.Found || r.JobID != "101" || c.calls() != nil {
		t.Fatalf("%+v, %v", r, err)
	}
	sub = c.cut(req, 0, 2)
	c.write(c.fake, "102.job", sub.Comment()+"\n")
	c.state("102_2", "RUNNING")
	c.state("101_1", "COMPLETED")
	req.Elements = nil
	if r, err := c.submit(req); err != nil || r.Found || r.JobID != "103" || !slices.Equal(r.Elements, []int{0}) {
		t.Fatalf("%+v, %v", r, err)
	}
}

// TestChangedSweep checks that a submitted sweep rejects changed trials and submits additional
// ones.
func TestChangedSweep(t *testing.T) {
	changed := func(old, new string) string { return strings.Replace(swept, old, new, 1) }
	for _, tt := range []struct {
		name, text, fails string
		want              []int
	}{
		{name: "another value", text: changed(`"b"`, `"z"`), fails: "trial 1 of the sweep in"},
		{name: "another key", text: changed("setup.env.X", "setup.env.Y"), fails: "trial 0 of the sweep in"},
		{name: "one less", text: changed(`, "c"`, ``), fails: "trial 2 of the sweep in"},
		{name: "another order", text: changed(`"a", "b"`, `"b", "a"`), fails: "trial 0 of the sweep in"},
		{name: "one more", text: changed(`"c"`, `"c", "d"`), want: []int{3}},
		{name: "more time", text: changed("00:10", "00:20")},
		{name: "no sweep any more", text: job("s", "", ""), fails: "holds a sweep"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.submitted(c.request(swept))
			for i := range 3 {
				c.state(fmt.Sprint("101_", i), "COMPLETED")
			}
			c.state("101", "COMPLETED")
			r, err := c.submit(c.request(tt.text))
			if tt.fails != "" {
				mustFail(t, err, tt.fails)
				if !strings.Contains(hints.Of(err), "--run-dir") {
					t.Errorf("hint %q", hints.Of(err))
				}
			} else if err != nil || !slices.Equal(r.Elements, tt.want) {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
	c := newCluster(t)
	c.submitted(c.request(job("s", "", "")))
	c.state("101", "COMPLETED")
	_, err := c.submit(c.request(swept))
	mustFail(t, err, "holds a single run, not a sweep")
}

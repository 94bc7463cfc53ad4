// Package notify sends messages about a run to a webhook or to a program of the user.
//
// The package guarantees the following:
//   - Sending never blocks the caller. Messages wait in a short queue, and a full queue drops
//     the newest one.
//   - A receiver that is slow, refuses connections, or answers with an error causes one warning
//     and no failure. [Notifier.Close] waits for at most 5 s.
//   - No warning contains the address of the webhook, which is a secret. It comes from a file
//     that only this user can read, or from an environment variable.
//   - It follows no redirects: a message goes to the configured address only.
//
// The package does not decide which events happen, and does not send mail: Slurm does that.
package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/environ"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/printable"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
	"github.com/ddpbatch/ddpbatch/jobs"
)

const (
	// sendTimeout limits one message to one receiver.
	sendTimeout = 10 * time.Second
	// closeTimeout limits how long the end of a job waits for its last messages.
	closeTimeout = 5 * time.Second
	// queueLength is the number of messages that wait while a receiver is slow.
	queueLength = 16
	// maxURL is the maximum size of the file with the address of the webhook, in bytes.
	maxURL = 4096
)

// A Message describes an event of a run.
type Message struct {
	Event   jobs.NotifyEvent `json:"event"`
	Text    string           `json:"text"` // one line for users; Slack and Mattermost show it
	Name    string           `json:"name"`
	RunDir  string           `json:"run_dir"`
	JobID   string           `json:"job_id,omitempty"` // empty without Slurm
	Host    string           `json:"host"`             // host of the launcher
	Attempt int              `json:"attempt,omitempty"`
	Exit    *int             `json:"exit,omitempty"`  // exit code of the job, at its end
	Cause   string           `json:"cause,omitempty"` // cause of a failure, a stop, or a restart
	Time    time.Time        `json:"time"`
}

// verbs are the events in the text of a message.
var verbs = map[jobs.NotifyEvent]string{
	jobs.NotifyStarted: "started", jobs.NotifyFinished: "finished", jobs.NotifyFailed: "failed", jobs.NotifyStopped: "stopped", jobs.NotifyRestarted: "restarted",
}

// setText sets the text for users from the other fields.
func (m *Message) setText() {
	m.Text = m.Name + " " + verbs[m.Event]
	var about []string
	if m.JobID != "" {
		about = append(about, "job "+m.JobID)
	}
	if m.Exit != nil && *m.Exit != 0 {
		about = append(about, fmt.Sprintf("exit code %d", *m.Exit))
	}
	if len(about) > 0 {
		m.Text += " (" + strings.Join(about, ", ") + ")"
	}
	if m.Cause != "" {
		m.Text += ": " + m.Cause
	}
	m.Text = printable.Line(m.Text)
}

// A Notifier sends messages in the background. A nil Notifier sends none.
type Notifier struct {
	events  []jobs.NotifyEvent
	address string // of the webhook; empty for none
	command []string
	dir     string // working directory of the command
	environ []string
	say     func(line string)

	queue  chan Message
	done   chan struct{}
	cancel context.CancelFunc
	warn   sync.Once

	sendTimeout, closeTimeout time.Duration
}

// Options describe where to send messages.
type Options struct {
	Notify  *jobs.Notify // with resolved paths; nil for no messages
	Dir     string       // working directory of the command
	Environ []string     // environment of the launcher
	Say     func(line string)
}

// New returns a notifier, or nil if the job requests none. The error reports an address that is
// missing or not safe to use.
func New(o Options) (*Notifier, error) {
	if o.Notify == nil {
		return nil, nil
	}
	n := &Notifier{events: o.Notify.Events, dir: o.Dir, environ: o.Environ, say: o.Say,
		queue: make(chan Message, queueLength), done: make(chan struct{}), sendTimeout: sendTimeout, closeTimeout: closeTimeout}
	if len(n.events) == 0 {
		n.events = jobs.DefaultNotifyEvents
	}
	n.command = jobs.Strings(o.Notify.Command)
	address, err := readAddress(o.Notify, o.Environ)
	if err != nil {
		return nil, err
	}
	n.address = address
	if u, err := url.Parse(address); err == nil && u.Scheme == "http" {
		// Another user of the node may listen on a loopback address.
		o.Say("warning: the address of the webhook starts with http://, so other users of the network or of this node could read it and the messages; use https://")
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	go func() {
		defer close(n.done)
		for m := range n.queue {
			n.deliver(ctx, m)
		}
	}()
	return n, nil
}

// readAddress returns the address of the webhook, or an empty string without one. No error
// contains it.
func readAddress(o *jobs.Notify, env []string) (string, error) {
	text, from := "", ""
	switch {
	case o.WebhookFile != "":
		path := string(o.WebhookFile)
		from = fmt.Sprintf("the file %q", path)
		f, err := safefile.Open(path, 0)
		if err != nil {
			return "", fmt.Errorf("read address of the webhook: %w", err)
		}
		defer f.Close()
		info, err := f.Stat()
		if err == nil {
			err = safefile.CheckPrivate(info)
		}
		if err != nil {
			return "", hints.Errorf("run `chmod 600` on the file", "read address of the webhook from %q: %w", path, err)
		}
		raw, err := safefile.ReadAll(f, path, maxURL)
		if err != nil {
			return "", fmt.Errorf("read address of the webhook: %w", err)
		}
		text = string(raw)
	case o.WebhookEnv != "":
		from = "the environment variable " + string(o.WebhookEnv)
		value, ok := environ.Lookup(env, string(o.WebhookEnv))
		if !ok {
			return "", hints.Errorf("export it before you submit the job", "address of the webhook: %s is not set", from)
		}
		text = value
	default:
		return "", nil
	}
	text = strings.TrimSpace(text)
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return "", hints.Errorf("write one line that starts with https://", "%s does not contain the address of a webhook", from)
	}
	return text, nil
}

// Send sends a message if its event is requested. It does not wait.
func (n *Notifier) Send(m Message) {
	if n == nil || !slices.Contains(n.events, m.Event) {
		return
	}
	m.setText()
	select {
	case n.queue <- m:
	default:
		n.warning(errors.New("too many notifications wait"))
	}
}

// Close waits for the messages in the queue, for a limited time. No message may follow.
func (n *Notifier) Close() {
	if n == nil {
		return
	}
	close(n.queue)
	select {
	case <-n.done:
	case <-time.After(n.closeTimeout):
		n.warning(errors.New("the receiver does not respond"))
	}
	n.cancel()
}

// warning reports the first problem of a run. More of them would fill the log.
func (n *Notifier) warning(err error) {
	n.warn.Do(func() { n.say(fmt.Sprintf("warning: notification not sent: %v", err)) })
}

// deliver sends a message to all receivers.
func (n *Notifier) deliver(ctx context.Context, m Message) {
	body, err := json.Marshal(m)
	if err != nil {
		n.warning(err)
		return
	}
	if n.address != "" {
		if err := n.post(ctx, body); err != nil && ctx.Err() == nil {
			n.warning(fmt.Errorf("webhook: %w", err))
		}
	}
	if len(n.command) > 0 {
		if err := n.run(ctx, m, body); err != nil && ctx.Err() == nil {
			n.warning(fmt.Errorf("notify.command: %w", err))
		}
	}
}

// post sends a message to the webhook.
func (n *Notifier) post(ctx context.Context, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, n.sendTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, n.address, bytes.NewReader(body))
	if err != nil {
		return errors.New("the address is not valid")
	}
	request.Header.Set("Content-Type", "application/json")
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	if err != nil {
		var wrapped *url.Error
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("no response within %s", n.sendTimeout)
		case errors.As(err, &wrapped):
			return wrapped.Err // without the address
		}
		return errors.New("request failed")
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<16))
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return fmt.Errorf("the server answered %d %s", response.StatusCode, http.StatusText(response.StatusCode))
	}
	return nil
}

// Variables of the command.
const (
	eventVariable = "DDPBATCH_NOTIFY_EVENT"
	textVariable  = "DDPBATCH_NOTIFY_TEXT"
)

// run starts the user's command with a message on its standard input. It kills the command with
// its children after sendTimeout.
func (n *Notifier) run(ctx context.Context, m Message, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, n.sendTimeout)
	defer cancel()
	path, err := environ.LookPath(n.environ, n.command[0])
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path)
	cmd.Args, cmd.Dir = n.command, n.dir
	cmd.Env = append(slices.Clone(n.environ), eventVariable+"="+string(m.Event), textVariable+"="+m.Text)
	cmd.Stdin = bytes.NewReader(body)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("no end within %s", n.sendTimeout)
	}
	return err
}

package notify

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs"
)

// warnings collects what a notifier says.
type warnings struct {
	mu  sync.Mutex
	all []string
}

func (w *warnings) say(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, line)
}

func (w *warnings) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.all, "\n")
}

// newNotifier returns a notifier for all events.
func newNotifier(t *testing.T, o jobs.Notify, environ ...string) (*Notifier, *warnings) {
	t.Helper()
	w := &warnings{}
	o.Events = []jobs.NotifyEvent{jobs.NotifyStarted, jobs.NotifyFinished, jobs.NotifyFailed, jobs.NotifyStopped, jobs.NotifyRestarted}
	n, err := New(Options{Notify: &o, Dir: t.TempDir(), Environ: append(environ, "PATH="+os.Getenv("PATH")), Say: w.say})
	if err != nil {
		t.Fatal(err)
	}
	w.all = nil // TestUnencryptedAddress checks the warning about http://
	n.closeTimeout, n.sendTimeout = time.Minute, time.Minute
	return n, w
}

// hook returns the options and the variable for a webhook.
func hook(address string) (o jobs.Notify, variable string) {
	return jobs.Notify{WebhookEnv: "HOOK"}, "HOOK=" + address
}

// TestWebhook checks the request: JSON with a text for users.
func TestWebhook(t *testing.T) {
	var mu sync.Mutex
	var got []Message
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var m Message
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(body, &m)
		}
		if err != nil || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" || r.URL.Path != "/services/T0/secret" {
			t.Errorf("request %s %s: %v\n%s", r.Method, r.URL, err, body)
		}
		mu.Lock()
		defer mu.Unlock()
		got = append(got, m)
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "hook")
	if err := os.WriteFile(file, []byte(server.URL+"/services/T0/secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	n, w := newNotifier(t, jobs.Notify{WebhookFile: jobs.Text(file)})
	exit := 7
	n.Send(Message{Event: jobs.NotifyStarted, Name: "train"})
	n.Send(Message{Event: jobs.NotifyFailed, Name: "train", JobID: "12", Exit: &exit, Cause: "rank 3 on n2\nwas killed"})
	n.Close()
	mu.Lock()
	defer mu.Unlock()
	if len(got) != 2 || got[0].Text != "train started" || got[1].Event != jobs.NotifyFailed || *got[1].Exit != 7 || got[1].JobID != "12" {
		t.Fatalf("got %+v", got)
	}
	if text := got[1].Text; !strings.HasPrefix(text, "train failed (job 12, exit code 7): rank 3 on n2") || strings.Contains(text, "\n") {
		t.Errorf("got the text %q", text)
	}
	if w.String() != "" {
		t.Errorf("got warnings %s", w)
	}
}

// TestEvents checks that only requested events cause a message.
func TestEvents(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	n, err := New(Options{Notify: &jobs.Notify{Command: []jobs.Text{"sh", "-c", "echo $DDPBATCH_NOTIFY_EVENT: $DDPBATCH_NOTIFY_TEXT >> " + jobs.Text(out)}}, Dir: t.TempDir(),
		Environ: []string{"PATH=" + os.Getenv("PATH")}, Say: func(line string) { t.Error(line) }})
	if err != nil {
		t.Fatal(err)
	}
	n.closeTimeout, n.sendTimeout = time.Minute, time.Minute
	for _, event := range []jobs.NotifyEvent{jobs.NotifyStarted, jobs.NotifyRestarted, jobs.NotifyStopped, jobs.NotifyFinished, jobs.NotifyFailed} {
		n.Send(Message{Event: event, Name: "a $(id)"})
	}
	n.Close()
	got, err := os.ReadFile(out)
	if want := "finished: a $(id) finished\nfailed: a $(id) failed\n"; err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	var none *Notifier
	none.Send(Message{Event: jobs.NotifyFailed})
	none.Close()
	if n, err := New(Options{}); n != nil || err != nil {
		t.Errorf("without [notify]: %v, %v", n, err)
	}
}

// TestFaultyServers checks that a server that does not accept a message causes one warning
// without the address, and that later messages are still sent.
func TestFaultyServers(t *testing.T) {
	var redirected atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { redirected.Add(1) }))
	defer other.Close()
	refusing, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refusing.Close()
	for _, tt := range []struct {
		name    string
		handler http.HandlerFunc
		want    string
	}{
		{"500", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }, "the server answered 500 Internal Server Error"},
		{"redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		}, "the server answered 307"},
		{"hangs up", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF"},
		{"refuses", nil, "connection refused"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var requests atomic.Int32
			address := "http://" + refusing.Addr().String()
			if tt.handler != nil {
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					requests.Add(1)
					tt.handler(w, r)
				}))
				defer server.Close()
				address = server.URL
			}
			o, variable := hook(address + "/canary")
			n, w := newNotifier(t, o, variable)
			n.Send(Message{Event: jobs.NotifyStarted})
			n.Send(Message{Event: jobs.NotifyFinished})
			n.Close()
			got := w.String()
			if !strings.Contains(got, "warning: notification not sent: webhook: ") || !strings.Contains(got, tt.want) || strings.Contains(got, "canary") || strings.Count(got, "warning") != 1 {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if tt.handler != nil && requests.Load() < 2 {
				t.Errorf("%d requests, want 2 or more", requests.Load())
			}
		})
	}
	if redirected.Load() > 0 {
		t.Error("a redirect was followed")
	}
}

// TestSlowServer checks that neither Send nor Close waits for a server that never answers.
func TestSlowServer(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer server.Close()
	defer close(release) // after Close has returned, so Close has not waited for it
	o, variable := hook(server.URL)
	n, w := newNotifier(t, o, variable)
	n.closeTimeout = time.Millisecond
	for range 3 * queueLength {
		n.Send(Message{Event: jobs.NotifyStarted})
	}
	n.Close()
	if got := w.String(); got != "warning: notification not sent: too many notifications wait" {
		t.Errorf("got %q", got)
	}

	n, w = newNotifier(t, o, variable)
	n.closeTimeout = time.Millisecond
	n.Send(Message{Event: jobs.NotifyStarted})
	n.Close()
	if got := w.String(); got != "warning: notification not sent: the receiver does not respond" {
		t.Errorf("got %q", got)
	}

	n, w = newNotifier(t, o, variable)
	n.sendTimeout = time.Millisecond
	n.Send(Message{Event: jobs.NotifyStarted})
	n.Close()
	if got := w.String(); got != "warning: notification not sent: webhook: no response within 1ms" {
		t.Errorf("got %q", got)
	}
}

// TestFaultyCommands checks that a command that fails, hangs, or is missing causes a
// warning.
func TestFaultyCommands(t *testing.T) {
	for _, tt := range []struct {
		name    string
		argv    []jobs.Text
		timeout time.Duration
		want    string
	}{
		{"fails", []jobs.Text{"sh", "-c", "exit 3"}, time.Minute, "notify.command: exit status 3"},
		{"missing", []jobs.Text{"no-such-program"}, time.Minute, "no-such-program"},
		{"hangs", []jobs.Text{"sh", "-c", "sleep 1000 & sleep 1000"}, time.Millisecond, "no end within 1ms"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n, w := newNotifier(t, jobs.Notify{Command: tt.argv})
			n.sendTimeout = tt.timeout
			n.Send(Message{Event: jobs.NotifyStarted})
			n.Close()
			if got := w.String(); !strings.Contains(got, tt.want) || strings.Count(got, "warning") != 1 {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestAddress checks that an address that is missing or that other users can read is an error
// without the address.
func TestAddress(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) jobs.Text {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return jobs.Text(path)
	}
	for _, tt := range []struct {
		name   string
		notify jobs.Notify
		want   string
	}{
		{"readable by others", jobs.Notify{WebhookFile: write("open", "https://canary", 0o644)}, "mode is 0644"},
		{"missing file", jobs.Notify{WebhookFile: jobs.Text(dir + "/none")}, "no such file"},
		{"directory", jobs.Notify{WebhookFile: jobs.Text(dir)}, "is a directory"},
		{"empty", jobs.Notify{WebhookFile: write("empty", "\n", 0o600)}, "does not contain the address of a webhook"},
		{"other scheme", jobs.Notify{WebhookFile: write("scheme", "file:///canary", 0o600)}, "does not contain the address of a webhook"},
		{"not an address", jobs.Notify{WebhookFile: write("text", "canary\x7f", 0o600)}, "does not contain the address of a webhook"},
		{"too long", jobs.Notify{WebhookFile: write("long", "https://canary/"+strings.Repeat("x", maxURL), 0o600)}, "too large"},
		{"unset variable", jobs.Notify{WebhookEnv: "UNSET"}, "UNSET is not set"},
		{"bad variable", jobs.Notify{WebhookEnv: "BAD"}, "BAD does not contain the address"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n, err := New(Options{Notify: &tt.notify, Environ: []string{"BAD=canary"}})
			if n != nil || err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(fmt.Sprint(err, hints.Of(err)), "canary") {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// TestUnencryptedAddress checks the warning about http://, which does not contain the address. Another
// user may listen on a loopback address.
func TestUnencryptedAddress(t *testing.T) {
	for address, want := range map[string]bool{
		"http://hooks.example/secret":   true,
		"http://localhost.example:80/x": true,
		"http://10.0.0.1/x":             true,
		"https://hooks.example/secret":  false,
		"http://localhost:8080/x":       true,
		"http://127.0.0.1/x":            true,
		"http://[::1]:80/x":             true,
	} {
		var said warnings
		n, err := New(Options{Notify: &jobs.Notify{WebhookEnv: "HOOK"}, Environ: []string{"HOOK=" + address}, Say: said.say})
		if err != nil {
			t.Fatal(err)
		}
		n.Close()
		if got := said.String(); (got != "") != want || strings.Contains(got, "example") {
			t.Errorf("%s: got %q", address, got)
		}
	}
}

package main

import (
	"sync"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/launch"
	"github.com/ddpbatch/ddpbatch/jobs/notify"
)

// messages sends the messages of a launch.
type messages struct {
	*notify.Notifier
	about notify.Message // fields that all messages share
	once  sync.Once
	leave func() // closes the run directory
}

// notifier returns the messages of a launch, and makes the launch report its attempts to them.
// A problem with the receiver is a warning: it must not fail the job.
func (p *program) notifier(o *launch.Options, id string) *messages {
	dir, leave := o.Dir.Path, func() {}
	var err error
	if o.Job.Notify != nil && len(o.Job.Notify.Command) > 0 {
		dir, leave, err = o.Dir.WorkingDir()
	}
	var n *notify.Notifier
	if err != nil {
		leave = func() {}
	} else {
		n, err = notify.New(notify.Options{Notify: o.Job.Notify, Dir: dir, Environ: o.Environ, Say: o.Say})
	}
	if err != nil {
		p.note("warning: no notifications: %v", err)
		if hint := hints.Of(err); hint != "" {
			p.note("hint: %s", hint)
		}
	}
	m := &messages{Notifier: n, leave: leave, about: notify.Message{Name: string(o.Job.Name), RunDir: o.Dir.Path, JobID: id, Host: hostName()}}
	o.Notify = func(event jobs.NotifyEvent, attempt int, cause string) {
		m.send(notify.Message{Event: event, Attempt: attempt, Cause: cause})
	}
	return m
}

func (m *messages) send(message notify.Message) {
	all := m.about
	all.Event, all.Attempt, all.Exit, all.Cause, all.Time = message.Event, message.Attempt, message.Exit, message.Cause, time.Now().UTC()
	m.Send(all)
}

// end sends how the launch ended. err is its result.
func (m *messages) end(err error, r launch.Result) {
	exit := exitCode(err)
	message := notify.Message{Event: jobs.NotifyFinished, Exit: &exit}
	switch {
	case r.Failure == nil && (r.Stopped || r.Preempted || exit == exitStopped || exit == exitCanceled):
		message.Event = jobs.NotifyStopped
	case exit != exitDone:
		message.Event = jobs.NotifyFailed
		if err != nil {
			message.Cause = err.Error()
		}
		if r.Failure != nil {
			message.Cause = r.Failure.Error()
		}
	}
	m.send(message)
}

// Close waits for the messages for a short time. It may be called twice.
func (m *messages) Close() { m.once.Do(func() { m.Notifier.Close(); m.leave() }) }

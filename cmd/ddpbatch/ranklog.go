package main

import (
	"fmt"
	"os"

	"github.com/rs/zerolog"

	"github.com/ddpbatch/ddpbatch/jobs/launch"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
)

// A rankLog is a rank's own log in the run directory, in JSON lines. All attempts append to
// it.
type rankLog struct {
	f *os.File
	l zerolog.Logger
}

func openRankLog(dir rundir.Dir, p launch.RankInfo) (*rankLog, error) {
	f, err := dir.AppendRankLog(p.Rank)
	if err != nil {
		return nil, fmt.Errorf("open the log of rank %d: %w", p.Rank, err)
	}
	c := zerolog.New(f).With().Timestamp().Int("rank", p.Rank).Str("host", p.Host).Int("pid", os.Getpid())
	if p.InSlurm() {
		c = c.Str("job", p.JobID).Str("step", p.StepID).Int("restart", p.RestartCount)
	}
	return &rankLog{f, c.Logger()}, nil
}

// info writes a message with fields, given as alternating names and values.
func (r *rankLog) info(message string, fields ...any) { r.l.Info().Fields(fields).Msg(message) }

func (r *rankLog) failed(err error) { r.l.Error().Err(err).Msg("failed") }

func (r *rankLog) close() { r.f.Close() }

package app

import (
	stdlog "log"

	"github.com/rs/zerolog"
)

// muteStandardLog takes over the standard logger, which libraries write to by themselves: net/http quotes there what a partner sent out of
// turn, names and account numbers included. That something was written is logged, its words are not.
func muteStandardLog(log zerolog.Logger) {
	stdlog.SetFlags(0)
	stdlog.SetOutput(muted{log})
}

type muted struct{ log zerolog.Logger }

// Write implements io.Writer.
func (m muted) Write(line []byte) (int, error) {
	m.log.Warn().Int("bytes", len(line)).Msg("a library wrote to the standard log")
	return len(line), nil
}

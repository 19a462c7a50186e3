package app

import (
	"bytes"
	stdlog "log"
	"strings"
	"testing"

	"github.com/rs/zerolog"
)

func TestStandardLogIsCountedNotQuoted(t *testing.T) {
	flags, writer := stdlog.Flags(), stdlog.Writer()
	defer func() { stdlog.SetFlags(flags); stdlog.SetOutput(writer) }()
	var out bytes.Buffer
	muteStandardLog(zerolog.New(&out))
	stdlog.Printf("Unsolicited response received on idle HTTP channel starting with %q; err=%v", "GB33BUKB20201555555555", nil)
	if got := out.String(); strings.Contains(got, "GB33") || !strings.Contains(got, `"bytes":101`) {
		t.Errorf("logged %s", got)
	}
}

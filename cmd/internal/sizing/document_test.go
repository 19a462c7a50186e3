package sizing

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestConstantsAreThoseOfThePage: deploy/SIZING.md tells every constant as it is here, and how it was measured.
func TestConstantsAreThoseOfThePage(t *testing.T) {
	text, err := os.ReadFile("../../../deploy/SIZING.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]any{
		"ownTime": ownTime, "utilisation": utilisation, "workerMicros": workerMicros, "natsMicros": natsMicros, "batchRowMicros": batchRowMicros,
		"batchMicros": batchMicros, "relayMicros": relayMicros, "commitTime": commitTime, "rowTime": rowTime, "committers": committers, "mostRows": mostRows,
		"busyBatchRows": busyBatchRows, "walBytes": walBytes, "walRandomKeys": walRandomKeys, "keptBytes": keptBytes, "payloadOverRow": payloadOverRow,
		"jobOverhead": jobOverhead, "eventBytes": eventBytes, "redoDays": redoDays, "memoryAtRest": memoryAtRest, "slotKiB": slotKiB, "hotConns": hotConns,
		"filesBeside": filesBeside,
	} {
		row := fmt.Sprintf("\n| `%s` | %v | ", name, value)
		_, after, found := strings.Cut(string(text), row)
		if how, _, _ := strings.Cut(after, " |\n"); !found || len(how) < 8 {
			t.Errorf("deploy/SIZING.md has no row %q that tells how it was measured", strings.TrimSpace(row))
		}
		if strings.Count(string(text), "`"+name+"`") < 2 {
			t.Errorf("deploy/SIZING.md names %s in no formula", name)
		}
	}
}

package sizing_test

import (
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/cmd/internal/config"
	"github.com/paidonce/paidonce/cmd/internal/sizing"
)

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > math.Abs(want)/1000 {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// The wanted numbers were computed by hand from deploy/SIZING.md.
func TestNeed(t *testing.T) {
	d, err := sizing.Parse([]string{"rate=3000", "bank_latency=400ms", "workers=2"})
	if err != nil {
		t.Fatal(err)
	}
	n := sizing.Of(d)
	for what, c := range map[string][2]int{
		"slots": {n.Slots, 1800}, "per worker": {n.SlotsPerWorker, 900}, "ack pending": {n.AckPending, 3600}, "connections of a worker": {n.ConnsPerWorker, 16},
		"connections": {n.Connections, 52}, "files": {n.FilesPerWorker, 1944},
	} {
		if c[0] != c[1] {
			t.Errorf("%s: %d, want %d", what, c[0], c[1])
		}
	}
	for what, c := range map[string][2]time.Duration{
		"timeout": {n.Timeout, 20 * time.Second}, "lease": {n.Lease, time.Minute}, "ack wait": {n.AckWait, 30 * time.Second}, "grace": {n.Grace, 45 * time.Second},
	} {
		if c[0] != c[1] {
			t.Errorf("%s: %s, want %s", what, c[0], c[1])
		}
	}
	near(t, "operations per day", n.OpsPerDay, 259_200_000)
	near(t, "operations per year", n.RowsPerYear, 94_608_000_000)
	near(t, "memory", n.MemoryMiB, 172.73)
}

func TestNeed_GrowsWithWhatItDependsOn(t *testing.T) {
	base := sizing.Of(sizing.Demand{Rate: 1000, BankLatency: 80 * time.Millisecond})
	twice := sizing.Of(sizing.Demand{Rate: 2000, BankLatency: 80 * time.Millisecond})
	slow := sizing.Of(sizing.Demand{Rate: 1000, BankLatency: 4 * time.Second})
	random := sizing.Of(sizing.Demand{Rate: 1000, BankLatency: 80 * time.Millisecond, RandomKeys: true})
	half := sizing.Of(sizing.Demand{Rate: 1000, BankLatency: 80 * time.Millisecond, Share: 0.5, PayloadDays: 45})
	near(t, "slots at 80 ms", float64(base.Slots), 143) // 1000 x 0.1 / 0.7 = 142.86
	near(t, "slots at twice the rate", float64(twice.Slots), 286)
	near(t, "slots at 4 s", float64(slow.Slots), 5743) // 1000 x 4.02 / 0.7 = 5742.9
	near(t, "processors of the worker", twice.WorkerCores, 2*base.WorkerCores)
	near(t, "WAL under random keys", random.WALPerDay, 1.2*base.WALPerDay)
	near(t, "kept at half of the share", half.KeptPerYear, base.KeptPerYear/2)
	near(t, "payloads at half of the share and the days", half.Payloads, base.Payloads/4)
	if slow.Timeout != 40*time.Second || slow.Lease != 90*time.Second || slow.AckWait != 45*time.Second || slow.Grace != 65*time.Second {
		t.Errorf("timings of a slow bank: %+v", slow)
	}
	if full := sizing.Of(sizing.Demand{Rate: 60_000, BankLatency: time.Millisecond}); full.BatchRows != 256 {
		t.Errorf("rows of a batch at saturation: %v, want 256", full.BatchRows)
	}
	if idle := sizing.Of(sizing.Demand{Rate: 10, BankLatency: time.Millisecond}); idle.BatchRows != 1 {
		t.Errorf("rows of a batch at rest: %v, want 1", idle.BatchRows)
	}
}

func TestParse_Refuses(t *testing.T) {
	for _, words := range []string{
		"", "rate=3000", "bank_latency=1s", "rate=0 bank_latency=1s", "rate=-1 bank_latency=1s", "rate=NaN bank_latency=1s", "rate=Inf bank_latency=1s",
		"rate=1 bank_latency=1", "rate=1 bank_latency=0s", "rate=1 bank_latency=1h", "rate=1 bank_latency=1s workers=0", "rate=1 bank_latency=1s share=2",
		"rate=1 bank_latency=1s keys=v5", "rate=1 bank_latency=1s payload_days=0", "rate=1 bank_latency=1s bogus=1", "3000",
	} {
		if d, err := sizing.Parse([]string{words}); err == nil {
			t.Errorf("%q was read as %+v", words, d)
		}
	}
}

func lines(t *testing.T, words string, m sizing.Machine, set map[string]string) map[string]sizing.Line {
	t.Helper()
	flags := map[string]string{}
	for path, text := range set {
		flags[path] = text
	}
	c, err := config.Load(config.Input{Lookup: func(string) (string, bool) { return "", false }, Flags: flags, File: settings(t)})
	if err != nil {
		t.Fatal(err)
	}
	d, err := sizing.Parse([]string{words})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]sizing.Line{}
	for _, line := range sizing.Lines(d, c, m) {
		if _, twice := found[line.Area+" "+line.What]; twice {
			t.Errorf("%s %s is told twice", line.Area, line.What)
		}
		found[line.Area+" "+line.What] = line
	}
	return found
}

func settings(t *testing.T) string {
	t.Helper()
	path := t.TempDir() + "/paidonce.yaml"
	text := "partners:\n  northbank: { adapter: reference, base_url: http://127.0.0.1:1, credential_id: a, token_file: x, rate_limit: 1000 }\n" +
		"routes:\n  gbp-fps: { partner: northbank, currencies: [GBP] }\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestLines_WarnWhereTheSettingsContradict: the defaults do not carry 3,000/s at 400 ms by one worker, and every place says so.
func TestLines_WarnWhereTheSettingsContradict(t *testing.T) {
	found := lines(t, "rate=3000 bank_latency=400ms", sizing.Machine{OpenFiles: 1024}, nil)
	for name, advice := range map[string]string{
		"partner northbank max_in_flight": "at most 853/s fit", // 512 x 0.7 / 0.42
		"partner northbank rate_limit":    "waits in the queue",
		"worker in_flight":                "raise worker.in_flight",
		"worker open files (ulimit -n)":   "LimitNOFILE",
		"broker jobs stream":              "it is full after 1h27m0s", // 8 GiB / (3000 x 550 B) = 5,206 s
	} {
		if line := found[name]; line.Result != "warn" || !strings.Contains(line.Advice, advice) {
			t.Errorf("%s: %+v, want a warning with %q", name, line, advice)
		}
	}
	for _, name := range []string{"worker lease", "worker ack_wait", "worker shutdown_grace", "partner northbank timeout", "worker database.max_conns", "broker max_ack_pending"} {
		if line := found[name]; line.Result != "ok" || line.Advice != "" || line.Configured == "" {
			t.Errorf("%s: %+v, want ok", name, line)
		}
	}
}

func TestLines_OKWhereTheSettingsFit(t *testing.T) {
	found := lines(t, "rate=500 bank_latency=100ms workers=2 share=0.1", sizing.Machine{OpenFiles: 65536}, map[string]string{"nats.max_jobs_bytes": "20000000000"})
	for name, line := range found {
		if line.Result == "warn" {
			t.Errorf("%s: %+v, want no warning", name, line)
		}
		if line.Why == "" || line.Needed == "" {
			t.Errorf("%s does not say why, or what: %+v", name, line)
		}
	}
	if line := found["broker jobs stream"]; line.Needed != "16.6 GB" || line.Configured != "20.0 GB" { // 500 x 0.1 x 86400 x 7 x 550 B
		t.Errorf("jobs stream: %+v", line)
	}
}

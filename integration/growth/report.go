package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/go-json-experiment/json"
)

// measurement is everything measured at one size; with Rows 0, the hot path on an empty ledger.
type measurement struct {
	Keys string `json:"keys"`
	Rows int    `json:"rows"`

	Operations int                `json:"operations"`
	Seconds    float64            `json:"seconds"`
	PerSecond  float64            `json:"ops_per_second"`
	WALBytes   float64            `json:"wal_bytes_per_op"`
	Images     float64            `json:"full_page_images_per_op"`
	ImagesOf   map[string]float64 `json:"full_page_images_per_op_of,omitzero"`
	WALOf      map[string]float64 `json:"wal_bytes_per_op_of,omitzero"`
	PostgresUS float64            `json:"postgres_us_per_op"`
	ClientUS   float64            `json:"client_us_per_op"`
	HOTShare   float64            `json:"hot_share"`
	BatchP50MS float64            `json:"batch_p50_ms"`
	BatchP99MS float64            `json:"batch_p99_ms"`
	WALRatio   float64            `json:"wal_ratio,omitzero"`
	CPURatio   float64            `json:"cpu_ratio,omitzero"`

	SizesMB       map[string]float64 `json:"sizes_mb,omitzero"`
	SweepIdleMS   float64            `json:"sweep_idle_ms,omitzero"`
	SweepDueMS    float64            `json:"sweep_due_ms,omitzero"`
	SweepFound    int                `json:"sweep_found,omitzero"`
	GaugesMS      float64            `json:"gauges_ms,omitzero"`
	ListMS        map[string]float64 `json:"list_ms,omitzero"`
	ListsTimedOut []string           `json:"lists_timed_out,omitzero"`

	Proved  int64   `json:"proved_keys,omitzero"`
	ProveS  float64 `json:"prove_seconds,omitzero"`
	ProveUS float64 `json:"prove_us_per_row,omitzero"`
	ProveMB float64 `json:"prove_rss_mb,omitzero"`

	Purged          int64   `json:"purged,omitzero"`
	PurgePerSecond  float64 `json:"purge_per_second,omitzero"`
	PurgeWALBytes   float64 `json:"purge_wal_bytes_per_payload,omitzero"`
	PurgeUS         float64 `json:"purge_us_per_payload,omitzero"`
	BesidePerSecond float64 `json:"purge_beside_per_second,omitzero"`
	AloneP50MS      float64 `json:"alone_batch_p50_ms,omitzero"`
	AloneP99MS      float64 `json:"alone_batch_p99_ms,omitzero"`
	BesideP50MS     float64 `json:"beside_purge_batch_p50_ms,omitzero"`
	BesideP99MS     float64 `json:"beside_purge_batch_p99_ms,omitzero"`
}

// compare gives the ratios to the mean of what was measured before and after.
func (m *measurement) compare(before, after *measurement) {
	m.WALRatio, m.CPURatio = 2*m.WALBytes/(before.WALBytes+after.WALBytes), 2*m.PostgresUS/(before.PostgresUS+after.PostgresUS)
}

func (m *measurement) name() string {
	if m.Rows == 0 {
		return m.Keys + "@empty"
	}
	return fmt.Sprintf("%s@%s", m.Keys, short(m.Rows))
}

func short(rows int) string {
	switch {
	case rows%1_000_000 == 0:
		return fmt.Sprintf("%dM", rows/1_000_000)
	case rows%1000 == 0:
		return fmt.Sprintf("%dk", rows/1000)
	}
	return fmt.Sprint(rows)
}

func (m *measurement) line() string {
	return fmt.Sprintf("%s: %d operations at %.0f/s: %.0f B of WAL, %.3f full-page images, %.1f us of postgres, %.1f us of the client, HOT %.2f",
		m.name(), m.Operations, m.PerSecond, m.WALBytes, m.Images, m.PostgresUS, m.ClientUS, m.HOTShare)
}

// report collects measurements.
type report struct {
	all  []*measurement
	file *os.File
}

func newReport(o options) (*report, error) {
	r := &report{}
	if o.jsonFile == "" {
		return r, nil
	}
	var err error
	if r.file, err = os.OpenFile(o.jsonFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
		return nil, fmt.Errorf("open the file of measurements: %w", err)
	}
	return r, nil
}

func (r *report) add(m *measurement) error {
	r.all = append(r.all, m)
	if r.file == nil {
		return nil
	}
	text, err := json.Marshal(m, json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("render a measurement: %w", err)
	}
	_, err = r.file.Write(append(text, '\n'))
	return err
}

func (r *report) close() error {
	if r.file == nil {
		return nil
	}
	return errors.Join(r.file.Sync(), r.file.Close())
}

// print writes the tables and, last, one line.
func (r *report) print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	row("ledger\tops/s\tWAL B/op\tx\tFPI/op\tpostgres us/op\tx\tclient us/op\tHOT\tbatch p50\tp99 ms")
	for _, m := range r.all {
		row("%s\t%.0f\t%.0f\t%s\t%.4f\t%.1f\t%s\t%.1f\t%.3f\t%.1f\t%.1f", m.name(), m.PerSecond, m.WALBytes, ratio(m.WALRatio), m.Images, m.PostgresUS,
			ratio(m.CPURatio), m.ClientUS, m.HOTShare, m.BatchP50MS, m.BatchP99MS)
	}
	row("\nledger\tsweep idle ms\tsweep ms\tfound\tgauges ms\tprove s\tMB\tkeys proved\tpurge/s\tB/payload\tus/payload\tbeside: purge/s\tbatch p50\tp99 alone\tp99 beside ms")
	for _, m := range r.all {
		if m.Rows > 0 {
			row("%s\t%.1f\t%.1f\t%d\t%.1f\t%.0f\t%.0f\t%d\t%.0f\t%.0f\t%.1f\t%.0f\t%.1f\t%.1f\t%.1f", m.name(), m.SweepIdleMS, m.SweepDueMS, m.SweepFound, m.GaugesMS,
				m.ProveS, m.ProveMB, m.Proved, m.PurgePerSecond, m.PurgeWALBytes, m.PurgeUS, m.BesidePerSecond, m.BesideP50MS, m.AloneP99MS, m.BesideP99MS)
		}
	}
	_ = w.Flush() // to standard output
	for _, m := range r.all {
		if m.Rows == 0 {
			continue
		}
		_, _ = fmt.Fprintf(out, "\n%s: ops list ms: %s%s\n  full-page images per 1,000 operations: %s\n  WAL bytes per operation: %s\n  MB: %s\n", m.name(), list(m.ListMS, 1, 0), timedOut(m.ListsTimedOut), list(m.ImagesOf, 1000, 0.5), list(m.WALOf, 1, 1), list(m.SizesMB, 1, 1))
	}
	var words []string
	for _, m := range r.all {
		if m.Rows > 0 {
			words = append(words, fmt.Sprintf("%s_wal=%.2fx %s_cpu=%.2fx", m.name(), m.WALRatio, m.name(), m.CPURatio))
		}
	}
	_, _ = fmt.Fprintln(out, "\ngrowth: "+strings.Join(words, " "))
}

func timedOut(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "; timed out: " + strings.Join(names, ", ")
}

func ratio(x float64) string {
	if x == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", x)
}

// list writes what is worth it, the largest first.
func list(of map[string]float64, times, least float64) string {
	names := slices.SortedFunc(maps.Keys(of), func(a, b string) int {
		if of[a] != of[b] {
			return map[bool]int{true: -1, false: 1}[of[a] > of[b]]
		}
		return strings.Compare(a, b)
	})
	var words []string
	for _, name := range names {
		if of[name]*times >= least {
			words = append(words, fmt.Sprintf("%s %.1f", name, of[name]*times))
		}
	}
	return strings.Join(words, ", ")
}

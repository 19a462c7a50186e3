package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"

	"github.com/go-json-experiment/json"
)

// report collects measurements and shows medians.
type report struct {
	o    options
	all  []measurement
	file *os.File // nil = none
}

func newReport(o options) (*report, error) {
	r := &report{o: o}
	if o.jsonFile != "" {
		var err error
		if r.file, err = os.Create(o.jsonFile); err != nil {
			return nil, fmt.Errorf("open the file for measurements: %w", err)
		}
	}
	return r, nil
}

func (r *report) close() error {
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}

// add keeps a measurement; what was measured is on file also if the next run fails.
func (r *report) add(m measurement) error {
	r.all = append(r.all, m)
	if r.file == nil {
		return nil
	}
	line, err := json.Marshal(m)
	if err == nil {
		_, err = r.file.Write(append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write a measurement: %w", err)
	}
	return nil
}

func (r *report) of(part, contender, variant string) []measurement {
	return slices.DeleteFunc(slices.Clone(r.all), func(m measurement) bool {
		return m.Part != part || m.Contender != contender || m.Variant != variant
	})
}

// median is that of one figure over the rounds; 0 if there is none.
func median(ms []measurement, figure func(*measurement) float64) float64 {
	if len(ms) == 0 {
		return 0
	}
	values := make([]float64, len(ms))
	for i := range ms {
		values[i] = figure(&ms[i])
	}
	slices.Sort(values)
	middle := len(values) / 2
	if len(values)%2 == 0 {
		return (values[middle-1] + values[middle]) / 2
	}
	return values[middle]
}

// column is one figure of a table.
type column struct {
	title, format string
	figure        func(*measurement) float64
}

func perSecond(m *measurement) float64 { return m.PerSecond }

func costs() []column {
	return []column{
		{"ops/s", "%.0f", perSecond},
		{"ops/s by CPU", "%.0f", (*measurement).byCPU},
		{"CPU us/op", "%.1f", (*measurement).totalUS},
		{"worker", "%.1f", func(m *measurement) float64 { return m.WorkerUS }},
		{"postgres", "%.1f", func(m *measurement) float64 { return m.PostgresUS }},
		{"nats", "%.1f", func(m *measurement) float64 { return m.NATSUS }},
		{"bank", "%.1f", func(m *measurement) float64 { return m.BankUS }},
	}
}

// columns are those of a part.
func columns(part string) []column {
	switch part {
	case partDrain, partScale:
		return append(costs(),
			column{"commits/op", "%.3f", func(m *measurement) float64 { return m.Commits }},
			column{"WAL B/op", "%.0f", func(m *measurement) float64 { return m.WALBytes }},
			column{"HOT %", "%.0f", func(m *measurement) float64 { return 100 * m.HOTShare }})
	case partLatency:
		return []column{
			{"p50 ms", "%.2f", func(m *measurement) float64 { return m.P50MS }},
			{"p95 ms", "%.2f", func(m *measurement) float64 { return m.P95MS }},
			{"p99 ms", "%.2f", func(m *measurement) float64 { return m.P99MS }},
			{"max ms", "%.1f", func(m *measurement) float64 { return m.MaxMS }},
			{"CPU us/op", "%.1f", (*measurement).totalUS},
		}
	case partSlow:
		return append(costs()[:5:5],
			column{"in flight", "%.0f", func(m *measurement) float64 { return m.InFlight }},
			column{"kB/call", "%.1f", func(m *measurement) float64 { return m.KBPerCall }},
			column{"second calls", "%.0f", func(m *measurement) float64 { return float64(m.SecondCalls) }})
	}
	return costs()
}

// print shows one table per part, and the last line.
func (r *report) print(out io.Writer) {
	for _, part := range []string{partDrain, partLimit, partLatency, partSlow, partIsolation, partScale} {
		var rows [][2]string
		for _, m := range r.all {
			if row := [2]string{m.Contender, m.Variant}; m.Part == part && !slices.Contains(rows, row) {
				rows = append(rows, row)
			}
		}
		if len(rows) == 0 {
			continue
		}
		_, _ = fmt.Fprintf(out, "\n%s (median of %d)\n", part, r.o.rounds)
		table := tabwriter.NewWriter(out, 0, 4, 2, ' ', tabwriter.AlignRight)
		_, _ = fmt.Fprint(table, "\t")
		for _, c := range columns(part) {
			_, _ = fmt.Fprint(table, c.title, "\t")
		}
		_, _ = fmt.Fprintln(table)
		for _, row := range rows {
			_, _ = fmt.Fprint(table, row[0], " ", row[1], "\t")
			for _, c := range columns(part) {
				_, _ = fmt.Fprintf(table, c.format+"\t", median(r.of(part, row[0], row[1]), c.figure))
			}
			_, _ = fmt.Fprintln(table)
		}
		_ = table.Flush() // a report that cannot be written has no other place to say so
	}
	if alone := median(r.of(partIsolation, namePaidonce, "alone"), perSecond); alone > 0 {
		_, _ = fmt.Fprintf(out, "\nbeside a dead partner: %.2f of alone\n", median(r.of(partIsolation, namePaidonce, "beside a dead partner"), perSecond)/alone)
	}
	_, _ = fmt.Fprintf(out, "\n%s\n", r.last())
}

// last is the summary. Ratios are of medians; 0 = not measured. The limit and of_limit follow from CPU alone: what the machine
// could do, and how much of it paidonce's own rate is.
func (r *report) last() string {
	rate := func(name string) float64 { return median(r.of(partDrain, name, ""), perSecond) }
	ratio := func(a, b float64) float64 {
		if b == 0 {
			return 0
		}
		return a / b
	}
	ours, limit := rate(namePaidonce), r.limit()
	cpu := median(r.of(partDrain, namePaidonce, ""), (*measurement).byCPU)
	return fmt.Sprintf("bench: paidonce=%.0f naive=%.0f river=%.0f dbos=%.0f x_naive=%.1f x_river=%.1f limit=%.0f of_limit=%.2f of_limit_by_cpu=%.2f",
		ours, rate(nameNaive), rate(nameRiver), rate(nameDBOS), ratio(ours, rate(nameNaive)), ratio(ours, rate(nameRiver)), limit,
		ratio(ours, limit), ratio(cpu, limit))
}

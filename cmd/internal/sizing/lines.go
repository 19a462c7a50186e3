package sizing

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/paidonce/paidonce/cmd/internal/config"
)

// Line is one thing that is needed, beside what the settings say of it.
type Line struct {
	Area       string  `json:"area"`
	What       string  `json:"what"`
	Needed     string  `json:"needed"`
	Value      float64 `json:"value"` // the same as a plain number: seconds, bytes, cores, or a count
	Configured string  `json:"configured,omitzero"`
	Result     string  `json:"result"` // ok, warn, or empty where nothing is configured
	Why        string  `json:"why"`
	Advice     string  `json:"advice,omitzero"`
}

// Machine is what the process may use here; zero = not known.
type Machine struct{ OpenFiles uint64 }

// lines collects what is needed.
type lines struct {
	demand Demand
	need   Need
	config *config.Config
	all    []Line
}

// Lines holds the need against the settings.
func Lines(d Demand, c *config.Config, m Machine) []Line {
	l := &lines{demand: d.withDefaults(), need: Of(d), config: c}
	l.partners()
	l.timings()
	l.processes(m)
	l.processors()
	l.storage()
	return l.all
}

func (l *lines) say(area, what, needed string, value float64, why string) *Line {
	l.all = append(l.all, Line{Area: area, What: what, Needed: needed, Value: value, Why: why})
	return &l.all[len(l.all)-1]
}

// judge adds what the settings say.
func (one *Line) judge(configured string, ok bool, advice string) {
	one.Configured, one.Result = configured, "ok"
	if !ok {
		one.Result, one.Advice = "warn", advice
	}
}

func (l *lines) partners() {
	n := l.need
	why := fmt.Sprintf("rate x (bank_latency + %s) / %.1f: Little's law", ownTime, utilisation)
	l.say("partner", "calls in flight", fmt.Sprintf("%d over all workers", n.Slots), float64(n.Slots), why)
	for _, id := range slices.Sorted(maps.Keys(l.config.Partners)) {
		p := l.config.Partners[id]
		l.say("partner "+id, "max_in_flight", fmt.Sprintf("%d per worker", n.SlotsPerWorker), float64(n.SlotsPerWorker), "if all of the rate goes there").
			judge(fmt.Sprint(p.MaxInFlight), p.MaxInFlight >= n.SlotsPerWorker,
				fmt.Sprintf("raise partners.%s.max_in_flight, or add workers: at most %.0f/s fit", id, l.fits(p.MaxInFlight)))
		if p.RateLimit > 0 {
			each := l.demand.Rate / float64(l.demand.Workers)
			l.say("partner "+id, "rate_limit", fmt.Sprintf("%.0f/s per worker", each), each, "rate / workers").
				judge(fmt.Sprint(p.RateLimit), float64(p.RateLimit) >= each, "the partner's own limit may be below this rate: what is more waits in the queue")
		}
		l.say("partner "+id, "timeout", n.Timeout.String(), n.Timeout.Seconds(), "10 x bank_latency, at least 20 s").
			judge(p.Timeout.String(), p.Timeout >= min(n.Timeout, 4*l.demand.BankLatency), "a timeout close to the usual time puts good calls in doubt")
	}
}

// fits is the rate that so many slots per worker carry.
func (l *lines) fits(slots int) float64 {
	return float64(slots*l.demand.Workers) * utilisation / (l.demand.BankLatency + ownTime).Seconds()
}

func (l *lines) timings() {
	n, w := l.need, l.config.Worker
	longest := time.Duration(0)
	for _, p := range l.config.Partners {
		longest = max(longest, p.Timeout)
	}
	l.say("worker", "lease", n.Lease.String(), n.Lease.Seconds(), "2 x (timeout + 5 s), at least 60 s").
		judge(w.Lease.String(), w.Lease >= min(n.Lease, longest+w.RecordMargin+10*time.Second), "raise worker.lease: it must outlast a call that times out, and be renewed with time to spare")
	l.say("worker", "ack_wait", n.AckWait.String(), n.AckWait.Seconds(), "lease / 2; each delivery gives a sign of life every third of it").
		judge(w.AckWait.String(), w.AckWait >= 10*time.Second, "a pause of this machine longer than ack_wait redelivers everything in hand")
	l.say("worker", "shutdown_grace", n.Grace.String(), n.Grace.Seconds(), "timeout + 25 s").
		judge(w.ShutdownGrace.String(), w.ShutdownGrace > longest+w.RecordMargin, "raise worker.shutdown_grace, and the supervisor's own limit to 18 s more")
}

func (l *lines) processes(m Machine) {
	n, c := l.need, l.config
	sum := 0
	for _, p := range c.Partners {
		sum += p.MaxInFlight
	}
	l.say("worker", "in_flight", fmt.Sprintf("%d per worker", n.SlotsPerWorker), float64(n.SlotsPerWorker), "calls in flight / workers; nothing is fetched without a slot, so this is all that is pulled").
		judge(fmt.Sprint(c.Worker.InFlight), c.Worker.InFlight >= n.SlotsPerWorker, "raise worker.in_flight")
	allowed := 16 * 2 * c.Worker.InFlight
	l.say("broker", "max_ack_pending", fmt.Sprint(n.AckPending), float64(n.AckPending), "2 x calls in flight, per route").
		judge(fmt.Sprint(allowed), allowed >= n.AckPending && l.demand.Workers <= 16, "it is 32 x worker.in_flight, for 16 workers: raise worker.in_flight")
	l.say("worker", "rows of a batch", fmt.Sprintf("about %.0f", n.BatchRows), n.BatchRows, "what arrives while one commit runs; at most 256, more when Postgres is busy")
	l.say("worker", "database.max_conns", fmt.Sprintf("%d per worker", n.ConnsPerWorker), float64(n.ConnsPerWorker), "two times the committers, sweep and relay").
		judge(fmt.Sprint(c.Database.MaxConns), c.Database.MaxConns >= hotConns, "raise database.max_conns: claims would wait for records")
	l.say("postgres", "max_connections", fmt.Sprintf("at least %d", n.Connections), float64(n.Connections), "workers x max_conns + 20")
	files := l.say("worker", "open files (ulimit -n)", fmt.Sprintf("%d per worker", n.FilesPerWorker), float64(n.FilesPerWorker), "2 x in_flight + max_conns + 128")
	if m.OpenFiles > 0 {
		files.judge(fmt.Sprint(m.OpenFiles), m.OpenFiles >= uint64(n.FilesPerWorker), "raise LimitNOFILE= of the unit, or ulimit -n") //nolint:gosec // positive
	}
	l.say("worker", "memory", fmt.Sprintf("%.0f MiB per worker", n.MemoryMiB), n.MemoryMiB*(1<<20), "1.25 x (96 MiB + 48 KiB per slot)")
	if limit := 1.25 * (memoryAtRest + float64(sum)*slotKiB/1024); limit > n.MemoryMiB {
		l.all[len(l.all)-1].Configured = fmt.Sprintf("max_in_flight allows %.0f MiB", limit)
	}
}

func (l *lines) processors() {
	n := l.need
	l.say("worker", "processors", fmt.Sprintf("%.1f cores over all workers", n.WorkerCores), n.WorkerCores, fmt.Sprintf("rate x %.0f us / %.1f", workerMicros, utilisation))
	l.say("postgres", "processors", fmt.Sprintf("%.1f cores", n.PostgresCores), n.PostgresCores,
		fmt.Sprintf("rate x (%.0f + %.0f / rows + %.0f us) / %.1f at %d rows", batchRowMicros, batchMicros, relayMicros, utilisation, busyBatchRows))
	l.say("postgres", "processors used at rest", fmt.Sprintf("%.1f cores", n.PostgresAtRest), n.PostgresAtRest, "the same with the rows of a batch above: small batches cost more and wait less")
	l.say("broker", "processors", fmt.Sprintf("%.1f cores", n.NATSCores), n.NATSCores, fmt.Sprintf("rate x %.0f us / %.1f, one replica", natsMicros, utilisation))
}

func (l *lines) storage() {
	n, c := l.need, l.config
	l.say("postgres", "WAL per day", size(n.WALPerDay), n.WALPerDay, "operations x bytes; what a standby and an archive of the log must take")
	l.say("postgres", "kept per day", size(n.KeptPerYear/365), n.KeptPerYear/365, "operations, attempts, evidence, entries and their indexes")
	l.say("postgres", "kept per year", size(n.KeptPerYear), n.KeptPerYear, fmt.Sprintf("%.0f million operations x %.0f B", n.RowsPerYear/1e6, keptBytes))
	l.say("postgres", "payloads", size(n.Payloads), n.Payloads, fmt.Sprintf("of %d days, with `paidonce purge --older-than %dd` every night", l.demand.PayloadDays, l.demand.PayloadDays))
	full := time.Duration(float64(c.NATS.MaxJobsBytes) / n.BacklogPerHour * float64(time.Hour)).Round(time.Minute)
	l.say("broker", "jobs stream", size(n.JobsInStream), n.JobsInStream, fmt.Sprintf("%d days of jobs stay, so that a restored database can be given them again; x replicas on disk", redoDays)).
		judge(size(float64(c.NATS.MaxJobsBytes)), float64(c.NATS.MaxJobsBytes) >= n.JobsInStream,
			fmt.Sprintf("raise nats.max_jobs_bytes: it is full after %s, and then publishers are refused", full))
	l.say("broker", "backlog of an hour", size(n.BacklogPerHour), n.BacklogPerHour, "jobs that wait when workers are away for one hour")
	l.say("broker", "events per year", size(n.EventsPerYear), n.EventsPerYear, "one event of each operation; nothing removes them but `nats stream purge` by an operator")
}

// size writes bytes for people.
func size(bytes float64) string {
	units := []string{"B", "kB", "MB", "GB", "TB", "PB"}
	i := 0
	for bytes >= 1000 && i < len(units)-1 {
		bytes, i = bytes/1000, i+1
	}
	if bytes >= 100 || i == 0 {
		return fmt.Sprintf("%.0f %s", bytes, units[i])
	}
	return fmt.Sprintf("%.1f %s", bytes, units[i])
}

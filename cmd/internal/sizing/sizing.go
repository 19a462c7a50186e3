// Package sizing computes what a load needs: calls in flight, connections, memory, processors, disk, from measured constants.
//
// deploy/SIZING.md has the formulae and tells how each constant was measured; a test keeps the two together. What may be relied on is the order
// of magnitude, and what grows with what. A constant is that of the machine it was measured on: measure yours with integration/bench and
// integration/growth.
package sizing

import (
	"math"
	"time"
)

// Demand is the load.
type Demand struct {
	Rate        float64       // operations per second at the peak
	BankLatency time.Duration // mean time of one call
	Workers     int           // processes; default 1
	Share       float64       // of the peak, on average over the year; default 1
	PayloadDays int           // until payloads are purged; default 90
	PayloadSize int           // bytes of a job; default 400
	RandomKeys  bool          // version 4
}

// The constants; deploy/SIZING.md says how each was measured.
const (
	ownTime     = 20 * time.Millisecond // that a slot is held beside the call: claim, record, hand-overs
	utilisation = 0.7                   // of slots and processors: above it, queues grow faster than load

	workerMicros   = 115.0 // processor time of a worker per operation
	natsMicros     = 28.0
	batchRowMicros = 51.0  // of Postgres: claim and record, per row
	batchMicros    = 810.0 // of Postgres: claim and record, per batch
	relayMicros    = 30.0  // of Postgres: outbox, leases, sweep

	commitTime    = 1500 * time.Microsecond // of a batch of one row, on a disk that syncs in 0.2 ms
	rowTime       = 40 * time.Microsecond   // that each further row adds
	committers    = 2                       // of claims, in one process
	mostRows      = 256
	busyBatchRows = 64 // what batches grow to when Postgres is busy

	walBytes       = 3030.0 // per operation
	walRandomKeys  = 1.2    // times as much under random keys, at 10 million operations
	keptBytes      = 1500.0 // per operation, tables and indexes, without its payload
	payloadOverRow = 90.0   // bytes of a payload's row and index beside its body

	jobOverhead  = 150.0 // bytes that the broker stores beside a job: subject, headers, its own record
	eventBytes   = 416.0 // one event of one operation, as stored
	redoDays     = 7     // that acknowledged jobs stay in the stream
	memoryAtRest = 96.0  // MiB of one worker
	slotKiB      = 48.0  // of memory per slot
	hotConns     = 8     // committers of claims, records and attempts, sweep, relay
	filesBeside  = 128   // of one process: broker, listeners, logs
)

// Need is what the load needs. Numbers per worker are of each process.
type Need struct {
	Slots          int // calls in flight at the partner, over all workers
	SlotsPerWorker int
	AckPending     int // deliveries that the broker must let be unacknowledged, per route
	Timeout        time.Duration
	Lease          time.Duration
	AckWait        time.Duration
	Grace          time.Duration
	BatchRows      float64 // that a batch has at this rate on a machine that is not busy
	ConnsPerWorker int
	Connections    int // of all workers, and twenty for people and the gateway
	FilesPerWorker int
	MemoryMiB      float64 // per worker

	WorkerCores    float64 // over all workers
	PostgresCores  float64 // with batches as they are when it is busy
	PostgresAtRest float64 // used, if it has them, with small batches
	NATSCores      float64

	WALPerDay      float64 // bytes
	KeptPerYear    float64 // bytes in Postgres that stay for good
	Payloads       float64 // bytes in Postgres of payloads not purged yet
	JobsInStream   float64 // bytes
	EventsPerYear  float64 // bytes
	OpsPerDay      float64
	RowsPerYear    float64
	BacklogPerHour float64 // bytes of jobs that an hour without workers leaves in the stream
}

// Of computes the need.
func Of(d Demand) Need {
	d = d.withDefaults()
	var n Need
	n.Slots = ceil(d.Rate * (d.BankLatency + ownTime).Seconds() / utilisation)
	n.SlotsPerWorker = (n.Slots + d.Workers - 1) / d.Workers
	n.AckPending = 2 * n.Slots
	n.Timeout = max(20*time.Second, roundUp(10*d.BankLatency))
	n.Lease = max(60*time.Second, 2*(n.Timeout+5*time.Second))
	n.AckWait = n.Lease / 2
	n.Grace = n.Timeout + 25*time.Second
	n.BatchRows = batchRows(d.Rate / float64(d.Workers))
	n.ConnsPerWorker = 2 * hotConns
	n.Connections = d.Workers*n.ConnsPerWorker + 20
	n.FilesPerWorker = 2*n.SlotsPerWorker + n.ConnsPerWorker + filesBeside
	n.MemoryMiB = 1.25 * (memoryAtRest + float64(n.SlotsPerWorker)*slotKiB/1024)

	n.WorkerCores = d.Rate * workerMicros / 1e6 / utilisation
	n.PostgresCores = d.Rate * postgresMicros(busyBatchRows) / 1e6 / utilisation
	n.PostgresAtRest = d.Rate * postgresMicros(n.BatchRows) / 1e6
	n.NATSCores = d.Rate * natsMicros / 1e6 / utilisation

	n.OpsPerDay = d.Rate * d.Share * 86400
	n.RowsPerYear = n.OpsPerDay * 365
	wal := walBytes + float64(d.PayloadSize-400)
	if d.RandomKeys {
		wal *= walRandomKeys
	}
	n.WALPerDay = n.OpsPerDay * wal
	n.KeptPerYear = n.RowsPerYear * keptBytes
	n.Payloads = n.OpsPerDay * float64(d.PayloadDays) * (float64(d.PayloadSize) + payloadOverRow)
	n.JobsInStream = n.OpsPerDay * redoDays * (float64(d.PayloadSize) + jobOverhead)
	n.EventsPerYear = n.RowsPerYear * eventBytes
	n.BacklogPerHour = d.Rate * d.Share * 3600 * (float64(d.PayloadSize) + jobOverhead)
	return n
}

func (d Demand) withDefaults() Demand {
	d.Workers = max(d.Workers, 1)
	if d.Share <= 0 {
		d.Share = 1
	}
	if d.PayloadDays <= 0 {
		d.PayloadDays = 90
	}
	if d.PayloadSize <= 0 {
		d.PayloadSize = 400
	}
	return d
}

// batchRows solves rows = arrivals while one batch is committed: (commitTime + rows x rowTime) x rate / committers.
func batchRows(rate float64) float64 {
	each := rate / committers
	left := 1 - each*rowTime.Seconds()
	if left <= 0 {
		return mostRows
	}
	return min(max(each*commitTime.Seconds()/left, 1), mostRows)
}

func postgresMicros(rows float64) float64 { return batchRowMicros + batchMicros/rows + relayMicros }

func ceil(x float64) int { return int(math.Ceil(x - 1e-9)) }

// roundUp gives whole seconds.
func roundUp(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}

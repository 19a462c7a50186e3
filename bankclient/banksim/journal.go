package banksim

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
)

// journal is the append-only file from which a restarted simulator remembers. Every line is written before the
// answer that depends on it, so that killing the simulator loses nothing it has told anyone. A nil journal keeps nothing.
type journal struct {
	mu        sync.Mutex
	file      *os.File
	err       error // the first failed write
	catalogue *catalogue
}

// line is one fact; exactly one pointer is set.
type line struct {
	Request   *requestLine  `json:"request,omitzero"`
	Transfer  *transferLine `json:"transfer,omitzero"`
	Refusal   *recordLine   `json:"refusal,omitzero"`
	State     *stateLine    `json:"state,omitzero"`
	Violation *Violation    `json:"violation,omitzero"`
	Forget    *string       `json:"forget,omitzero"`
	Clock     *int64        `json:"clock,omitzero"` // nanoseconds forward
}

type requestLine struct {
	Key      string   `json:"key"`
	At       int64    `json:"at"`
	Kind     kind     `json:"kind"`
	Status   int16    `json:"status"`
	Faults   []string `json:"faults,omitzero"`
	Executed bool     `json:"executed,omitzero"`
}

type transferLine struct {
	Run       uint32      `json:"run"`
	Seq       uint32      `json:"seq"`
	At        int64       `json:"at"`
	VisibleAt int64       `json:"visible_at,omitzero"`
	Key       string      `json:"key"`
	Scope     uint64      `json:"scope"`
	Body      []byte      `json:"body"`
	Moved     bool        `json:"moved"`
	Status    string      `json:"status"`
	Code      string      `json:"code,omitzero"`
	Later     []change    `json:"later,omitzero"`
	Record    *recordLine `json:"record,omitzero"`
	Leaked    bool        `json:"leaked,omitzero"`
}

type recordLine struct {
	Key    string `json:"key"`
	Scope  uint64 `json:"scope"`
	Body   []byte `json:"body"` // hash
	At     int64  `json:"at"`
	Status int    `json:"status,omitzero"`
	Code   string `json:"code,omitzero"`
}

type stateLine struct {
	ID     string `json:"id"`
	Status string `json:"status"`
	Code   string `json:"code,omitzero"`
}

func (j *journal) write(l line) {
	if j == nil {
		return
	}
	encoded, err := json.Marshal(l)
	if err != nil {
		panic("banksim: a journal line that is not JSON: " + err.Error())
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return
	}
	if _, err := j.file.Write(append(encoded, '\n')); err != nil && j.err == nil {
		j.err = fmt.Errorf("write state file: %w", err)
	}
}

func (j *journal) request(key string, e entry) {
	if j == nil {
		return
	}
	j.write(line{Request: &requestLine{Key: key, At: e.at, Kind: e.kind, Status: e.status, Faults: j.catalogue.names(e.faults), Executed: e.executed}})
}

func recordOf(q *request, p *plan, r *record) *recordLine {
	key, _, _ := p.idempotency.keyPlace(q)
	return &recordLine{Key: key, Scope: r.scope, Body: r.body[:], At: r.at}
}

func (j *journal) commit(q *request, p *plan, r *record, t *transfer) {
	if j == nil {
		return
	}
	l := &transferLine{Run: t.run, Seq: t.seq, At: t.at, VisibleAt: t.visibleAt, Key: t.key, Scope: t.scope, Body: t.body,
		Moved: t.moved, Status: t.status, Code: t.code, Later: t.later}
	if r != nil && !p.loseRecord {
		l.Record, l.Leaked = recordOf(q, p, r), p.leakLock
		if p.after != nil && p.after.stored {
			l.Record.Status, l.Record.Code = p.after.status, p.after.code
		}
	}
	j.write(line{Transfer: l})
}

func (j *journal) refuse(q *request, p *plan, r *record, refused *reply) {
	if j == nil || r == nil {
		return
	}
	l := recordOf(q, p, r)
	l.Status, l.Code = refused.status, refused.code
	j.write(line{Refusal: l})
}

func (j *journal) state(t *transfer, status, code string) {
	j.write(line{State: &stateLine{ID: t.id(), Status: status, Code: code}})
}

func (j *journal) forget(key string) { j.write(line{Forget: &key}) }

func (j *journal) violation(v Violation) { j.write(line{Violation: &v}) }

func (j *journal) clock(d time.Duration) { j.write(line{Clock: new(int64(d))}) }

func (j *journal) close() error {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return j.err
	}
	err := errors.Join(j.err, j.file.Close())
	j.file = nil
	return err
}

// Remember reads the state file at path, made if missing, and appends to it from now on. Call it before Serve.
func (b *Bank) Remember(path string) error {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	whole, err := b.recall(file)
	if err == nil {
		err = file.Truncate(whole) // a line cut by a kill was never relied on
	}
	if err != nil {
		return errors.Join(fmt.Errorf("read state file: %w", err), file.Close())
	}
	b.journal = &journal{file: file, catalogue: b.catalogue}
	return nil
}

// recall applies all whole lines and tells how many bytes they take.
func (b *Bank) recall(file io.Reader) (int64, error) {
	reader := bufio.NewReaderSize(file, 1<<20)
	var whole int64
	for number := 1; ; number++ {
		text, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return whole, nil
		}
		if err != nil {
			return whole, err
		}
		var l line
		if err := json.Unmarshal(bytes.TrimSpace(text), &l, json.RejectUnknownMembers(true)); err != nil {
			return whole, fmt.Errorf("line %d: %w", number, err)
		}
		if err := b.recallLine(l); err != nil {
			return whole, fmt.Errorf("line %d: %w", number, err)
		}
		whole += int64(len(text))
	}
}

func (b *Bank) recallLine(l line) error {
	switch {
	case l.Request != nil:
		b.recallRequest(l.Request)
	case l.Transfer != nil:
		return b.recallTransfer(l.Transfer)
	case l.Refusal != nil:
		r := l.Refusal.record()
		b.store.with(l.Refusal.Key, func(a *account) { a.keep(r) })
	case l.State != nil:
		if t := b.store.byID(l.State.ID); t != nil {
			t.setState(l.State.Status, l.State.Code)
		}
	case l.Violation != nil:
		b.oracle.violationCount.Add(1)
		b.oracle.violations = append(b.oracle.violations, *l.Violation)
	case l.Forget != nil:
		b.store.look(*l.Forget, func(a *account) { a.records = nil })
	case l.Clock != nil:
		b.clock.advance(time.Duration(*l.Clock))
	}
	return nil
}

func (b *Bank) recallRequest(l *requestLine) {
	if l.Kind > kindStatement {
		return
	}
	at := b.oracle.arrive(b.store, l.Key, l.Kind, time.Unix(0, l.At))
	if at.index < 0 {
		return
	}
	b.store.look(l.Key, func(a *account) {
		e := &a.requests[at.index]
		e.status, e.faults, e.executed = l.Status, b.catalogue.bits(l.Faults), l.Executed
	})
}

func (b *Bank) recallTransfer(l *transferLine) error {
	found, problem := newScanner().scan(l.Body)
	if problem != "" {
		return errors.New(problem)
	}
	t := &transfer{run: l.Run, seq: l.Seq, at: l.At, visibleAt: l.VisibleAt, key: l.Key, scope: l.Scope, body: l.Body,
		fields: found, moved: l.Moved, status: l.Status, code: l.Code, later: l.Later}
	b.store.restore(t)
	b.store.with(t.key, func(a *account) {
		a.transfers = append(a.transfers, t)
		if t.moved {
			b.oracle.execution(a)
		}
	})
	if l.Record == nil {
		return nil
	}
	r := l.Record.record()
	r.transfer, r.first = t, t.status
	if l.Leaked {
		r.leaked, r.done = true, make(chan struct{})
		close(r.done)
	}
	b.store.with(l.Record.Key, func(a *account) { a.keep(r) })
	return nil
}

func (l *recordLine) record() *record {
	r := &record{scope: l.Scope, at: l.At, status: l.Status, code: l.Code}
	copy(r.body[:], l.Body)
	return r
}

// keep puts a remembered record in the place of an older one of the same scope.
func (a *account) keep(r *record) {
	for i := range a.records {
		if a.records[i].scope == r.scope {
			a.records[i] = r
			return
		}
	}
	a.records = append(a.records, r)
}

package crash

import (
	"slices"
	"strings"

	"github.com/paidonce/paidonce/bankclient/banksim"
)

const step = "create" // of the reference adapter

// behaviour is what the bank does to a key, and what must come of it.
type behaviour struct {
	name       string
	faults     []banksim.Fault // for each partner key
	conflict   bool            // the key comes a second time with another amount
	away       bool            // the ledger is away when the worker claims it for the first time
	outcome    string
	orElse     string // also right: when what was seen died with the worker
	executions int
	refused    bool // before execution; a worker that does not know the attempt's renderer has nothing to send again then, and parks it
}

// beside is what is right while a worker that renders otherwise is there: which of the two gets the operation next is chance.
func (b behaviour) beside() behaviour {
	if b.refused {
		b.orElse = "parked"
	}
	return b
}

func behaviours() []behaviour {
	return []behaviour{
		{name: "calm", outcome: "authorized", executions: 1},
		{name: "rejects", faults: []banksim.Fault{{Name: "reject"}}, outcome: "rejected"},
		{name: "error_after_commit", faults: []banksim.Fault{{Name: "error_after_commit", Next: 1}}, outcome: "authorized", executions: 1},
		{name: "late_commit", faults: []banksim.Fault{{Name: "late_commit", DelayMS: 1300, Next: 1}}, outcome: "authorized", executions: 1},
		{name: "our_funds", faults: []banksim.Fault{{Name: "insufficient_funds", Next: 1}}, outcome: "authorized", executions: 1, refused: true},
		{name: "rate_limited", faults: []banksim.Fault{{Name: "rate_limited", Next: 1}}, outcome: "authorized", executions: 1, refused: true},
		{name: "unauthorized", faults: []banksim.Fault{{Name: "unauthorized", Next: 1}}, outcome: "authorized", executions: 1, refused: true},
		{name: "in_progress", faults: []banksim.Fault{{Name: "in_progress", DelayMS: 600, Next: 1}}, outcome: "authorized", executions: 1},
		{name: "key_reused", faults: []banksim.Fault{{Name: "status", Status: 422, Value: "idempotency_key_reused", Next: 1}}, outcome: "authorized", executions: 1},
		{name: "mismatch", faults: []banksim.Fault{{Name: "echo_differs", Value: "amount"}}, outcome: "parked", orElse: "authorized", executions: 1},
		{name: "conflict", conflict: true, outcome: "authorized", executions: 1},
		{name: "ledger_away", away: true, outcome: "authorized", executions: 1},
	}
}

// point is one step, and the behaviours under which the life of a withdrawal comes by it; nil = all.
type point struct {
	name  string
	under []string
}

func points() []point {
	late, again := []string{"late_commit"}, []string{"rate_limited", "our_funds"} // after a 401 a worker leaves the partner alone for a while
	doubt := []string{"error_after_commit", "late_commit", "in_progress", "key_reused"}
	finished := []string{"calm", "rejects", "error_after_commit", "conflict", "ledger_away"}
	alarm, parked, dead, away := []string{"our_funds", "mismatch"}, []string{"mismatch"}, []string{"conflict"}, []string{"ledger_away"}
	return []point{
		{"pull:before", []string{"calm"}}, {"pull:after", []string{"calm"}}, {"received", nil}, {"claim:before", nil}, {"claim:after", nil}, {"send:before", nil}, {"sent:arrived", nil}, {"send:after", nil},
		{"record:before", nil}, {"record:after", nil}, {"done:before", nil}, {"acknowledged:before", nil}, {"acknowledged:after", nil},
		{"in_progress:before", late}, {"in_progress:after", late}, {"hint:before", finished}, {"hint:after", finished},
		{"retry:before", away}, {"handed_back:before", away}, {"handed_back:after", away},
		{"outbox_read:before", nil}, {"outbox_read:after", nil}, {"event_published:before", nil}, {"event_published:after", nil},
		{"mark_published:before", nil}, {"mark_published:after", nil},
		{"look_up:before", doubt}, {"look_up:after", doubt},
		{"claim_due:before", slices.Concat(doubt, again)}, {"claim_due:after", slices.Concat(doubt, again)},
		{"attempt:before", again}, {"attempt:after", again}, {"renew:before", late}, {"renew:after", late},
		{"pause:before", alarm}, {"pause:after", alarm}, {"look_at_parked:before", parked}, {"look_at_parked:after", parked}, {"append:before", parked}, {"append:after", parked},
		{"dead:before", dead}, {"dead_published:before", dead}, {"dead_published:after", dead}, {"terminated:before", dead}, {"terminated:after", dead},
	}
}

// cell is one death.
type cell struct {
	point     string
	behaviour behaviour
	beside    bool // a second worker is there; else the same is started again
}

func (c cell) name() string {
	if c.beside {
		return c.point + "/" + c.behaviour.name + "/beside"
	}
	return c.point + "/" + c.behaviour.name + "/restart"
}

// lostToTheStandIn is true of cells that need the worker to take an operation a second time while one that renders otherwise is beside it: that one may
// be first each time, and parks what it cannot render.
func (c cell) lostToTheStandIn() bool {
	second := strings.HasPrefix(c.point, "claim_due:") || strings.HasPrefix(c.point, "attempt:")
	return c.beside && c.behaviour.refused && second
}

// matrix lists every cell, or a slice of them: each point with two behaviours and one taking over beside, all behaviours in turn.
func matrix(all bool) []cell {
	var cells []cell
	for i, p := range points() {
		var under []behaviour
		for _, b := range behaviours() {
			if p.under == nil || slices.Contains(p.under, b.name) {
				under = append(under, b)
			}
		}
		for n := range under {
			if all || n == 0 || n == 3 {
				cells = append(cells, cell{point: p.name, behaviour: under[(i+n)%len(under)]})
			}
			if all || n == 0 {
				cells = append(cells, cell{point: p.name, behaviour: under[(i+n+1)%len(under)], beside: true})
			}
		}
	}
	return cells
}

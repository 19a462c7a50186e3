package outage

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/bankclient/banksim"
	"github.com/paidonce/paidonce/integration/arena"
	"github.com/paidonce/paidonce/integration/outage/proxy"
	"github.com/paidonce/paidonce/ledger"
)

func settingsOf(maxConns int) arena.Settings { return arena.Settings{MaxConns: maxConns} }

// strike does everything to a network that its bytes allow, one after the other, under load.
func (r *rig) strike(t *testing.T, p *proxy.Proxy, ways []proxy.Way) {
	t.Helper()
	r.start(t, "", nil)
	end := r.loading(t)
	for _, way := range ways {
		p.Set(way)
		awhile(800 * time.Millisecond)
		p.Set(proxy.Way{})
		awhile(200 * time.Millisecond)
		p.Cut()
	}
	end()
	r.noDeadLettersBut(t, r.prove(t).Dead)
}

func ways() []proxy.Way {
	return []proxy.Way{{Delay: 100 * time.Millisecond}, {Halve: true}, {BlackHole: true}, {Deaf: true}, {Refuse: true}}
}

func TestNetwork_ToThePostgres(t *testing.T) {
	r := newRig(t, setup{bank: hostile()})
	r.strike(t, r.toLedger, append(ways(), proxy.Way{Duplicate: true}, proxy.Way{Duplicate: true}))
}

func TestNetwork_ToTheBroker(t *testing.T) {
	r := newRig(t, setup{bank: hostile()})
	r.strike(t, r.toBroker, append(ways(), proxy.Way{Duplicate: true}))
}

// TestNetwork_ToTheBank: a network that repeats bytes makes the bank answer twice on one connection, and the next call may read what belongs
// to the last. Such an operation parks, and the partner pauses until a person has looked.
func TestNetwork_ToTheBank(t *testing.T) {
	r := newRig(t, setup{bank: hostile()})
	person, err := ledger.Open(t.Context(), r.urls.Owner, ledger.Options{MaxConns: 1})
	check(t, err)
	looking, leave := context.WithCancel(t.Context())
	var looks sync.WaitGroup
	looks.Go(func() {
		for looking.Err() == nil {
			_ = person.Resume(looking, ledger.ScopePartner, partner, "looked into", "outage") // mostly there is nothing to resume
			select {
			case <-looking.Done():
			case <-time.After(500 * time.Millisecond):
			}
		}
	})
	t.Cleanup(func() { leave(); looks.Wait(); person.Close() })
	r.strike(t, r.toBank, append(ways(), proxy.Way{Duplicate: true}))
}

// TestG5_EveryRequestTwice: a proxy that repeats every request gives one transfer and one outcome. It repeats them on connections of its own and
// drops their answers: on the same one, a second answer can come in the place of the next, which is a mismatch and a person's business.
func TestG5_EveryRequestTwice(t *testing.T) {
	r := newRig(t, setup{bank: banksim.Options{Calm: true}})
	r.toBank.Set(proxy.Way{Copy: true})
	r.start(t, "", nil)
	r.load(t, 40)
	j := r.prove(t)
	if j.Parked != 0 || j.Authorized != 39 { // key 7 has expired
		t.Errorf("%s", j)
	}
	eventually(t, patience, "all 39 requests came twice", func(context.Context) (bool, error) { // the copy may be the later one
		twice := 0
		for _, k := range r.all.Keys {
			history, _ := r.bank.History(bankclient.PartnerKey(k.Key, partner, "create", 0).String())
			if len(history.Requests) > 1 {
				twice++
			}
		}
		return twice >= 39, fmt.Errorf("only %d: the proxy did nothing", twice)
	})
}

package outage

import (
	"testing"
	"time"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/bankclient/banksim"
	"github.com/paidonce/paidonce/integration/arena"
	"github.com/paidonce/paidonce/integration/outage/proxy"
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
	r.strike(t, r.toLedger, ways())
}

func TestNetwork_ToTheBroker(t *testing.T) {
	r := newRig(t, setup{bank: hostile()})
	r.strike(t, r.toBroker, append(ways(), proxy.Way{Duplicate: true}))
}

func TestNetwork_ToTheBank(t *testing.T) {
	r := newRig(t, setup{bank: hostile()})
	r.strike(t, r.toBank, append(ways(), proxy.Way{Duplicate: true}))
}

// TestG5_EveryRequestTwice: a proxy that repeats every request gives one transfer and one outcome.
func TestG5_EveryRequestTwice(t *testing.T) {
	r := newRig(t, setup{bank: banksim.Options{Calm: true}})
	r.toBank.Set(proxy.Way{Duplicate: true})
	r.start(t, "", nil)
	r.load(t, 40)
	j := r.prove(t)
	if j.Parked != 0 || j.Authorized != 39 { // key 7 has expired
		t.Errorf("%s", j)
	}
	twice := 0
	for _, k := range r.all.Keys {
		history, _ := r.bank.History(bankclient.PartnerKey(k.Key, partner, "create", 0).String())
		if len(history.Requests) > 1 {
			twice++
		}
	}
	if twice < 39 {
		t.Errorf("only %d of 39 requests came twice: the proxy did nothing", twice)
	}
}

package banksim_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/paidonce/paidonce/bankclient/banksim"
)

// hostile is much worse than the default, and short.
func hostile(seed uint64) banksim.Options {
	return banksim.Options{Seed: seed, Hostility: 0.7, TimeScale: 0.01}
}

// drive sends every key until the bank says something final, n keys at a time.
func drive(r *rig, keys, atOnce int) {
	slots := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i := range keys {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			key := fmt.Sprintf("key-%d", i)
			for try := 0; ; try++ {
				a := r.post(key)
				r.lookUp(key)
				if a.err == nil && (final(a)) {
					return
				}
				if try > 2_000 {
					r.t.Errorf("%s never ends: %+v", key, a)
					return
				}
			}
		})
	}
	wg.Wait()
	r.quiesce()
}

func final(a answer) bool {
	switch a.status {
	case 200, 201:
		return strings.HasPrefix(a.body, `{"id"`) && strings.HasSuffix(a.body, `"}`)
	case 422:
		return !strings.Contains(a.body, "insufficient_funds")
	}
	return false
}

func TestHostilityKeepsTheReferenceProfile(t *testing.T) {
	r := newRig(t, hostile(11))
	drive(r, 200, 16)
	s := r.bank.Summary()
	if s.Keys != 200 || s.KeysTwice != 0 || s.Executions != s.KeysExecuted || s.Pending != 0 {
		t.Errorf("summary: %+v", s)
	}
	met, statements := map[string]int{}, 0
	r.bank.Histories(func(h banksim.History) bool {
		for _, request := range h.Requests {
			for _, name := range request.Faults {
				met[name]++
			}
		}
		if h.Executions > 1 {
			t.Errorf("%s executed %d times: %+v", h.Key, h.Executions, h.Requests)
		}
		return true
	})
	for _, info := range r.bank.Faults() {
		if info.Weight >= 2 && met[info.Name] == 0 {
			t.Errorf("the mixture never came to %s", info.Name)
		}
		if info.Weight == 0 && info.ReadWeight == 0 && met[info.Name] > 0 {
			t.Errorf("%s is not part of the mixture and was met", info.Name)
		}
	}
	r.bank.Advance(5 * time.Second) // the visibility bound
	r.bank.Statement(func(transfer banksim.Transfer) bool {
		statements++
		for { // the look-up is hostile too, but a whole answer is a true one
			a := r.lookUp(transfer.Key)
			if a.err == nil && a.status == 200 && strings.HasPrefix(a.body, `{"data":[`) && strings.HasSuffix(a.body, `"}]}`) {
				if !strings.Contains(a.body, `"id":"`+transfer.ID+`"`) {
					t.Errorf("%s is in the statement and not found by its key: %s", transfer.ID, a.body)
				}
				return true
			}
			if a.err == nil && a.body == `{"data":[]}` {
				t.Errorf("%s is in the statement and nothing is found by its key", transfer.ID)
				return true
			}
		}
	})
	if int64(statements) < s.Executions {
		t.Errorf("the statement has %d lines for %d executions", statements, s.Executions)
	}
}

// faultsOf lists what the creates of every key met, in order.
func faultsOf(b *banksim.Bank) map[string][]string {
	all := map[string][]string{}
	b.Histories(func(h banksim.History) bool {
		for _, request := range h.Requests {
			if request.Kind == "create" {
				all[h.Key] = append(all[h.Key], strings.Join(request.Faults, "+"))
			}
		}
		return true
	})
	return all
}

func TestSameSeedSameScheduleWhateverTheConcurrency(t *testing.T) {
	one, many, other := newRig(t, hostile(3)), newRig(t, hostile(3)), newRig(t, hostile(4))
	drive(one, 100, 1)
	drive(many, 100, 32)
	differ := 0
	for key, first := range faultsOf(one.bank) {
		second := faultsOf(many.bank)[key]
		for i := range min(len(first), len(second)) {
			if first[i] != second[i] && first[i] != "" && second[i] != "" || (first[i] == "") != (second[i] == "") {
				// kill_reused_connection is the one fault that asks about the connection.
				if !strings.Contains(first[i]+second[i], "kill_reused_connection") {
					t.Errorf("%s, create %d: %q and %q", key, i, first[i], second[i])
				}
			}
		}
		for i, names := range one.bank.Schedule(key, len(first), false) {
			if strings.Join(names, "+") != first[i] {
				t.Errorf("%s, create %d: scheduled %v, met %q", key, i, names, first[i])
			}
		}
		if !slices.EqualFunc(one.bank.Schedule(key, 5, false), other.bank.Schedule(key, 5, false), slices.Equal[[]string]) {
			differ++
		}
	}
	if differ < 90 {
		t.Errorf("another seed gives another schedule for only %d of 100 keys", differ)
	}
}

func TestHostilityShare(t *testing.T) {
	b := banksim.New(banksim.Options{Seed: 5})
	hit := 0
	for i := range 20_000 {
		if len(b.Schedule(fmt.Sprint("key-", i), 1, false)[0]) > 0 {
			hit++
		}
	}
	if hit < 4_800 || hit > 5_200 {
		t.Errorf("%d of 20000 creates meet a fault, want a quarter", hit)
	}
}

func TestNever(t *testing.T) {
	b := banksim.New(banksim.Options{Seed: 5, Hostility: 1, Never: []string{"reject"}})
	met := map[string]int{}
	for i := range 2_000 {
		for _, name := range b.Schedule(fmt.Sprint("key-", i), 1, false)[0] {
			met[name]++
		}
	}
	if met["reject"] != 0 || met["pending"] == 0 {
		t.Errorf("met %d times what is left out, and %d times another fault", met["reject"], met["pending"])
	}
	defer func() {
		if recover() == nil {
			t.Error("a name that no fault has was taken")
		}
	}()
	banksim.New(banksim.Options{Never: []string{"rejet"}})
}

func TestBeforeExecuteViolations(t *testing.T) {
	var seen []string
	r := newRig(t, banksim.Options{Calm: true, BeforeExecute: func(key string) error {
		seen = append(seen, key)
		if key == "bad" {
			return errors.New("no committed claim is visible")
		}
		return nil
	}})
	r.post("good").want(t, 201, "accepted")
	r.post("bad").want(t, 201, "accepted")
	r.post("bad").want(t, 200, "accepted")
	if !slices.Equal(seen, []string{"good", "bad", "bad"}) {
		t.Errorf("seen: %v", seen)
	}
	v := r.bank.Violations()
	if len(v) != 2 || v[0].Key != "bad" || v[0].Detail != "no committed claim is visible" || r.bank.Summary().Violations != 2 {
		t.Errorf("violations: %+v", v)
	}
}

func TestRestartedBankRemembers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "oracle")
	remembering := func() *rig {
		bank := banksim.New(banksim.Options{Calm: true})
		if err := bank.Remember(path); err != nil {
			t.Fatal(err)
		}
		return &rig{t: t, bank: bank, address: serve(t, bank, bank.Serve), http: calm(t).http}
	}
	r := remembering()
	first := r.post("k")
	first.want(t, 201, "accepted")
	r.set(banksim.Fault{Name: "reject", Key: "refused", Next: 1})
	r.post("refused").want(t, 422, "account_closed")
	r.set(banksim.Fault{Name: "reset_after_commit", Key: "unanswered", Next: 1})
	r.post("unanswered")
	r.set(banksim.Fault{Name: "leak_lock", Key: "leaked", Next: 1})
	r.post("leaked")
	returned := r.post("returned")
	if err := r.bank.SetTransfer(idOf(returned), "returned", ""); err != nil {
		t.Fatal(err)
	}
	r.bank.Advance(time.Hour)
	r.until("the oracle has all answers", func() bool { h, _ := r.bank.History("unanswered"); return len(h.Requests[0].Faults) == 1 })
	before, beforeNow := r.bank.Summary(), r.bank.Now()
	if err := r.bank.Close(); err != nil {
		t.Fatal(err)
	}
	cutLine(t, path)

	r = remembering()
	if after := r.bank.Summary(); after != before {
		t.Errorf("summary: before %+v, after %+v", before, after)
	}
	if now := r.bank.Now(); now.Before(beforeNow) {
		t.Errorf("clock: before %v, after %v", beforeNow, now)
	}
	if again := r.post("k"); again.status != 200 || again.body != first.body {
		t.Errorf("replay: %+v", again)
	}
	r.post("refused").want(t, 422, "account_closed")
	r.post("unanswered").want(t, 200, "accepted")
	r.post("leaked").want(t, 409, "request_in_progress")
	r.get("/v1/transfers/"+idOf(returned)).want(t, 200, `"status":"returned"`)
	if fresh := r.post("fresh"); fresh.status != 201 || idOf(fresh) == idOf(first) {
		t.Errorf("fresh: %+v", fresh)
	}
	if err := r.bank.Close(); err != nil {
		t.Fatal(err)
	}
	r = remembering()
	r.post("fresh").want(t, 200, "accepted")
	r.executed("k", 1)
}

// cutLine leaves the beginning of a line at the end of the file, as a kill does.
func cutLine(t *testing.T, path string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(`{"request":{"key":"k","at":17`); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestBrokenStateFileIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "oracle")
	if err := os.WriteFile(path, []byte("{}\n{\"nonsense\":1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := banksim.New(banksim.Options{}).Remember(path)
	if err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("got %v", err)
	}
}

package prove_test

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/bankclient/reference"
	"github.com/paidonce/paidonce/cmd/internal/prove"
)

// bigBank lists so many transfers without keeping them; the last one is about another amount.
type bigBank struct{ transfers int }

func (bigBank) ID() string { return "northbank" }

func (bigBank) Profile() bankclient.Profile {
	profile := reference.New().Profile()
	profile.VisibilityBound = 0
	return profile
}

func (b bigBank) Statement(_ context.Context, _, _ time.Time, cursor string) ([]bankclient.Seen, string, error) {
	start, _ := strconv.Atoi(cursor)
	currency, page := "GBP", []bankclient.Seen{}
	for n := start + 1; n <= min(start+1000, b.transfers); n++ {
		amount, endToEnd := "49.00", fmt.Sprintf("ENDTOEND%018d", n)
		if n == b.transfers {
			amount = "49.01"
		}
		page = append(page, bankclient.Seen{ID: fmt.Sprintf("tr_%d", n), State: "accepted", Amount: &amount, Currency: &currency, EndToEndID: &endToEnd})
	}
	if start+1000 >= b.transfers {
		return page, "", nil
	}
	return page, strconv.Itoa(start + 1000), nil
}

// fill makes so many authorized operations, each with attempt, entries and an event that waits.
func (w *world) fill(operations int) {
	w.t.Helper()
	n := strconv.Itoa(operations)
	w.damage(w.databases.Superuser,
		`INSERT INTO operations (key, amount_minor, fingerprint_version, fingerprint, currency, source, route, debtor_account, state, settlement, fence,
			outcome_at, first_sent_at, partner, credential, partner_key, transfer_id)
		 SELECT gen_random_uuid(), 4900, 1, decode(repeat('00', 32), 'hex'), 'GBP', 'wallet', 'gbp-fps', 'cust', 'authorized', 'pending', 1,
			now(), now(), 'northbank', 'c', 'k' || n, 'tr_' || n FROM generate_series(1, `+n+`) AS n`,
		`INSERT INTO attempts (operation_id, fence, renderer, claim_token, body_sha256, partner, credential, endpoint, partner_key, end_to_end_id)
		 SELECT id, 1, 1, key, fingerprint, partner, credential, 'e', partner_key, 'ENDTOEND' || lpad(substr(transfer_id, 4), 18, '0') FROM operations`,
		`INSERT INTO entries (operation_id, event, amount_minor, currency, account) SELECT id, 'authorized', 4900, 'GBP', 'transit:northbank' FROM operations`,
		`INSERT INTO entries (operation_id, event, amount_minor, currency, account) SELECT id, 'authorized', -4900, 'GBP', 'customer:wallet/cust' FROM operations`,
		`INSERT INTO outbox (operation_id, fence, type) SELECT id, 1, 'authorized' FROM operations`)
}

// peak proves a ledger of so many operations, and gives the most heap that was in use.
func peak(t *testing.T, operations int) uint64 {
	t.Helper()
	w := newWorld(t)
	w.fill(operations)
	options := w.options()
	options.Banks = []prove.Bank{bigBank{operations}}
	var most uint64
	calls := 0
	options.Progress = func(string, int64) {
		if calls++; calls%5 == 0 {
			runtime.GC() // what is only waiting to be collected is not in use
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapAlloc)
		}
	}
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	r := w.prove(options)
	if r.Authorized != int64(operations) || r.Transfers != int64(operations) || r.OutboxPending != int64(operations) || r.Mismatched != 1 || r.Faults() != 1 {
		t.Errorf("%+v", r)
	}
	return most - min(most, before.HeapAlloc)
}

func TestMemoryDoesNotGrowWithTheLedger(t *testing.T) {
	const ceiling = 24 << 20
	small, large := peak(t, 25_000), peak(t, 200_000)
	t.Logf("heap in use: %d KiB for 25,000 operations, %d KiB for 200,000", small>>10, large>>10)
	// What a small run takes is chance: its peak may lie between two looks. A hundred bytes more for each operation would be 20 MiB.
	if large > ceiling || large > 6*max(small, 2<<20) {
		t.Errorf("eight times the operations took %d KiB instead of %d KiB", large>>10, small>>10)
	}
}

package ledger_test

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/money"
)

func TestExplain_AnUnknownKeyIsNotFound(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	if _, err := db.Explain(context.Background(), newWish().Key); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("err %v, want ErrNotFound", err)
	}
}

func TestExplain_EveryField(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	w := newWish()
	w.TraceParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	c := mustClaim(t, db.Ledger, w)
	unsure := ledger.Fact{Kind: ledger.FactVerdict, Verdict: "unknown", Code: "timeout", Evidence: []byte(`{"phase":"wrote_request"}`)}
	mustRecord(t, db.Ledger, ledger.Park(c, "patience_over", true, unsure))
	if err := db.Pause(context.Background(), ledger.ScopeSource, "wallet", "audit", "ann"); err != nil {
		t.Fatal(err)
	}
	if err := db.Pause(context.Background(), ledger.ScopeSource, "payroll", "audit", "ann"); err != nil {
		t.Fatal(err)
	}
	e := explain(t, db.Ledger, w)
	if e.CreatedAt.IsZero() || !e.FirstSentAt.Equal(e.CreatedAt) || e.DueAt.Sub(e.Facts[0].At) != 24*time.Hour || !e.LeaseUntil.IsZero() || e.Now.Before(e.Facts[0].At) {
		t.Errorf("created %v, first sent %v, due %v, lease %v, now %v", e.CreatedAt, e.FirstSentAt, e.DueAt, e.LeaseUntil, e.Now)
	}
	summary := e.Summary
	summary.CreatedAt, summary.FirstSentAt, summary.DueAt = time.Time{}, time.Time{}, time.Time{}
	want := ledger.Summary{Key: w.Key, Source: "wallet", Route: "gbp-fps", State: "parked", InDoubt: true, Partner: "northbank", DebtorAccount: "cust-4471",
		Amount: money.Amount{Minor: 4900, Currency: "GBP"}, Code: "patience_over", Attempts: 1, Fence: 1}
	if summary != want {
		t.Errorf("summary %+v, want %+v", summary, want)
	}
	if e.PartnerKey != w.Intention.PartnerKey || e.Credential != "2026-11" || e.Epoch != 0 || string(e.Payload) != `{"v":1}` || e.TraceParent != w.TraceParent {
		t.Errorf("explained %+v", e)
	}
	fact := e.Facts[0]
	fact.At = time.Time{}
	if fact.Kind != "verdict" || fact.Verdict != "unknown" || fact.Code != "timeout" || fact.Fence != 1 || string(fact.Evidence) != `{"phase": "wrote_request"}` || len(e.Facts) != 1 {
		t.Errorf("facts %+v", e.Facts)
	}
	if len(e.Outbox) != 1 || e.Outbox[0].ID != w.Key.String()+".parked.1" || e.Outbox[0].At.Before(e.CreatedAt) || e.Outbox[0].Type != "parked" {
		t.Errorf("outbox %+v", e.Outbox)
	}
	if !slices.Equal(e.Unpublished, []string{"parked"}) || len(e.Entries) != 0 || len(e.Paused) != 1 || e.Paused[0].Name != "wallet" {
		t.Errorf("events %v, entries %v, pauses %v", e.Unpublished, e.Entries, e.Paused)
	}
}

// listed returns which of wishes a filter finds, in the order found.
func listed(t *testing.T, l *ledger.Ledger, f ledger.Filter, wishes []ledger.Wish) []int {
	t.Helper()
	list, _, err := l.List(context.Background(), f)
	if err != nil {
		t.Fatal(err)
	}
	var found []int
	for _, s := range list {
		found = append(found, slices.IndexFunc(wishes, func(w ledger.Wish) bool { return w.Key == s.Key }))
	}
	return found
}

func TestList_Filters(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	wishes := newWishes(5)
	wishes[1].Source, wishes[1].Route = "payroll", "eur-sct"
	wishes[2].Intention.Partner = "southbank"
	wishes[4].NotBefore = time.Now().Add(time.Hour)
	var claims []ledger.Claim
	for _, w := range wishes {
		claims = append(claims, claimOne(t, db.Ledger, w).Claim)
	}
	mustRecord(t, db.Ledger, ledger.Authorize(claims[0], "tr_0"))
	mustRecord(t, db.Ledger, ledger.Park(claims[1], "mismatch", true))
	mustRecord(t, db.Ledger, ledger.Hold(claims[2], "over_limit", false, time.Hour))
	for _, c := range []struct {
		name   string
		filter ledger.Filter
		want   []int
	}{
		{"all, newest first", ledger.Filter{}, []int{4, 3, 2, 1, 0}},
		{"limit", ledger.Filter{Limit: 2}, []int{4, 3}},
		{"state", ledger.Filter{States: []ledger.State{"parked"}}, []int{1}},
		{"states", ledger.Filter{States: []ledger.State{"parked", "authorized"}}, []int{1, 0}},
		{"open", ledger.Filter{States: []ledger.State{"open"}}, []int{4, 2}},
		{"source", ledger.Filter{Source: "payroll"}, []int{1}},
		{"route", ledger.Filter{Route: "gbp-fps"}, []int{4, 3, 2, 0}},
		{"partner", ledger.Filter{Partner: "southbank"}, []int{2}},
		{"partner, also before the first attempt", ledger.Filter{Partner: "northbank"}, []int{4, 3, 1, 0}},
		{"in doubt", ledger.Filter{InDoubt: true}, []int{3, 1}},
		{"nothing", ledger.Filter{Source: "payroll", Partner: "southbank"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := listed(t, db.Ledger, c.filter, wishes); !slices.Equal(got, c.want) {
				t.Errorf("found %v, want %v", got, c.want)
			}
		})
	}
	list, _, err := db.List(context.Background(), ledger.Filter{Partner: "southbank"})
	if err != nil || list[0].HeldReason != "over_limit" || list[0].Code != "" || list[0].State != ledger.StateOpen || list[0].Attempts != 1 {
		t.Errorf("held: %+v, err %v", list, err)
	}
}

func TestList_PagesMeetEveryOperationOnce(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	noErrors(t, db.Claim(context.Background(), newWishes(10)))
	seen := map[uuid.UUID]int{}
	pages := 0
	for cursor := int64(0); ; pages++ {
		list, next, err := db.List(context.Background(), ledger.Filter{Limit: 4, Before: cursor})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range list {
			seen[s.Key]++
		}
		if cursor = next; next == 0 {
			break
		}
	}
	if len(seen) != 10 || pages != 2 {
		t.Errorf("%d operations on %d pages, want 10 on 3", len(seen), pages+1)
	}
}

// TestList_LooksThroughWindowsUntilThePageIsFull: two operations of payroll, with hundreds of thousands of ids between and after them.
func TestList_LooksThroughWindowsUntilThePageIsFull(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	var payroll []uuid.UUID
	for i := range 4 {
		w := newWish()
		if i%2 == 0 {
			w.Source = "payroll"
			payroll = append(payroll, w.Key)
		}
		mustClaim(t, db.Ledger, w)
		db.exec(`SELECT setval('operations_id_seq', $1)`, 1+int64(i)*130_000)
	}
	list, next, err := db.List(context.Background(), ledger.Filter{Source: "payroll", Limit: 1})
	if err != nil || len(list) != 1 || list[0].Key != payroll[1] || next == 0 {
		t.Fatalf("first page: %+v, next %d, %v", list, next, err)
	}
	list, next, err = db.List(context.Background(), ledger.Filter{Source: "payroll", Limit: 2, Before: next})
	if err != nil || len(list) != 1 || list[0].Key != payroll[0] || next != 0 {
		t.Errorf("second page: %+v, next %d, %v", list, next, err)
	}
	if all, next, err := db.List(context.Background(), ledger.Filter{}); err != nil || len(all) != 4 || next != 0 {
		t.Errorf("all: %d, next %d, %v", len(all), next, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err := db.List(ctx, ledger.Filter{Source: "nobody"}); err == nil {
		t.Error("a list whose context has ended goes on")
	}
}

// TestList_ReachesSoFarAndSaysWhereToGoOn: a filter that nothing passes looks through no more than it may, and nothing is left out on the way.
func TestList_ReachesSoFarAndSaysWhereToGoOn(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	noErrors(t, db.Claim(context.Background(), newWishes(7)))
	var cursors []int64
	for f := (ledger.Filter{Source: "nobody", Reach: 3}); ; {
		list, next, err := db.List(context.Background(), f)
		if err != nil || len(list) != 0 {
			t.Fatalf("%+v, %v", list, err)
		}
		if next == 0 {
			break
		}
		cursors = append(cursors, next)
		f.Before = next
	}
	if want := []int64{5, 2}; !slices.Equal(cursors, want) { // of ids 7 to 1
		t.Errorf("went on at %v, want %v", cursors, want)
	}
	list, next, err := db.List(context.Background(), ledger.Filter{Source: "wallet", Reach: 3})
	if err != nil || len(list) != 3 || next != 5 {
		t.Errorf("a short page: %d, next %d, %v", len(list), next, err)
	}
}

// TestList_SinceIsFoundByHalving: what is older is not looked through, and what was recorded out of order within an hour is still found.
func TestList_SinceIsFoundByHalving(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	var keys []uuid.UUID
	for i := range 6 {
		w := newWish()
		keys = append(keys, w.Key)
		mustClaim(t, db.Ledger, w)
		db.exec(`SELECT setval('operations_id_seq', $1)`, 1+int64(i)*130_000)
	}
	db.exec(`ALTER TABLE operations DISABLE TRIGGER USER`)
	for i, minutes := range []int{6000, 5000, 20, 4000, 15, 30} {
		db.exec(`UPDATE operations SET created_at = now() - $2 * interval '1 minute' WHERE key = $1`, keys[i], minutes)
	}
	for _, c := range []struct {
		since time.Duration
		want  []uuid.UUID
	}{
		{25 * time.Minute, []uuid.UUID{keys[4]}}, // keys[2] stands before one that is days older: no time that a transaction takes
		{35 * time.Minute, []uuid.UUID{keys[5], keys[4]}},
		{5500 * time.Minute, []uuid.UUID{keys[5], keys[4], keys[3], keys[2], keys[1]}},
		{9000 * time.Minute, []uuid.UUID{keys[5], keys[4], keys[3], keys[2], keys[1], keys[0]}},
		{10 * time.Second, nil},
	} {
		list, next, err := db.List(context.Background(), ledger.Filter{Since: time.Now().Add(-c.since)})
		var got []uuid.UUID
		for _, s := range list {
			got = append(got, s.Key)
		}
		if err != nil || next != 0 || !slices.Equal(got, c.want) {
			t.Errorf("since %s: %v, next %d, %v; want %v", c.since, got, next, err, c.want)
		}
	}
}

func TestGauges_CountByHand(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	wishes := newWishes(6)
	wishes[1].Amount = money.Amount{Minor: 100, Currency: "EUR"}
	wishes[2].Intention.Partner = "southbank"
	var claims []ledger.Claim
	for _, w := range wishes {
		claims = append(claims, mustClaim(t, db.Ledger, w))
	}
	mustRecord(t, db.Ledger, ledger.Park(claims[0], "mismatch", true))     // in doubt, 49.00 GBP at northbank
	mustRecord(t, db.Ledger, ledger.Schedule(claims[1], true, time.Hour))  // in doubt, 1.00 EUR at northbank
	mustRecord(t, db.Ledger, ledger.Schedule(claims[2], true, time.Hour))  // in doubt, 49.00 GBP at southbank
	mustRecord(t, db.Ledger, ledger.Schedule(claims[3], false, time.Hour)) // not in doubt
	mustRecord(t, db.Ledger, ledger.Authorize(claims[4], "tr_4"))          // done; the sixth is at work
	db.Append(context.Background(), []ledger.Late{{Key: newWish().Key, Facts: []ledger.Fact{verdict("authorized")}}})
	db.exec(`UPDATE operations SET first_sent_at = now() - interval '3 h' WHERE key = $1`, wishes[1].Key)
	db.exec(`UPDATE outbox SET at = now() - interval '20 s' WHERE type = 'parked'`)
	g, err := db.Gauges(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if want := map[ledger.State]int64{"parked": 1, "open": 3, "claimed": 1}; !maps.Equal(g.Unfinished, want) {
		t.Errorf("unfinished %v, want %v", g.Unfinished, want)
	}
	if want := map[string]int64{"GBP": 9800, "EUR": 100}; g.InDoubt != 3 || !maps.Equal(g.InDoubtMinor, want) {
		t.Errorf("in doubt %d, %v; want 3, %v", g.InDoubt, g.InDoubtMinor, want)
	}
	if age := g.Now.Sub(g.OldestInDoubt["northbank"]); age < 3*time.Hour || age > 3*time.Hour+time.Minute || len(g.OldestInDoubt) != 2 {
		t.Errorf("oldest in doubt %v at %v", g.OldestInDoubt, g.Now)
	}
	if g.OutboxPending != 2 || g.OutboxLag < 20*time.Second || g.OutboxLag > 80*time.Second || g.Strays != 1 {
		t.Errorf("outbox %d, lag %v, strays %d", g.OutboxPending, g.OutboxLag, g.Strays)
	}
	if g.OldestUnfinished <= 0 || g.OldestUnfinished > time.Minute {
		t.Errorf("oldest unfinished %v", g.OldestUnfinished)
	}
	db.dueNow() // the sixth has lost its lease: now it is in doubt
	if g, err = db.Gauges(context.Background()); err != nil || g.InDoubt != 4 || g.InDoubtMinor["GBP"] != 14700 {
		t.Errorf("after a lapse: in doubt %d, %v, err %v; want 4, 14700 GBP", g.InDoubt, g.InDoubtMinor, err)
	}
}

func TestGauges_ContradictedOutcomesAreCounted(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	w := newWish()
	mustRecord(t, db.Ledger, ledger.Reject(mustClaim(t, db.Ledger, w), "account_closed"))
	db.Append(context.Background(), []ledger.Late{{Key: w.Key, Facts: []ledger.Fact{authorizedLate("tr_1")}}})
	if g, err := db.Gauges(context.Background()); err != nil || g.Contradicted != 1 {
		t.Errorf("contradicted %d, err %v; want 1", g.Contradicted, err)
	}
}

func TestI6_GaugesSurviveSumsBeyondInt64(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	for range 3 {
		w := newWish()
		w.Amount.Minor = math.MaxInt64
		mustRecord(t, db.Ledger, ledger.Schedule(mustClaim(t, db.Ledger, w), true, time.Hour))
	}
	g, err := db.Gauges(context.Background())
	if err != nil || g.InDoubt != 3 || g.InDoubtMinor["GBP"] != math.MaxInt64 {
		t.Errorf("in doubt %d, %v, err %v; want 3 and the largest number there is", g.InDoubt, g.InDoubtMinor, err)
	}
}

func TestGauges_NothingIsZero(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	g, err := db.Gauges(context.Background())
	if err != nil || g.OldestUnfinished != 0 || len(g.Unfinished) != 0 || g.InDoubt != 0 || g.OutboxLag != 0 || g.OutboxPending != 0 || g.Now.IsZero() {
		t.Errorf("%+v, err %v", g, err)
	}
}

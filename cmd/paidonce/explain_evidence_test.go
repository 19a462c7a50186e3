package main

import (
	"strings"
	"testing"

	"github.com/paidonce/paidonce/ledger"
)

// TestExplain_NotFoundElsewhere: a look-up that asked elsewhere found nothing; why that proves nothing, and how the doubt can end, is told.
func TestExplain_NotFoundElsewhere(t *testing.T) {
	o := newOffice(t)
	key := o.operation(func(c ledger.Claim) ledger.Record {
		return ledger.Park(c, "in_doubt", true,
			ledger.Fact{Kind: ledger.FactVerdict, Verdict: "unknown", Evidence: []byte(`{"phase":"wrote_request","error":"timeout","elapsed_ms":20000}`)},
			ledger.Fact{Kind: ledger.FactLookUp, Verdict: "no_answer", Evidence: []byte(`{"phase":"complete","status":200,"why":"not found"}`)})
	})
	const elsewhere = `"not found" there proves nothing, and nothing is sent again.`
	here := o.okAs("vera", "ops", "explain", key)
	has(t, here, "it was asked at another place, or under another credential, than it was sent (got as far as complete, HTTP 200, not found)")
	if strings.Contains(here, elsewhere) {
		t.Errorf("nothing has changed:\n%s", here)
	}
	there := func(config string) string { return o.okAs("vera", "ops", "explain", key, "--set", config) }
	moved := there("partners.northbank.base_url=http://127.0.0.1:2")
	has(t, moved, "It was sent by POST http://127.0.0.1:1/v1/transfers, and a call would be POST http://127.0.0.1:2/v1/transfers now: "+elsewhere+" Restore partners.northbank.base_url")
	if strings.Contains(moved, "It was sent as") {
		t.Errorf("the credential has not changed:\n%s", moved)
	}
	has(t, there("partners.northbank.credential_id=2027-01"), "It was sent as 2026-11, and look-ups are made as 2027-01 now: "+elsewhere+" Restore partners.northbank.credential_id")
}

// TestExplain_MismatchNamesWhatDisagrees, and the transfer that a person must ask the partner about.
func TestExplain_MismatchNamesWhatDisagrees(t *testing.T) {
	o := newOffice(t)
	key := o.operation(func(c ledger.Claim) ledger.Record {
		return ledger.Park(c, "mismatch", true,
			ledger.Fact{Kind: ledger.FactVerdict, Verdict: "mismatch", Evidence: []byte(`{"phase":"complete","status":201,"why":"echo disagrees","transfer_id":"tr_81","differs":["amount","end_to_end_id"]}`)},
			ledger.Fact{Kind: ledger.FactNote, Code: "authorized_beside_mismatch", TransferID: "tr_81", Evidence: []byte(`{}`)},
			ledger.Fact{Kind: ledger.FactLookUp, Verdict: "mismatch", Evidence: []byte(`{"phase":"complete","status":200,"transfer_ids":["tr_82","tr_83"]}`)})
	})
	has(t, o.okAs("vera", "ops", "explain", key), "the answer disagrees with what was sent: amount, end_to_end_id; transfer tr_81 (", "noted: authorized_beside_mismatch, transfer tr_81",
		"the answer disagrees with what was sent; transfer tr_82, tr_83 (")
}

// TestExplain_WithoutABroker says what the ledger tells of claims and events, and that the streams were not looked at.
func TestExplain_WithoutABroker(t *testing.T) {
	o := newOffice(t)
	parked, authorized, working := o.operation(inDoubt), o.operation(func(c ledger.Claim) ledger.Record { return ledger.Authorize(c, "tr_1") }), o.claimed()
	has(t, o.okAs("vera", "ops", "explain", parked), "What the streams hold under its key, and how far its jobs are delivered: they were not looked at, since the broker cannot be reached.",
		parked+".parked.1 waits in the outbox, to be published", "the claim under fence 1 ended with what it recorded", "by the settings here it was for 1m0s, until 20")
	for _, e := range outbox(t, o.worker) {
		if err := o.worker.MarkPublished(t.Context(), []int64{e.Ref}); err != nil {
			t.Fatal(err)
		}
	}
	has(t, o.okAs("vera", "ops", "explain", parked), parked+".parked.1 published: it is not in the outbox any more\n")
	has(t, o.okAs("vera", "ops", "explain", authorized), authorized+".authorized published: it is not in the outbox any more\n", "the claim under fence 1 has recorded nothing (by the settings")
	has(t, o.okAs("vera", "ops", "explain", working), "the claim under fence 1 holds until 20")
	row := decoded[explanationRow](t, o.okAs("vera", "ops", "explain", authorized, "-o", "json"))
	if len(row.Events) != 1 || row.Events[0].State != "published" || row.Events[0].OccurredAt == "" || row.NotLooked != "the broker cannot be reached" || len(row.Jobs) != 0 {
		t.Errorf("%+v, %q", row.Events, row.NotLooked)
	}
}

func outbox(t *testing.T, l *ledger.Ledger) []ledger.Event {
	t.Helper()
	events, err := l.Unpublished(t.Context(), 100)
	if err != nil || len(events) != 2 {
		t.Fatalf("%d events, %v", len(events), err)
	}
	return events
}

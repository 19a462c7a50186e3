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

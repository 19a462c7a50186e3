package job

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"
)

const rowHead = `{"row_ref":"r-1",`

// TestB14_ARowAndItsJobHaveOneFingerprint: a row under a key is the job that was meant.
func TestB14_ARowAndItsJobHaveOneFingerprint(t *testing.T) {
	for name, d := range goodUnder(t, rowHead) {
		j, own, err := DecodeRow("wallet", "gbp-fps", []byte(d.doc))
		if err != nil || own != (OwnOfRow{Ref: "r-1"}) || j.Key != uuid.Nil {
			t.Errorf("%s: %v, its own %+v, key %s", name, err, own, j.Key)
			continue
		}
		if j.Key = uuid.MustParse(requestKey); j.Fingerprint() != mustDecode(t, d.was).Fingerprint() {
			t.Errorf("%s: another fingerprint", name)
		}
	}
}

// TestH_ARowIsRefusedForWhatAJobIsRefusedFor, with the same code at the same place.
func TestH_ARowIsRefusedForWhatAJobIsRefusedFor(t *testing.T) {
	refusedAlike(t, rowHead, func(row string) error { _, _, err := DecodeRow("wallet", "gbp-fps", []byte(row)); return err })
}

func TestRow_WhatOnlyARowGetsWrong(t *testing.T) {
	row, _ := headed(contractJob, rowHead)
	if _, own, err := DecodeRow("wallet", "gbp-fps", []byte(strings.Replace(row, `{`, `{"route":"gbp-fps",`, 1))); err != nil || !own.Route {
		t.Errorf("a route of its own: %+v, %v", own, err)
	}
	for name, c := range map[string]struct{ route, row, code, path string }{
		"a version":             {"gbp-fps", strings.Replace(row, `{`, `{"v":1,`, 1), CodeUnknownName, "/v"},
		"a key":                 {"gbp-fps", strings.Replace(row, `{`, `{"key":"`+requestKey+`",`, 1), CodeUnknownName, "/key"},
		"no route anywhere":     {"", row, CodeMissing, "/route"},
		"a wildcard as a route": {"gbp-fps", strings.Replace(row, `{`, `{"route":"*",`, 1), CodeRouteName, "/route"},
		"two names of the row":  {"gbp-fps", strings.Replace(row, `{`, `{"row_ref":"r-2",`, 1), CodeDuplicateName, "/row_ref"},
		"H1 Row_ref":            {"gbp-fps", strings.Replace(row, `row_ref`, `Row_ref`, 1), CodeCaseVariantName, "/row_ref"},
		"an empty name":         {"gbp-fps", strings.Replace(row, `"r-1"`, `""`, 1), CodeTextEmpty, "/row_ref"},
		"a name too long":       {"gbp-fps", strings.Replace(row, `r-1`, strings.Repeat("r", 141), 1), CodeTextTooLong, "/row_ref"},
		"a null name":           {"gbp-fps", strings.Replace(row, `"r-1"`, `null`, 1), CodeNullValue, "/row_ref"},
		"H2 two rows":           {"gbp-fps", row + row, CodeTrailingData, ""},
	} {
		_, _, err := DecodeRow("wallet", c.route, []byte(c.row))
		wantFault(t, name, err, c.code, c.path)
	}
}

// textsOf writes a job as texts, by the library's own formats.
func textsOf(j Job) Texts {
	b := j.Beneficiary
	t := Texts{DebtorAccount: j.DebtorAccount.Reveal(), Amount: j.Amount.Decimal(), Currency: j.Amount.Currency, Name: b.Name.Reveal(),
		IBAN: b.IBAN.Reveal(), BIC: b.BIC.Reveal(), SortCode: b.SortCode.Reveal(), AccountNumber: b.AccountNumber.Reveal(),
		RoutingNumber: b.RoutingNumber.Reveal(), PixKey: b.PixKey.Reveal(), Reference: j.Reference.Reveal()}
	if !j.NotBefore.IsZero() {
		t.NotBefore = j.NotBefore.Format(time.RFC3339Nano)
	}
	if !j.NotAfter.IsZero() {
		t.NotAfter = j.NotAfter.Format(time.RFC3339Nano)
	}
	return t
}

// TestTextsAndDocumentsAreJudgedAlike: FromTexts takes what Decode takes, and gives the same job.
func TestTextsAndDocumentsAreJudgedAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := drawJob(t)
		j.Metadata = nil
		if rapid.IntRange(0, 3).Draw(t, "break") == 0 {
			breakJob(t, &j)
		}
		texts := textsOf(j)
		got, err := FromTexts(j.Source, j.Route, j.Key, &texts)
		_, encoded := Encode(j)
		if (err == nil) != (encoded == nil) {
			t.Fatalf("FromTexts: %v, Encode: %v", err, encoded)
		}
		if err == nil && got.Fingerprint() != j.Fingerprint() {
			t.Fatal("another job")
		}
	})
}

// breakJob spoils one field.
func breakJob(t *rapid.T, j *Job) {
	bad := Sensitive(rapid.SampledFrom([]string{"", " x", "x\x00", "GB33BUKB20201555555556", "12", "a\u202eb"}).Draw(t, "bad"))
	b := &j.Beneficiary
	*rapid.SampledFrom([]*Sensitive{&j.DebtorAccount, &b.Name, &b.IBAN, &b.BIC, &b.SortCode, &b.AccountNumber, &b.RoutingNumber, &b.PixKey,
		&j.Reference}).Draw(t, "field") = bad
}

func TestTexts_NamesOfSourceAndRoute(t *testing.T) {
	texts := textsOf(mustDecode(t, contractJob))
	if _, err := FromTexts("Wallet", "gbp-fps", uuid.Nil, &texts); err == nil || faultOf(t, err).Code != CodeSourceName {
		t.Errorf("a source that is no name: %v", err)
	}
	if _, err := FromTexts("wallet", "gbp.fps", uuid.Nil, &texts); err == nil || faultOf(t, err).Code != CodeRouteName {
		t.Errorf("a route that is no name: %v", err)
	}
	texts.Amount = ""
	if _, err := FromTexts("wallet", "gbp-fps", uuid.Nil, &texts); err == nil || faultOf(t, err).Code != CodeMissing {
		t.Errorf("no amount: %v", err)
	}
}

func FuzzDecodeRow(f *testing.F) {
	for _, d := range goodUnder(f, rowHead) {
		f.Add([]byte(d.doc))
	}
	f.Add([]byte(`{"row_ref":"r-1","Row_ref":"r-2"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		j, _, err := DecodeRow("wallet", "gbp-fps", line)
		if err != nil {
			wantWholeFault(t, err)
			return
		}
		j.Key = NewKey()
		sameDelivered(t, j)
	})
}

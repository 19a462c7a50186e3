package job

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"
)

// asRow turns a job document that begins as the contract's example into the row of a file that asks for the same.
func asRow(doc string) (string, bool) {
	at := strings.Index(doc, jobHead)
	if at < 0 || strings.Count(doc, `"v"`)+strings.Count(doc, `"key"`) != 2 {
		return "", false
	}
	return doc[:at] + `{"row_ref":"r-1",` + doc[at+len(jobHead):], true
}

// TestB14_ARowAndItsJobHaveOneFingerprint: a row under a key is the job that was meant.
func TestB14_ARowAndItsJobHaveOneFingerprint(t *testing.T) {
	n := 0
	for name, doc := range goodDocuments() {
		row, ok := asRow(doc)
		if !ok {
			continue
		}
		n++
		j, own, err := DecodeRow("wallet", "gbp-fps", []byte(row))
		if err != nil || own != (OwnOfRow{Ref: "r-1"}) || j.Key != uuid.Nil {
			t.Errorf("%s: %v, its own %+v, key %s", name, err, own, j.Key)
			continue
		}
		if j.Key = uuid.MustParse(requestKey); j.Fingerprint() != mustDecode(t, doc).Fingerprint() {
			t.Errorf("%s: another fingerprint", name)
		}
	}
	if n < 30 {
		t.Errorf("only %d documents were tried", n)
	}
}

// TestH_ARowIsRefusedForWhatAJobIsRefusedFor, with the same code at the same place.
func TestH_ARowIsRefusedForWhatAJobIsRefusedFor(t *testing.T) {
	n := 0
	for name, d := range badDocuments() {
		row, ok := asRow(d.doc)
		if !ok || strings.HasPrefix(name, "route in the body") || d.code == CodeTooLarge && len(row) <= MaxBytes {
			continue
		}
		n++
		_, _, err := DecodeRow("wallet", "gbp-fps", []byte(row))
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		if fault := faultOf(t, err); fault.Code != d.code || fault.Path != d.path {
			t.Errorf("%s: %s at %q, want %s at %q", name, fault.Code, fault.Path, d.code, d.path)
		}
	}
	if n < 100 {
		t.Errorf("only %d documents were tried", n)
	}
}

func TestRow_WhatOnlyARowGetsWrong(t *testing.T) {
	row, _ := asRow(contractJob)
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
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		if fault := faultOf(t, err); fault.Code != c.code || fault.Path != c.path {
			t.Errorf("%s: %s at %q, want %s at %q", name, fault.Code, fault.Path, c.code, c.path)
		}
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
	for _, doc := range goodDocuments() {
		if row, ok := asRow(doc); ok {
			f.Add([]byte(row))
		}
	}
	f.Add([]byte(`{"row_ref":"r-1","Row_ref":"r-2"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		j, _, err := DecodeRow("wallet", "gbp-fps", line)
		if err != nil {
			if fault := faultOf(t, err); fault.Code == "" || fault.Detail == "" {
				t.Fatalf("no whole fault: %#v", fault)
			}
			return
		}
		j.Key = NewKey()
		payload, err := Encode(j)
		if err != nil {
			if faultOf(t, err).Code == CodeTooLarge {
				return
			}
			t.Fatalf("Encode: %v", err)
		}
		back, err := Decode("wallet", j.Route, payload)
		if err != nil || back.Fingerprint() != j.Fingerprint() {
			t.Fatalf("another job: %s, %v", payload, err)
		}
	})
}
